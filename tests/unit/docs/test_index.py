"""docs/README.md and docs/faq.md: the index leaves nothing out, the answers are not empty."""

from __future__ import annotations

import re

from tests.unit.docs.markdown import ROOT, documents

DOCS = ROOT / "docs"
_DECISION = re.compile(r"\d{4}-.+\.md")


def test_index_of_documents_leaves_none_out() -> None:
    """A page that is not linked is never read."""
    (index,) = [document for document in documents() if document.name == "docs/README.md"]

    linked = {link.partition("#")[0] for link in index.links}
    there = {path.name for path in DOCS.iterdir() if path.suffix in (".md", ".json")}
    assert there - linked == {"README.md"}
    assert "decisions" in linked


def test_readme_leads_to_each_document_that_an_operator_or_developer_needs() -> None:
    """Every document is a click or two from the first page."""
    (readme,) = [document for document in documents() if document.name == "README.md"]

    linked = {link.partition("#")[0] for link in readme.links}
    for name in ("README", "tour", "guarantees", "settings", "commands", "faq", "operations"):
        assert f"docs/{name}.md" in linked, name


def test_decisions_have_a_number_each() -> None:
    """They are named by number in code and documents."""
    names = sorted(path.name for path in (DOCS / "decisions").iterdir())

    assert all(_DECISION.fullmatch(name) for name in names)
    numbers = [int(name[:4]) for name in names]
    assert len(set(numbers)) == len(numbers)


def test_each_frequent_question_has_an_answer_and_is_asked_once() -> None:
    """A question without an answer must not be listed."""
    text = (DOCS / "faq.md").read_text(encoding="utf-8")
    questions = re.findall(r"^\*\*([^*]+)\*\*(.*?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)

    assert len(questions) >= 30
    assert len({question for question, _ in questions}) == len(questions)
    for question, answer in questions:
        assert question[-1] in "?.!", question
        assert len(answer.split()) >= 10, question
