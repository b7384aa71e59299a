"""docs/limits.md lists every limit with its current default and a test."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from chatserver.config import RateLimit, Settings, list_sections

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
_ROW = re.compile(
    r"^\| [^|]+ \| `([\w.]+)\.(\w+)` \| ([^|]+) \| [^|]+ \| `test_\w+` \|$", re.MULTILINE
)
ROWS: list[tuple[str, str, str]] = _ROW.findall(TEXT)
_BOUND = re.compile(r"_(max|burst|per_s)$")
# Internal limits, which no client can reach.
INTERNAL = {
    ("warm", "body_inline_bytes_max"),
    ("archive", "cache_bytes_max"),
    ("audit", "read_units_per_s"),
    ("archive", "segment_entries_max"),
}


@pytest.mark.parametrize(("section", "name", "default"), ROWS)
def test_limits_document_has_settings_with_their_defaults(
    section: str, name: str, default: str
) -> None:
    """The document shows the current defaults."""
    if name.isupper():  # a constant, in a module below `chatserver` or `workers`
        package = "" if section.startswith("workers.") else "chatserver."
        value = getattr(importlib.import_module(package + section), name)
    else:
        value = getattr(getattr(Settings(), section), name)

    assert (str(value) if isinstance(value, RateLimit) else float(value)) == (
        default if isinstance(value, RateLimit) else float(default)
    )


def test_limits_document_has_no_invalid_row() -> None:
    """A row that the pattern does not match would not be checked."""
    rows = [line for line in TEXT.splitlines() if re.match(r"\| [a-z].*\| `[\w.]+\.\w+` \|", line)]

    assert len(rows) == len(ROWS)


def test_limits_document_lists_every_limit() -> None:
    """A new setting with a limit needs a row."""
    bounds = {
        (section, name)
        for section, kind in list_sections().items()
        for name in kind.model_fields
        if section == "limits" or _BOUND.search(name)
    }

    assert bounds - INTERNAL <= {(section, name) for section, name, _ in ROWS}
