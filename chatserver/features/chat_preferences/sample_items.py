"""Example items of chat preferences, for the generated table documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chatserver.domain.ids import UserId
from chatserver.features.chat_preferences.warm import encode_pinned, encode_preferences
from chatserver.protocol.frames import ChatPreferences, Draft, PinnedChats
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import DIRECTORY, TableSchema

_REV: Final = 1_795_000_000_000


def sample_items(table: TableSchema) -> Iterable[Item]:
    """Return a member's preferences for a group, and their pinned chats."""
    if table is not DIRECTORY:
        return []
    preferences = ChatPreferences(
        "g-team", _REV, archived=True, muted_until=0, draft=Draft("See you at", _REV)
    )
    return [
        encode_preferences(UserId("alice"), preferences),
        encode_pinned(UserId("alice"), PinnedChats(["g-team"], _REV)),
    ]
