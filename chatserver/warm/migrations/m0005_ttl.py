"""Attribute `ttl`: when DynamoDB may remove a message's item.

Until now TTL read `expires_at`, which is the end of a message's text. Items carry both from here
on, so that items can be removed for their age, too.
"""

from __future__ import annotations

from typing import Final

from chatserver.warm import versions
from chatserver.warm.migrations.steps import Migration
from chatserver.warm.tables import MESSAGES

TTL_ALLOWED: Final = Migration(
    number=versions.TTL,
    name="ttl",
    kind="expand",
    idea="removal by TTL",
    table=MESSAGES,
    why="`ttl` in messages that are to be removed",
)
