"""The table's TTL reads `ttl` instead of `expires_at`.

First what older processes wrote since the fill is found. Then TTL is switched off, and on again
with the other attribute, for which AWS wants up to an hour: meanwhile nothing is removed, and
nobody notices, because readers tell by themselves what has expired.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm import versions
from chatserver.warm.migrations.steps import Migration
from chatserver.warm.removal import MENDED_BY, mend_ttl
from chatserver.warm.tables import MESSAGES

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
