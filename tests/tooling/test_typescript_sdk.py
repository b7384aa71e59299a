"""Runs the tests of clients/typescript and builds its package."""

from __future__ import annotations

import json
import re

from tests.support.typescript import PACKAGE, build, deno, node, run


def strip_colors(text: str) -> str:
    return re.sub(r"\x1b\[\d*m", "", text)


def test_typescript_sdk_passes_its_tests() -> None:
    """The tests include the recorded histories that the Python SDK replays."""
    build()
    tests = sorted((PACKAGE / "build" / "tests").glob("*.test.js"))

    output = run(node(), "--test", *map(str, tests), cwd=PACKAGE)

    assert tests
    assert re.search(r"^\S fail 0$", output, re.MULTILINE)
    assert not re.search(r"(skipped|todo) [1-9]", output)


def test_typescript_sdk_replays_the_recorded_histories_in_deno() -> None:
    """Deno runs the same compiled package and tests as Node."""
    build()
    tests = [f"build/tests/{name}.test.js" for name in ("histories", "cleared_chats")]

    output = run(*deno("test"), "--no-check", *tests, cwd=PACKAGE)

    assert re.search(r"\b7 passed \(\d+ steps\) \| 0 failed", strip_colors(output)), output


def test_generated_types_match_the_api_documents() -> None:
    """Types of the protocol and the HTTP API are never written by hand."""
    run(node(), "scripts/generate_types.mjs", "--check", cwd=PACKAGE)


def test_built_package_ships_its_modules_and_types() -> None:
    """Each export has a module and its types."""
    exports = json.loads((PACKAGE / "package.json").read_text())["exports"]
    build()

    for entry in exports.values():
        assert (PACKAGE / entry["types"]).exists() and (PACKAGE / entry["default"]).exists()
