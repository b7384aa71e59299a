"""docs/evolution.md lists the migrations that there are."""

from __future__ import annotations

import re

from chatserver.warm.schema.migrations import MIGRATIONS
from tests.unit.docs.markdown import ROOT


def test_evolution_document_lists_each_migration_as_the_code_has_it() -> None:
    """Number, name and step; an operator looks here before he runs one."""
    text = (ROOT / "docs" / "evolution.md").read_text(encoding="utf-8")

    rows = re.findall(r"^\| (\d+) `([\w-]+)` \| (\w+) \| `(\w+)` \|", text, re.MULTILINE)

    assert [(int(number), name, step, table) for number, name, step, table in rows] == [
        (one.number, one.name, str(one.kind), one.table.name) for one in MIGRATIONS
    ]
