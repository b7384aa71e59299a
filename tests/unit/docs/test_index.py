"""docs/README.md and docs/faq.md: the index is complete, and each question has an answer."""

from __future__ import annotations

import re

from tests.unit.docs.markdown import ROOT, documents

DOCS = ROOT / "docs"
_DECISION = re.compile(r"\d{4}-.+\.md")


def test_index_links_every_document() -> None:
    """A page that is not linked is not found."""
    (index,) = [document for document in documents() if document.name == "docs/README.md"]

    linked = {link.partition("#")[0] for link in index.links}
    pages = {path.name for path in DOCS.iterdir() if path.suffix in (".md", ".json")}
    assert pages - linked == {"README.md"}
    assert "decisions" in linked


def test_readme_links_the_main_documents() -> None:
    """All other documents are linked from these."""
    (readme,) = [document for document in documents() if document.name == "README.md"]

    linked = {link.partition("#")[0] for link in readme.links}
    for name in ("README", "tour", "guarantees", "settings", "commands", "faq", "operations"):
        assert f"docs/{name}.md" in linked, name


def test_decisions_have_unique_numbers() -> None:
    """Code and documents refer to decisions by number."""
    names = sorted(path.name for path in (DOCS / "decisions").iterdir())

    assert all(_DECISION.fullmatch(name) for name in names)
    numbers = [int(name[:4]) for name in names]
    assert len(set(numbers)) == len(numbers)


def test_each_frequent_question_has_one_answer() -> None:
    text = (DOCS / "faq.md").read_text(encoding="utf-8")
    questions = re.findall(r"^\*\*([^*]+)\*\*(.*?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)

    assert len(questions) >= 30
    assert len({question for question, _ in questions}) == len(questions)
    for question, answer in questions:
        assert question[-1] in "?.!", question
        assert len(answer.split()) >= 10, question
