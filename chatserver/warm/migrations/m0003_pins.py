"""Pinned messages: rows of a new kind in `directory`, behind the sort key prefix ``pin``.

Nothing of the tables changes. From then on processes write such rows, and those of an older release
go on beside them: none of their queries reaches into the prefix.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm import versions
from chatserver.warm.migrations.steps import Migration
from chatserver.warm.tables import DIRECTORY

PINS_ALLOWED: Final = Migration(
    number=versions.PINS,
    name="pins",
    kind="expand",
    idea="pinned messages",
    table=DIRECTORY,
    why="rows of pinned messages",
)
