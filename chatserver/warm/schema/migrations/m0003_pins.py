"""Migration 3: pinned messages, items in `directory` with the sort key prefix ``pin``.

The tables do not change. Processes write such items from now on. Older releases may keep running:
none of their queries reads this prefix.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm.schema import versions
from chatserver.warm.schema.migrations.steps import Migration
from chatserver.warm.schema.tables import DIRECTORY

PINS_ALLOWED: Final = Migration(
    number=versions.PINS,
    name="pins",
    kind="expand",
    idea="pinned messages",
    table=DIRECTORY,
    why="rows of pinned messages",
)
