"""Migration 7: the table's TTL reads `ttl` instead of `expires_at`.

A pass over all items first repairs those that older processes wrote since the fill. Then TTL is
switched off, and on again with the other attribute, which takes AWS up to an hour. Meanwhile no
item is removed; this has no visible effect, because readers check the expiry themselves.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm.messages.ttl import MENDED_BY, mend_ttl
from chatserver.warm.schema import versions
from chatserver.warm.schema.migrations.steps import Migration
from chatserver.warm.schema.tables import MESSAGES

TTL_READ: Final = Migration(
    number=versions.TTL_ONLY,
    name="ttl-only",
    kind="contract",
    idea="removal by TTL",
    table=MESSAGES,
    why="DynamoDB's TTL reads `ttl` instead of `expires_at`",
    mend=mend_ttl,
    reads=MENDED_BY,
    expiry=MESSAGES.expiry,
    oldest=versions.TTL,
)
