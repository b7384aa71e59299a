"""Migration 5: attribute `ttl`, the time at which DynamoDB may remove a message's item.

Before, TTL read `expires_at`, the expiry of the message. From now on items have both attributes, so
that TTL can also remove items by age.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm.schema import versions
from chatserver.warm.schema.migrations.steps import Migration
from chatserver.warm.schema.tables import MESSAGES

TTL_ALLOWED: Final = Migration(
    number=versions.TTL,
    name="ttl",
    kind="expand",
    idea="removal by TTL",
    table=MESSAGES,
    why="`ttl` in messages that are to be removed",
)
