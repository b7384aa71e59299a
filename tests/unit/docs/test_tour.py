"""docs/tour.md and the README's tour link to existing functions."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.unit.docs.markdown import ROOT, Document, read_document

_LINKED_NAME = re.compile(r"\[`([^`]+)`\]\(([^()\s#]+)\)")
TOUR = ROOT / "docs" / "tour.md"


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """Return the names that a module defines: functions, classes, constants, `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.ClassDef():
                found.add(node.name)
                found |= {
                    f"{node.name}.{each.name}"
                    for each in node.body
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                }
            case ast.Assign(targets=targets):
                found |= {each.id for each in targets if isinstance(each, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return frozenset(found)


def list_broken_links(document: Document) -> list[str]:
    """Return links whose text is neither the path of the target nor a name in it."""
    broken = []
    for text, link in _LINKED_NAME.findall(document.prose):
        target = (document.path.parent / link).resolve()
        if not target.exists():
            broken.append(f"{link}: does not exist")
        elif target.as_posix().endswith(text):
            continue
        elif target.suffix != ".py" or text not in names_in(target):
            broken.append(f"{link}: has no {text}")
    return broken


@pytest.mark.parametrize("path", [TOUR, ROOT / "README.md"], ids=lambda path: path.name)
def test_each_function_of_the_tour_exists(path: Path) -> None:
    """A renamed or moved function breaks its link."""
    assert list_broken_links(read_document(path)) == []


def test_tour_visits_each_package_of_the_message_path() -> None:
    """A message passes through all of these packages."""
    text = TOUR.read_text(encoding="utf-8")

    for package in ("protocol", "gateway", "service", "hot", "warm", "cold", "client", "domain"):
        assert f"](../chatserver/{package}/" in text, package
    assert len(_LINKED_NAME.findall(text)) > 40


def test_broken_link_is_detected(tmp_path: Path) -> None:
    """This proves that the check can fail."""
    (tmp_path / "code.py").write_text("class Chat:\n    def send(self): ...\n")
    (tmp_path / "page.md").write_text("[`Chat.send`](code.py) [`Chat.close`](code.py) [`a`](b.py)")

    found = list_broken_links(read_document(tmp_path / "page.md"))

    assert found == ["code.py: has no Chat.close", "b.py: does not exist"]
