"""One user's data in DynamoDB, for exports and erasures.

A user's items are in the partition `u#<user>`, which also contains pointers to items in other
partitions, for example `file#<id>` or `reported#<chat>#<seq>`. The user's messages are found
through the `sender` index. This index is eventually consistent, so a single query may miss recent
messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from chatserver.domain.archive_segments import TRAIL_PREFIX
from chatserver.protocol.frames import Message
from chatserver.warm.chats.directory_items import chat_key, member_key, user_key
from chatserver.warm.chats.moderation import REPORT_PREFIX
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.messages.chat_partition_reads import ChatPartitionReads
from chatserver.warm.messages.long_bodies import Bodies, NoBodies
from chatserver.warm.messages.messages import decode_items
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
        client: DynamoClient,
        shards: ShardedChats | None = None,
        bodies: Bodies | None = None,
    ) -> None:
        self._bodies = bodies or NoBodies()
        self._rows = ChatPartitionReads(client, None, shards)
        self._directory = Table(client, DIRECTORY)
        self._messages = Table(client, MESSAGES)

    # The `directory` table

    async def list_names(self, user: str, prefix: str) -> list[str]:
        """Return sort keys that start with `prefix`, without the prefix. Strongly consistent."""
        rows = await self._list_rows(user, prefix)
        return [row[DirectoryField.SK]["S"].removeprefix(prefix) for row in rows]

    async def remove_row(self, user: str, sort: str) -> None:
        """Delete an item from the user's partition. Idempotent."""
        await self._directory.delete((user_key(user), sort))

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
        return [row async for rows in self._directory.iter_query(span) for row in rows]

    async def remove_membership_settings(self, chat: str, user: str) -> None:
        """Remove the user's settings from a membership item. Idempotent."""
        changes = {DirectoryField.HIDDEN: None, DirectoryField.QUIET: None}
        is_member = Attr(DirectoryField.ROLE).exists
        key = chat_key(chat), member_key(user)
        await try_write(self._directory.update(key, changes, if_=is_member))

    async def remove_report_reason(self, reported: str, user: str) -> None:
        """Remove the reason from the user's report of message `<chat>#<seq>`. Idempotent."""
        changes, exists = {DirectoryField.REASON: None}, Attr(DirectoryField.PK).exists
        await try_write(self._directory.update(_report_row(reported, user), changes, if_=exists))

    async def find_reason(self, reported: str, user: str) -> str:
        """Return the reason in the user's report of message `<chat>#<seq>`, or an empty string."""
        item = await self._directory.find(_report_row(reported, user)) or {}
        reason: str = item.get(DirectoryField.REASON, {"S": ""})["S"]
        return reason

    # Messages

    async def iter_entries(self, user: str) -> AsyncIterator[list[Message]]:
        """Yield all entries that the user has sent, oldest first, including expired entries.

        Recent entries may be missing, because the index is eventually consistent. The entries that
        are yielded are current.
        """
        span = Span(MESSAGES, user, SENDER_INDEX)
        async for rows in self._messages.iter_query(span, limit=PAGE_MAX):
            keys: list[Key] = [{name: row[name] for name in MESSAGES.key.names} for row in rows]
            items = await self._messages.get_items(keys)
            own = [item for item in items if item[Field.SENDER]["S"] == user]
            entries = await decode_items(own, self._bodies)
            if entries:
                yield sorted(entries, key=lambda message: message.ts)

    async def find_entry(self, chat: str, ts: int) -> Message | None:
        """Return an entry from the `messages` table, or None. Strongly consistent."""
        item = await self._messages.find(await self._rows.build_key(chat, ts))
        entries = [] if item is None else await decode_items([item], self._bodies)
        return entries[0] if entries else None


def _report_row(reported: str, user: str) -> Key:
    chat, _, seq = reported.partition("#")
    return chat_key(chat), f"{REPORT_PREFIX}{seq}#{user}"
