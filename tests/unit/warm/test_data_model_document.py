"""docs/data-model.md lists all tables, indexes and attributes, with existing links."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from chatserver.feature_modules import iter_feature_modules
from chatserver.warm.schema import directory_attributes, tables

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "data-model.md"
LINK = re.compile(r"\[`([\w.]+)`\]\(([^)]+)\)")
FIELDS = {
    name
    for module in (tables, directory_attributes, *iter_feature_modules("tables"))
    for owner in vars(module).values()
    if isinstance(owner, type) and owner.__name__.endswith("Field")
    for constant, name in vars(owner).items()
    if constant.isupper()
}
BLOCKS = [
    "composite sort keys",
    "tenant prefix",
    "sparse indexes",
    "TTL",
    "TTL archive through Streams",
    "vertical partitioning",
    "write sharding",
    "minimal projections",
]
INDEXES = {index.name for table in tables.TABLES for index in table.indexes}


def test_data_model_document_lists_every_table_index_and_attribute() -> None:
    """Every stored attribute is documented."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## DynamoDB")[2]

    names = FIELDS | INDEXES | {t.name for t in tables.TABLES}
    assert [name for name in sorted(names) if f"`{name}`" not in section] == []


def test_access_patterns_link_existing_functions_calls_and_tests() -> None:
    """Each row links the implementation and its tests."""
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.partition("| pattern | on |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    paths = msgspec.json.decode((ROOT / "docs" / "openapi.json").read_bytes())["paths"]

    assert len(rows) == 9
    for row in rows:
        _, pattern, _, _, function, http, tests, _ = row.split("|")
        for cell, is_wanted in ((function, r"def {}\b"), (tests, r"def {}\(")):
            links = LINK.findall(cell)
            assert links, (pattern, cell)
            for name, path in links:
                source = (DOCUMENT.parent / path).read_text(encoding="utf-8")
                assert re.search(is_wanted.format(name.rpartition(".")[2]), source), name
        calls = re.findall(r"`(?:GET )?([/…][^`?]*)", http)
        assert calls, pattern
        for call in calls:
            assert call.replace("…", "/v1/chats/{chat}") in paths, call


def test_building_blocks_are_complete_and_link_existing_tests() -> None:
    """Each row has the use, the reason, the cost and the tests."""
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.partition("| block | where |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]

    assert [row[0] for row in rows] == BLOCKS
    for name, where, why, cost, tests in rows:
        assert where and why and cost, name
        links = LINK.findall(tests)
        assert links, name
        for test, path in links:
            source = (DOCUMENT.parent / path).read_text(encoding="utf-8")
            assert re.search(rf"def {test}\(", source), test
