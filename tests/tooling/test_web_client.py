"""Runs the tests and the type check of clients/web."""

from __future__ import annotations

import re

from tests.support.typescript import node, run
from tests.support.web_client import PACKAGE, build_web_client


def test_web_client_passes_its_tests() -> None:
    """These tests need no browser: Markdown, the message window, and rendered pages."""
    build_web_client()
    tests = sorted(map(str, (PACKAGE / "tests").glob("*.test.mjs")))

    output = run(node(), "--test", *tests, cwd=PACKAGE)

    assert tests
    assert re.search(r"^\S fail 0$", output, re.MULTILINE)
    assert not re.search(r"(skipped|todo) [1-9]", output)


def test_web_client_type_check_passes() -> None:
    """The build does not check types. A missing translation is a type error."""
    build_web_client()
    compiler = PACKAGE / "node_modules" / "typescript" / "bin" / "tsc"

    for project in ("tsconfig.json", "tsconfig.worker.json"):
        run(node(), str(compiler), "-p", project, cwd=PACKAGE)
