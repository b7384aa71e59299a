"""Migration 6: backfill of `ttl` in messages that expire."""

from __future__ import annotations

from typing import Final

from chatserver.warm.messages.ttl import MENDED_BY, mend_ttl
from chatserver.warm.schema.migrations.steps import Migration
from chatserver.warm.schema.tables import MESSAGES

TTL_FILLED: Final = Migration(
    number=6,
    name="ttl-filled",
    kind="fill",
    idea="removal by TTL",
    table=MESSAGES,
    why="`ttl` in all messages that expire",
    mend=mend_ttl,
    reads=MENDED_BY,
)
