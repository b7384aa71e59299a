"""One user's data in DynamoDB, for exports and erasures.

A user's items are in the partition `u#<user>`, which also contains pointers to items in other
partitions, for example `file#<id>` or `reported#<chat>#<seq>`. The user's messages are found
through the `sender` index. This index is eventually consistent, so a single query may miss recent
messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from chatserver.config import Warm
from chatserver.domain.archive_segments import TRAIL_PREFIX
from chatserver.protocol.frames import Message
from chatserver.warm.chats.directory_items import chat_key, member_key, row_key, user_key
from chatserver.warm.chats.moderation import REPORT_PREFIX
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import find_item, iter_pages
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.messages.chat_partition_reads import ChatPartitionReads
from chatserver.warm.messages.long_bodies import Bodies, NoBodies
from chatserver.warm.messages.message_repository import decode_items
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES, SENDER_INDEX, DirectoryField
from chatserver.warm.schema.tables import MessageField as Field

PAGE_MAX: Final = 100
FILE_PREFIX: Final = "file#"
REPORTED_PREFIX: Final = "reported#"


class PersonalRows:
    """Reads and deletes a user's items."""

    def __init__(
        self,
        *,
        client: DynamoClient,
        settings: Warm,
        shards: ShardedChats | None = None,
        bodies: Bodies | None = None,
    ) -> None:
        self._client = client
        self._bodies = bodies or NoBodies()
        self._settings = settings
        self._rows = ChatPartitionReads(client, None, shards)
        self._directory = DIRECTORY.name_in(settings)
        self._messages = MESSAGES.name_in(settings)

    # The `directory` table

    async def list_names(self, user: str, prefix: str) -> list[str]:
        """Return sort keys that start with `prefix`, without the prefix. Strongly consistent."""
        rows = await self._list_rows(user, prefix)
        return [row[DirectoryField.SK]["S"].removeprefix(prefix) for row in rows]

    async def remove_row(self, user: str, sort: str) -> None:
        """Delete an item from the user's partition. Idempotent."""
        key = row_key(user_key(user), sort)
        await self._client.call("delete_item", {"TableName": self._directory, "Key": key})

    async def remove_rows(self, user: str) -> int:
        """Delete the items in the user's partition; return how many were deleted. Idempotent.

        The tombstone in place of the user's item, and the pointers to archived messages, are kept.
        """
        rows = await self._list_rows(user, "")
        sorts = [row[DirectoryField.SK]["S"] for row in rows]
        other_keys = (user_key(user), TRAIL_PREFIX)
        deleted = [sort for sort in sorts if not sort.startswith(other_keys)]
        for sort in deleted:
            await self.remove_row(user, sort)
        return len(deleted)

    async def remove_archive_pointers(self, user: str) -> None:
        """Delete the pointers to archived messages. Idempotent.

        Call this after the archived messages have been erased.
        """
        for name in await self.list_names(user, TRAIL_PREFIX):
            await self.remove_row(user, TRAIL_PREFIX + name)

    async def _list_rows(self, user: str, prefix: str) -> list[Item]:
        span = Span(DIRECTORY, user_key(user), prefix=prefix or None)
        request: dict[str, Any] = {**span.query(self._settings), "ConsistentRead": True}
        pages = iter_pages(self._client, "query", request)
        return [row async for rows in pages for row in rows]

    async def remove_membership_settings(self, chat: str, user: str) -> None:
        """Remove the user's settings from a membership item. Idempotent."""
        request = {
            "TableName": self._directory,
            "Key": row_key(chat_key(chat), member_key(user)),
            "UpdateExpression": "REMOVE #hidden, #quiet",
            "ConditionExpression": "attribute_exists(#role)",
            "ExpressionAttributeNames": {
                "#hidden": DirectoryField.HIDDEN,
                "#quiet": DirectoryField.QUIET,
                "#role": DirectoryField.ROLE,
            },
        }
        await self._update(request)

    async def remove_report_reason(self, reported: str, user: str) -> None:
        """Remove the reason from the user's report of message `<chat>#<seq>`. Idempotent."""
        chat, _, seq = reported.partition("#")
        request = {
            "TableName": self._directory,
            "Key": row_key(chat_key(chat), f"{REPORT_PREFIX}{seq}#{user}"),
            "UpdateExpression": "REMOVE #reason",
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {
                "#reason": DirectoryField.REASON,
                "#pk": DirectoryField.PK,
            },
        }
        await self._update(request)

    async def find_reason(self, reported: str, user: str) -> str:
        """Return the reason in the user's report of message `<chat>#<seq>`, or an empty string."""
        chat, _, seq = reported.partition("#")
        key = row_key(chat_key(chat), f"{REPORT_PREFIX}{seq}#{user}")
        response = await self._client.call("get_item", {"TableName": self._directory, "Key": key})
        reason: str = response.get("Item", {}).get(DirectoryField.REASON, {"S": ""})["S"]
        return reason

    async def _update(self, request: dict[str, Any]) -> None:
        with contextlib.suppress(ConditionFailed):  # the item does not exist
            await self._client.call("update_item", request)

    # Messages

    async def iter_entries(self, user: str) -> AsyncIterator[list[Message]]:
        """Yield all entries that the user has sent, oldest first, including expired entries.

        Recent entries may be missing, because the index is eventually consistent. The entries that
        are yielded are current.
        """
        span = Span(MESSAGES, user, SENDER_INDEX)
        request: dict[str, Any] = {**span.query(self._settings), "Limit": PAGE_MAX}
        async for rows in iter_pages(self._client, "query", request):
            keys = [{name: row[name] for name in MESSAGES.key.names} for row in rows]
            items = await get_items(self._client, self._messages, keys)
            own = [item for item in items if item[Field.SENDER]["S"] == user]
            entries = await decode_items(own, self._bodies)
            if entries:
                yield sorted(entries, key=lambda message: message.ts)

    async def find_entry(self, chat: str, ts: int) -> Message | None:
        """Return an entry from the `messages` table, or None. Strongly consistent."""
        item = await find_item(self._client, self._messages, await self._rows.build_key(chat, ts))
        entries = [] if item is None else await decode_items([item], self._bodies)
        return entries[0] if entries else None
