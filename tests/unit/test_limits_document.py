"""docs/limits.md names settings, constants and tests that exist, and omits no bound."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from chatserver.config import RateLimit, Settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
_ROW = re.compile(
    r"^\| [^|]+ \| `([\w.]+)\.(\w+)` \| ([^|]+) \| [^|]+ \| `(test_\w+)` \|$", re.MULTILINE
)
ROWS = [(section, name, default, test) for section, name, default, test in _ROW.findall(TEXT)]
_BOUND = re.compile(r"_(max|burst|per_s)$")
# How much the product does at once, which no client can reach.
INNER = {
    ("warm", "body_inline_bytes_max"),
    ("archive", "cache_bytes_max"),
    ("audit", "read_units_per_s"),
    ("archive", "segment_entries_max"),
}


def existing_tests() -> set[str]:
    """The names of all tests of the project."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.update(re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize(("section", "name", "default", "test"), ROWS)
def test_limits_document_names_settings_with_their_defaults(
    section: str, name: str, default: str, test: str
) -> None:
    """The document shows the values in force."""
    if name.isupper():  # a constant, in a module below `chatserver` or `workers`
        package = "" if section.startswith("workers.") else "chatserver."
        value = getattr(importlib.import_module(package + section), name)
    else:
        value = getattr(getattr(Settings(), section), name)

    assert (str(value) if isinstance(value, RateLimit) else float(value)) == (
        default if isinstance(value, RateLimit) else float(default)
    )


def test_limits_document_names_tests_that_exist() -> None:
    """Each bound, and each claim in words, has its proof."""
    named = set(re.findall(r"`(test_\w+)`", TEXT))

    assert named
    assert named <= existing_tests()


def test_limits_document_has_a_full_row_for_each_setting_that_it_names() -> None:
    """A row that could not be read would go unchecked."""
    rows = [line for line in TEXT.splitlines() if re.match(r"\| [a-z].*\| `[\w.]+\.\w+` \|", line)]

    assert len(rows) == len(ROWS)


def test_limits_document_leaves_no_bound_out() -> None:
    """A new setting that bounds something is a new line."""
    bounds = {
        (section, name)
        for section, field in Settings.model_fields.items()
        for name in getattr(field.annotation, "model_fields", {})
        if section == "limits" or _BOUND.search(name)
    }

    assert bounds - INNER <= {(section, name) for section, name, _, _ in ROWS}
