"""Runs the tests and the type check of clients/web, and checks its sources as those of the rest."""

from __future__ import annotations

import re

from tests.support.typescript import node, run
from tests.support.web_client import ROOT, build_web_client

PACKAGE = ROOT / "clients" / "web"
REFERENCE = ROOT / "chatserver" / "api" / "reference_page"
SOURCES = [
    path
    for folder in (PACKAGE / "src", PACKAGE / "plugins", PACKAGE / "tests", REFERENCE)
    for path in sorted(folder.rglob("*"))
    if path.suffix in (".ts", ".tsx", ".mjs", ".js", ".css")
]
LINE_CHARS_MAX, FILE_LINES_MAX, FOLDER_MODULES_MAX = 100, 500, 25
# Every way to parse a text as markup or to run it, and to turn off the compiler's errors.
FORBIDDEN = re.compile(
    r"\.(inner|outer)HTML|dangerouslySetInnerHTML|insertAdjacentHTML|document\.write"
    r"|createContextualFragment|DOMParser|srcdoc|\beval\(|new Function|setAttribute\([\"']on"
    r"|javascript:|cssText|@ts-ignore|@ts-nocheck"
)


def test_web_client_keeps_its_promises() -> None:
    """The tests that need no browser: Markdown, the window of messages, and pages as elements."""
    build_web_client()
    tests = sorted(map(str, (PACKAGE / "tests").glob("*.test.mjs")))

    output = run(node(), "--test", *tests, cwd=PACKAGE)

    assert tests
    assert re.search(r"^\S fail 0$", output, re.MULTILINE)
    assert not re.search(r"(skipped|todo) [1-9]", output)


def test_web_client_compiles_with_all_texts_in_all_languages() -> None:
    """The build does not check types; a text that a language lacks is an error of a type."""
    build_web_client()
    compiler = PACKAGE / "node_modules" / "typescript" / "bin" / "tsc"

    for project in ("tsconfig.json", "tsconfig.worker.json"):
        run(node(), str(compiler), "-p", project, cwd=PACKAGE)


def test_web_client_sources_are_of_the_size_of_the_rest() -> None:
    """Lines of at most 100 characters, files of at most 500 lines, folders of 25 modules."""
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > LINE_CHARS_MAX
    ]
    large = [path.name for path in SOURCES if path.read_text("utf-8").count("\n") > FILE_LINES_MAX]
    modules = [path.parent for path in SOURCES if path.suffix in (".ts", ".tsx")]

    assert (long, large) == ([], [])
    assert max(map(modules.count, modules)) <= FOLDER_MODULES_MAX


def test_web_files_have_no_way_to_turn_text_into_markup() -> None:
    """Texts become text nodes and elements of React; pages have no inline code or style."""
    found = [
        f"{path.name}: {match[0]}"
        for path in SOURCES
        if path.parent != PACKAGE / "tests"  # they have hostile texts
        for match in FORBIDDEN.finditer(path.read_text("utf-8"))
    ]
    inline = re.compile(r"<style|style=|\son\w+=|<script>")

    assert found == []
    for page in (PACKAGE / "index.html", REFERENCE / "index.html"):
        assert inline.search(page.read_text("utf-8")) is None
