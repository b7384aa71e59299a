"""Worked example 1: a new attribute with an index, which replaces an old attribute.

The replies to a message are found by index `thread` (`thread`, `ts`). Attribute `thread`,
"<chat>#<seq of the message>", replaces `reply_to`. docs/evolution.md explains each step.
"""

from __future__ import annotations

from typing import Any

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.table import Table
from chatserver.warm.messages.chat_partition_reads import get_row_chat
from chatserver.warm.messages.messages import PersistItem, encode_item
from chatserver.warm.schema.active_version import SchemaVersionCache
from chatserver.warm.schema.migrations.backfill import repair_item
from chatserver.warm.schema.migrations.migration import Migration, Repair
from chatserver.warm.schema.tables import MESSAGES, Index, Key
from chatserver.warm.schema.tables import MessageField as Field

THREAD = "thread"
THREAD_INDEX = Index("thread", Key(THREAD, Field.TS), since=2)
READS = (Field.CHAT, Field.TS, Field.REV, Field.REPLY_TO, THREAD)


def add_thread(item: Item) -> Repair | None:
    """Return the repair that makes `thread` match `reply_to`, or None if it already does."""
    if Field.REV not in item:  # this is not a message
        return None
    wanted = thread_of(item)
    if item.get(THREAD) == wanted:
        return None
    return Repair({THREAD: wanted}) if wanted else Repair(removes=(THREAD,))


def remove_reply_to(item: Item) -> Repair | None:
    """Return the repair that removes the old attribute, or None if the item has none."""
    return Repair(removes=(Field.REPLY_TO,)) if Field.REPLY_TO in item else None


def thread_of(item: Item) -> dict[str, str] | None:
    reply_to = item.get(Field.REPLY_TO)
    return None if reply_to is None else {"S": f"{get_row_chat(item)}#{reply_to['N']}"}


THREAD_MIGRATIONS = (
    Migration(
        number=2,
        name="thread-index",
        kind="expand",
        change="threads",
        table=MESSAGES,
        why="index `thread`: replies to a message",
        index=THREAD_INDEX,
    ),
    Migration(
        number=3,
        name="thread-fill",
        kind="fill",
        change="threads",
        table=MESSAGES,
        why="`thread` in all replies",
        repair=add_thread,
        reads=READS,
    ),
    Migration(
        number=4,
        name="thread-only",
        kind="contract",
        change="threads",
        table=MESSAGES,
        why="replies are read by index `thread` alone",
        repair=add_thread,
        reads=READS,
        oldest=2,
    ),
    Migration(
        number=5,
        name="reply-to-removed",
        kind="contract",
        change="threads",
        table=MESSAGES,
        why="replies have no `reply_to`",
        repair=remove_reply_to,
        reads=READS,
        oldest=4,
    ),
)


class Threads:
    """Replies to messages, in a release that knows migrations 2 to 5."""

    def __init__(self, client: DynamoClient, settings: Warm, clock: Clock) -> None:
        self._client = client
        self._table = MESSAGES.name_in(settings)
        self._known = SchemaVersionCache(client, clock)

    async def put(self, message: Message) -> None:
        item = encode_item(PersistItem(message, None))
        fill = self._fill_of(item, await self._known.get_version())
        item = {name: value for name, value in item.items() if name not in fill.removes}
        await self._client.call("put_item", {"TableName": self._table, "Item": item | fill.sets})

    async def edit(self, chat: str, ts: int, body: str, rev: int) -> None:
        """Change the body. The same write fills the item (a lazy fill)."""
        version = await self._known.get_version()

        def change(item: Item) -> Repair | None:
            if int(item[Field.REV]["N"]) >= rev or Field.DELETED in item:
                return None
            fill = self._fill_of(item, version)
            sets = {Field.BODY: {"S": body}, Field.REV: {"N": str(rev)}, **fill.sets}
            return Repair(sets, fill.removes)

        key = {Field.CHAT: {"S": chat}, Field.TS: {"N": str(ts)}}
        request = {"TableName": self._table, "Key": key, "ConsistentRead": True}
        item = (await self._client.call("get_item", request))["Item"]
        await repair_item(Table(self._client, MESSAGES), item, change)

    async def list_replies(self, chat: str, seq: int) -> list[int]:
        """Return the seqs of the replies to a message, with the index once it is complete."""
        if await self._known.get_version() >= 4:
            rows = await self._query("#key = :key", {THREAD: {"S": f"{chat}#{seq}"}}, "thread")
            keys = [{name: row[name] for name in MESSAGES.key.names} for row in rows]
            gets = [{"TableName": self._table, "Key": key} for key in keys]
            items = [(await self._client.call("get_item", get))["Item"] for get in gets]
        else:
            items = await self._query("#key = :key", {Field.CHAT: {"S": chat}})
            items = [item for item in items if thread_of(item) == {"S": f"{chat}#{seq}"}]
            for item in items:
                await repair_item(Table(self._client, MESSAGES), item, add_thread)
        return [int(item[Field.SEQ]["N"]) for item in items]

    def _fill_of(self, item: Item, version: int) -> Repair:
        """Return both attributes for old readers; from migration 4 on, only the new one."""
        thread = thread_of(item)
        if thread is None:
            return Repair()
        return Repair({THREAD: thread}, (Field.REPLY_TO,) if version >= 4 else ())

    async def _query(self, condition: str, key: Item, index: str | None = None) -> list[Item]:
        ((name, value),) = key.items()
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": {"#key": name},
            "ExpressionAttributeValues": {":key": value},
        }
        if index is not None:
            request["IndexName"] = index
        found: list[Item] = []
        while True:
            answer = await self._client.call("query", request)
            found += answer["Items"]
            if (last := answer.get("LastEvaluatedKey")) is None:
                return found
            request["ExclusiveStartKey"] = last
