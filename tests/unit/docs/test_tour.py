"""docs/tour.md and the README's tour lead to functions that there are."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.unit.docs.markdown import ROOT, Document, read_document

_NAMED = re.compile(r"\[`([^`]+)`\]\(([^()\s#]+)\)")
TOUR = ROOT / "docs" / "tour.md"


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """Return what a module defines: functions, classes, constants, and methods as `Class.name`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.ClassDef():
                found.add(node.name)
                found |= {
                    f"{node.name}.{one.name}"
                    for one in node.body
                    if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
                }
            case ast.Assign(targets=targets):
                found |= {one.id for one in targets if isinstance(one, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return frozenset(found)


def missing_of(document: Document) -> list[str]:
    """Return links whose text names neither the file that they lead to nor something in it."""
    missing = []
    for text, link in _NAMED.findall(document.prose):
        target = (document.path.parent / link).resolve()
        if not target.exists():
            missing.append(f"{link}: is not there")
        elif target.as_posix().endswith(text):
            continue
        elif target.suffix != ".py" or text not in names_in(target):
            missing.append(f"{link}: has no {text}")
    return missing


@pytest.mark.parametrize("path", [TOUR, ROOT / "README.md"], ids=lambda path: path.name)
def test_each_function_of_the_tour_is_where_it_is_said_to_be(path: Path) -> None:
    """A name that was changed would lead readers nowhere."""
    assert missing_of(read_document(path)) == []


def test_tour_passes_through_each_part_of_the_way() -> None:
    """A reader of the tour has seen every package that a message passes through."""
    text = TOUR.read_text(encoding="utf-8")

    for package in ("protocol", "gateway", "service", "hot", "warm", "cold", "client", "domain"):
        assert f"](../chatserver/{package}/" in text, package
    assert len(_NAMED.findall(text)) > 40


def test_function_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The check itself can fail."""
    (tmp_path / "code.py").write_text("class Talk:\n    def said(self): ...\n")
    (tmp_path / "page.md").write_text("[`Talk.said`](code.py) [`Talk.heard`](code.py) [`a`](b.py)")

    found = missing_of(read_document(tmp_path / "page.md"))

    assert found == ["code.py: has no Talk.heard", "b.py: is not there"]
