"""docs/reference-systems.md: rows and tests match, and the tests import no product code."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest

from tests.unit.docs.markdown import ROOT

FOLDER = ROOT / "tests" / "e2e" / "reference"
TEXT = (ROOT / "docs" / "reference-systems.md").read_text(encoding="utf-8")
LISTED = set(re.findall(r"`(tests/e2e/reference/\w+\.py::\w+)`", TEXT))
HEADER = ["in the document", "here", "reached by", "test"]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ")
]
# Markers of a row without a test, followed by the reason.
REASON_MARKERS = ("**Not tested here**",)
PUBLIC = {
    "boto3",
    "botocore",
    "httpx",
    "pyarrow",
    "pytest",
    "redis",
    "websockets",
    "zstandard",
}
TEST_SUPPORT = {
    "tests.e2e.reference",
    "tests.e2e.reference.deployments",
    "tests.e2e.reference.support",
    "tests.support.fork_server",  # starts the command line
    "tests.support.servers.ports",  # free ports, by test process
}
SERVER_STARTER = {"tests.support.devrun"}  # starts `chatserver dev`; for conftest.py only
MODULES = sorted(FOLDER.glob("*.py"))


def list_tests() -> set[str]:
    """Return the node ids of all tests in the folder."""
    return {
        f"tests/e2e/reference/{path.name}::{node.name}"
        for path in MODULES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def list_imports(source: str) -> set[str]:
    """Return the full names of all imported modules, at any level of the source."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found


def is_public(module: str) -> bool:
    """Return whether a module is available outside of the project."""
    top = module.split(".")[0]
    return top in PUBLIC or (top in sys.stdlib_module_names and top != "importlib")


def is_test(node_id: str) -> bool:
    """Return whether a test exists; tests of a feature may be outside of the folder."""
    path, _, name = node_id.partition("::")
    source = ROOT / path
    return (
        source.is_file()
        and re.search(rf"^(async )?def {name}\(", source.read_text(), re.M) is not None
    )


def test_page_lists_exactly_the_tests_of_the_folder() -> None:
    """A test without a row and a row without a test are errors."""
    assert list_tests() == LISTED


def test_page_has_a_table_for_each_of_the_five_systems() -> None:
    """Each table has the same four columns."""
    assert ROWS.count(HEADER) == 5
    assert [row for row in ROWS if len(row) != len(HEADER)] == []


def test_row_has_a_test_or_a_reason() -> None:
    """A row without a test gives the reason."""
    for row in ROWS:
        if row[3] == "none":
            assert any(marker in row[1] for marker in REASON_MARKERS), row
        elif row != HEADER:
            assert all(is_test(node.strip("`")) for node in row[3].split()), row


def test_page_mentions_only_existing_routes() -> None:
    """Each route is in openapi.json; `/v1/me/…` stands for all routes with this prefix."""
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
    mentioned = set(re.findall(r"(?<![\w…])(/v1/[\w/{}-]+…?)", TEXT))

    unknown = {
        route
        for route in mentioned - set(paths)
        if not (route.endswith("…") and any(path.startswith(route[:-1]) for path in paths))
    }

    assert len(mentioned) > 20
    assert unknown == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_reference_tests_import_only_public_clients(path: Path) -> None:
    """Users have HTTP, WebSocket, `boto3` and `redis`, but no code of the product."""
    source = path.read_text(encoding="utf-8")
    allowed = TEST_SUPPORT | SERVER_STARTER if path == FOLDER / "conftest.py" else TEST_SUPPORT

    foreign = {name for name in list_imports(source) if not is_public(name)}

    assert foreign <= allowed
    assert "__import__" not in source


@pytest.mark.parametrize(
    "source",
    [
        "import chatserver",
        "import workers.delivery_repair as repair",
        "def f():\n    from chatserver.domain import ids",
        "import importlib",
        "from . import support",
        "from tests.support.stack import Stack",
    ],
)
def test_import_of_the_product_is_detected(source: str) -> None:
    """All forms of an import are detected."""
    assert not {name for name in list_imports(source) if is_public(name)}
