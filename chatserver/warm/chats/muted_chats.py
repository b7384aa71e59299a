"""Muted chats: attribute `quiet` of a member's item in table `directory`.

Its value is the time at which the mute ends (ms since 1970).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chatserver.config import Warm
from chatserver.domain.ids import DIRECT_PREFIX, ChatId, UserId
from chatserver.domain.membership_rules import NOT_A_MEMBER
from chatserver.errors import NotFound
from chatserver.warm.chats import directory_items
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.items import find_item
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import DirectoryField as Field

FOR_EVER_MS: Final = 2**53  # muted until changed


class MutedChats:
    """Reads which chats a user has muted. The `chat_preferences` feature writes the attribute."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    async def get_until(self, chat: ChatId, user: UserId) -> int:
        """Return when the user's mute of a chat ends (ms since 1970), or 0 if it is not muted.

        Raises:
            NotFound: there is no such chat, or the user is not a member.
        """
        row = await find_item(
            self._client,
            self._table,
            directory_items.row_key(
                directory_items.chat_key(chat), directory_items.member_key(user)
            ),
        )
        if row is None:
            raise NotFound(NOT_A_MEMBER)
        return int(row[Field.QUIET]["N"]) if Field.QUIET in row else 0

    async def find_unmuted(self, chat: ChatId, users: Sequence[UserId], now: float) -> set[UserId]:
        """Return which of `users` are members and have not muted the chat. Strongly consistent.

        In a direct chat all `users` count as members, because a new direct chat may have no items
        yet. `now` is in seconds since 1970. Cost: one BatchGetItem per 100 users.
        """
        key = directory_items.chat_key(chat)
        keys = [directory_items.row_key(key, directory_items.member_key(user)) for user in users]
        rows = await get_items(self._client, self._table, keys)
        members: set[UserId] = set()
        quiet: set[UserId] = set()
        for row in rows:
            user = UserId(row[Field.SK]["S"].removeprefix(directory_items.MEMBER_PREFIX))
            members.add(user)
            if Field.QUIET in row and int(row[Field.QUIET]["N"]) > now * 1000:
                quiet.add(user)
        return (set(users) if chat.startswith(DIRECT_PREFIX) else members) - quiet
