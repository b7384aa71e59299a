"""Muted chats: attribute `quiet` of a member's item in table `directory`.

Its value is the time at which the mute ends (ms since 1970).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chatserver.domain.ids import DIRECT_PREFIX, ChatId, UserId
from chatserver.domain.membership_rules import NOT_A_MEMBER
from chatserver.errors import NotFound
from chatserver.warm.chats import directory_items
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.item_attributes import find_number
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import DirectoryField as Field

FOR_EVER_MS: Final = 2**53  # muted until changed


class MutedChats:
    """Reads which chats a user has muted. The `chat_preferences` feature writes the attribute."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    async def get_until(self, chat: ChatId, user: UserId) -> int:
        """Return when the user's mute of a chat ends (ms since 1970), or 0 if it is not muted.

        Raises:
            NotFound: there is no such chat, or the user is not a member.
        """
        key = directory_items.chat_key(chat), directory_items.member_key(user)
        row = await self._table.find(key)
        if row is None:
            raise NotFound(NOT_A_MEMBER)
        return find_number(row, Field.QUIET) or 0

    async def find_unmuted(self, chat: ChatId, users: Sequence[UserId], now: float) -> set[UserId]:
        """Return which of `users` are members and have not muted the chat. Strongly consistent.

        In a direct chat all `users` count as members, because a new direct chat may have no items
        yet. `now` is in seconds since 1970. Cost: one BatchGetItem per 100 users.
        """
        key = directory_items.chat_key(chat)
        rows = await self._table.get_items(
            [(key, directory_items.member_key(user)) for user in users]
        )
        members: set[UserId] = set()
        quiet: set[UserId] = set()
        for row in rows:
            user = UserId(row[Field.SK]["S"].removeprefix(directory_items.MEMBER_PREFIX))
            members.add(user)
            if (find_number(row, Field.QUIET) or 0) > now * 1000:
                quiet.add(user)
        return (set(users) if chat.startswith(DIRECT_PREFIX) else members) - quiet
