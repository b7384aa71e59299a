"""docs/guarantees.md: each guarantee has an exact scope and tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.unit.docs.markdown import ROOT

TEXT = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
SECTIONS = {
    int(number): body
    for number, body in re.findall(r"^## P(\d+): .*?\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)
}
NODES = re.findall(r"^- `([^`]+)`$", TEXT, re.MULTILINE)


def test_document_has_the_ten_guarantees_in_order() -> None:
    """Code and decisions refer to them by number."""
    assert list(SECTIONS) == list(range(1, 11))


@pytest.mark.parametrize("number", SECTIONS)
def test_guarantee_has_tests_and_a_stated_scope(number: int) -> None:
    """A guarantee needs tests, and a statement of what it does not cover."""
    section = SECTIONS[number]

    assert len(re.findall(r"^- `tests/", section, re.MULTILINE)) >= 5
    assert "\nOutside: " in section


def test_tests_of_guarantees_exist() -> None:
    """The document names each test by its pytest node id."""
    missing = []
    for node in sorted(set(NODES)):
        path, _, name = node.partition("::")
        source = (ROOT / path).read_text(encoding="utf-8")
        if not re.search(rf"^(async )?def {name}\(|^{name} = ", source, re.MULTILINE):
            missing.append(node)

    assert missing == []


@pytest.mark.parametrize("number", SECTIONS)
def test_guarantee_is_tested_against_running_processes(number: int) -> None:
    """Unit tests alone do not prove a guarantee."""
    kinds = set(re.findall(r"^- `tests/(\w+)/", SECTIONS[number], re.MULTILINE))

    assert kinds & {"integration", "chaos", "e2e"}
