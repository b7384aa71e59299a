"""The figures in docs/performance.md are those of the published runs."""

from __future__ import annotations

import json

from tests.benchmarks.peers.report import render
from tests.unit.docs.markdown import ROOT


def test_comparison_with_other_servers_is_that_of_the_published_run() -> None:
    """Nobody edits the tables: `python -m tests.benchmarks.peers` prints them."""
    folder = ROOT / "docs"
    figures = json.loads((folder / "performance" / "peers.json").read_text("utf-8"))

    tables = render(figures)

    assert tables in (folder / "performance.md").read_text("utf-8")
