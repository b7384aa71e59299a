"""Messages that expire, of before attribute `ttl`, get it."""

from __future__ import annotations

from typing import Final

from chatserver.warm.migrations.steps import Migration
from chatserver.warm.removal import MENDED_BY, mend_ttl
from chatserver.warm.tables import MESSAGES

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
