"""The script in docs/load.md is the example that the tests run."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_script_on_the_page_is_the_example_without_its_docstring() -> None:
    """A reader who copies it runs what `tests/e2e/test_load_scripts.py` runs."""
    page = (DOCS / "load.md").read_text("utf-8")
    example = (DOCS / "examples/load/pairs.py").read_text("utf-8")

    shown = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    assert shown == [example.partition("\n\n")[2]]
