"""Chats of which a member wants no pushes: attribute `quiet` of the member's row, in `directory`.

It is the time (ms since 1970) until which the chat is quiet. It goes with the membership.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chatserver.config import Warm
from chatserver.domain.ids import DIRECT_PREFIX, ChatId, UserId
from chatserver.domain.membership import NOT_A_MEMBER
from chatserver.errors import NotFound
from chatserver.warm import records
from chatserver.warm.batches import get_items
from chatserver.warm.client import ConditionFailed, DynamoClient
from chatserver.warm.tables import DIRECTORY
from chatserver.warm.tables import DirectoryField as Field

FOR_EVER_MS: Final = 2**53  # quiet until it is changed


class QuietChats:
    """Reads and writes until when chats are quiet."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    async def get_until(self, chat: ChatId, user: UserId) -> int:
        """Return until when the chat is quiet for the user, in ms since 1970; 0: it is not.

        Raises:
            NotFound: no such chat, or not a member.
        """
        request = {
            "TableName": self._table,
            "Key": records.row_key(records.chat_key(chat), records.member_key(user)),
            "ConsistentRead": True,
        }
        row = (await self._client.call("get_item", request)).get("Item")
        if row is None:
            raise NotFound(NOT_A_MEMBER)
        return int(row[Field.QUIET]["N"]) if Field.QUIET in row else 0

    async def set_until(self, chat: ChatId, user: UserId, until_ms: int) -> None:
        """Make the chat quiet for the user until then; 0: no longer.

        Raises:
            NotFound: no such chat, or not a member.
        """
        request = {
            "TableName": self._table,
            "Key": records.row_key(records.chat_key(chat), records.member_key(user)),
            "UpdateExpression": "SET #quiet = :until" if until_ms else "REMOVE #quiet",
            "ConditionExpression": "attribute_exists(#role)",
            "ExpressionAttributeNames": {"#quiet": Field.QUIET, "#role": Field.ROLE},
        }
        if until_ms:
            request["ExpressionAttributeValues"] = {":until": {"N": str(until_ms)}}
        try:
            await self._client.call("update_item", request)
        except ConditionFailed:
            raise NotFound(NOT_A_MEMBER) from None

    async def find_listening(
        self, chat: ChatId, users: Sequence[UserId], now: float
    ) -> set[UserId]:
        """Return those of `users` who are members and for whom the chat is not quiet. Consistent.

        In a direct chat they are members; with its first message there may be no row yet.

        `now` is in seconds since 1970. Costs one BatchGetItem for each 100 users.
        """
        key = records.chat_key(chat)
        keys = [records.row_key(key, records.member_key(user)) for user in users]
        rows = await get_items(self._client, self._table, keys)
        members: set[UserId] = set()
        quiet: set[UserId] = set()
        for row in rows:
            user = UserId(row[Field.SK]["S"].removeprefix(records.MEMBER_PREFIX))
            members.add(user)
            if Field.QUIET in row and int(row[Field.QUIET]["N"]) > now * 1000:
                quiet.add(user)
        return (set(users) if chat.startswith(DIRECT_PREFIX) else members) - quiet
