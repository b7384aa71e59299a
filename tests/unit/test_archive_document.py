"""docs/archive.md lists every setting of the archive with its default."""

from __future__ import annotations

import re
from pathlib import Path

from chatserver.config import Archive

TEXT = (Path(__file__).parents[2] / "docs" / "archive.md").read_text(encoding="utf-8")


def test_archive_document_has_each_setting_with_its_default() -> None:
    """The document shows the current defaults."""
    rows = re.findall(r"^\| `CHAT_ARCHIVE_(\w+)` \| (\S+) \|", TEXT, re.MULTILINE)

    settings = Archive()
    assert {name.lower(): _comparable(value) for name, value in rows} == {
        name: _comparable(str(getattr(settings, name))) for name in Archive.model_fields
    }


def _comparable(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value.lower()
