"""Archivable entries in the `messages` table: reads by time, deletion, and restoring of items.

Owns the attribute `restored` (N): the Unix time in seconds until which a restored item stays in the
table. `chatserver.warm.messages.messages` defines the other attributes. A chat's entries
are archived in seq order, oldest first. An archived item is deleted only if it is not restored, and
has not changed since it was read. TTL deletes an item at its `ttl`
(`chatserver.warm.messages.ttl`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from chatserver.domain.clock import Clock, SystemClock
from chatserver.errors import CorruptData, Unavailable
from chatserver.protocol import expired_messages
from chatserver.protocol.frames import Message
from chatserver.task_groups import map_concurrently
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr, Condition, Raw
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table
from chatserver.warm.messages import removed_message_markers
from chatserver.warm.messages.chat_partition_reads import ChatPartitionReads
from chatserver.warm.messages.checksums import Verdict, verify
from chatserver.warm.messages.long_bodies import Bodies, NoBodies, get_object_key
from chatserver.warm.messages.messages import (
    PersistItem,
    decode_each,
    decode_item,
    decode_items,
    encode_item,
)
from chatserver.warm.messages.seq_search import TS_MAX
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.messages.ttl import find_ttl
from chatserver.warm.schema.tables import MESSAGES
from chatserver.warm.schema.tables import MessageField as Field

# Maximum bytes of message bodies that one call of `list_consecutive` loads from S3.
RUN_BYTES_MAX = 16_777_216


class ArchivableRun(NamedTuple):
    """Entries in order of seq. `ttls` has their TTL times by seq, `receivers` their receivers."""

    entries: list[Message]
    ttls: dict[int, int | None]
    receivers: dict[int, str]  # direct messages only


class CheckedItem(NamedTuple):
    """A decoded item or removal marker, and the result of its checksum verification."""

    ts: int
    message: Message | None  # None: the item is invalid
    verdict: Verdict


class ArchivableEntries:
    """Repository of archivable items in the `messages` table."""

    def __init__(
        self,
        client: DynamoClient,
        clock: Clock | None = None,
        shards: ShardedChats | None = None,
        bodies: Bodies | None = None,
    ) -> None:
        self._client = client
        self._bodies = bodies or NoBodies()
        self._clock = clock or SystemClock()
        self._table = Table(client, MESSAGES)
        self._rows = ChatPartitionReads(client, self._clock, shards)

    async def list_between(
        self, chat: str, from_ts: int, to_ts: int, limit: int | None = None
    ) -> list[Message]:
        """Return at most `limit` stored entries in ``[from_ts, to_ts]``, oldest first.

        Strongly consistent.
        """
        return await decode_items(await self._read(chat, from_ts, to_ts, limit), self._bodies)

    async def list_without_ttl(
        self, chat: str, from_ts: int, to_ts: int, limit: int | None = None
    ) -> list[Message]:
        """Return the entries in ``[from_ts, to_ts]`` that have no `ttl`, oldest first.

        Cost: the same as for reading all entries in that range.
        """
        items = await self._read(chat, from_ts, to_ts, limit, Attr(Field.TTL).is_absent)
        return await decode_items(items, self._bodies)

    async def list_changes(self, chat: str, after_ts: int) -> list[Message]:
        """Return the entries after `after_ts` that change other entries, oldest first.

        Cost: the same as for reading all entries after `after_ts`.
        """
        items = await self._read(chat, after_ts + 1, TS_MAX, None, Attr(Field.TARGET).exists)
        return await decode_items(items, self._bodies)

    async def list_checked(
        self, chat: str, from_ts: int, to_ts: int, limit: int | None = None
    ) -> list[CheckedItem]:
        """Return the items in ``[from_ts, to_ts]`` with checksum results, oldest first.

        Strongly consistent. An invalid item does not raise an error.
        """
        items = await self._read(chat, from_ts, to_ts, limit)
        checked = await asyncio.gather(*map(self._check_whole, items))
        return [entry for entry in checked if entry is not None]

    async def _check_whole(self, item: Item) -> CheckedItem | None:
        """Verify an item and its body; return None if it was archived after `item` was read."""
        if get_object_key(item) is None:
            return _check(item, decode_item)
        try:
            (message,) = await decode_each([item], self._bodies)
        except (CorruptData, Unavailable):
            return CheckedItem(int(item[Field.TS]["N"]), None, "wrong")
        if message is None:
            return None
        return CheckedItem(message.ts, message, verify(item, message))

    async def list_markers(
        self, chat: str, from_ts: int, to_ts: int, limit: int | None = None
    ) -> list[CheckedItem]:
        """Return the markers of expired and lost messages in ``[from_ts, to_ts]``, as tombstones.

        See `list_checked`.
        """
        items = await self._read(removed_message_markers.get_partition(chat), from_ts, to_ts, limit)
        return [_check(item, removed_message_markers.decode_marker) for item in items]

    async def list_consecutive(
        self, chat: str, after_seq: int, after_ts: int, to_ts: int, limit: int
    ) -> ArchivableRun:
        """Return consecutive entries from seq ``after_seq + 1`` on, up to `to_ts`.

        `after_ts` is the ts of entry `after_seq`. An item that TTL has deleted is returned as a
        tombstone if it has a marker; otherwise, the result ends before it. Expired entries that TTL
        has not deleted are returned unchanged. The result also ends after about `RUN_BYTES_MAX`
        bytes of bodies in S3.
        """
        items = await self._read(chat, after_ts + 1, to_ts, limit)
        fitting = _limit_bytes(items)
        is_cut = len(items) == limit or len(fitting) < len(items)
        end = int(fitting[-1][Field.TS]["N"]) if is_cut else to_ts
        by_seq = {message.seq: message for message in await decode_items(fitting, self._bodies)}
        marker_items = await self._read(
            removed_message_markers.get_partition(chat), after_ts + 1, end, None
        )
        by_seq = {
            message.seq: message
            for message in map(removed_message_markers.decode_marker, marker_items)
        } | by_seq
        run: list[Message] = []
        while len(run) < limit and (entry := by_seq.get(after_seq + 1 + len(run))) is not None:
            run.append(entry)
        ttls = {int(item[Field.SEQ]["N"]): find_ttl(item) for item in items}
        receivers = {
            int(item[Field.SEQ]["N"]): item[Field.RECEIVER]["S"]
            for item in items
            if Field.RECEIVER in item
        }
        return ArchivableRun(run, ttls, receivers)

    async def find_oldest(self, chat: str) -> Message | None:
        """Return the oldest of the chat's entries that are still in the table."""
        entries = await self.list_between(chat, 0, TS_MAX, 1)
        return entries[0] if entries else None

    async def _read(
        self,
        partition: str,
        from_ts: int,
        to_ts: int,
        limit: int | None,
        where: Condition | None = None,
    ) -> list[Item]:
        if from_ts > to_ts:
            return []
        span = Span(MESSAGES, partition, between=(from_ts, to_ts))
        return await self._rows.list(span, limit, where=where)

    async def remove(self, entries: Sequence[Message], in_flight_max: int) -> int:
        """Delete the items of `entries`; return how many were kept.

        An item is kept if it has changed since it was read, or if it is restored. A message that
        will expire later is kept too, because its body has no other copy.
        """
        now_s = self._clock.time()

        async def remove(entry: Message) -> bool:
            ends = entry.expires_at is not None and not expired_messages.has_expired(entry, now_s)
            if ends and not entry.deleted:
                return False
            return await self._remove(entry)

        removed = await map_concurrently(
            remove, entries, in_flight_max=in_flight_max, name="remove-archived"
        )
        return len(removed) - sum(removed)

    async def _remove(self, entry: Message) -> bool:
        is_unchanged = Attr(Field.REV).is_absent | (Attr(Field.REV) == (entry.rev or 1))
        now_s = int(self._clock.time())
        is_archived = Attr(Field.RESTORED).is_absent | (Attr(Field.RESTORED) <= now_s)
        item_key = await self._rows.build_key(entry.chat, entry.ts)
        try:
            removed = await self._table.delete(item_key, "old", if_=is_unchanged & is_archived)
        except ConditionFailed:
            return False
        if (key := get_object_key(removed)) is not None:
            await self._bodies.drop(key)
        return True

    async def restore(self, item: PersistItem, until: int) -> float:
        """Restore the item of an archived entry; return the write units consumed.

        `until` is the end of the restore, a Unix time in seconds.

        Guarantees:
            Idempotent. A newer version of the item is not overwritten.
        """
        (short,) = await self._bodies.offload([encode_item(item)])
        encoded = await self._rows.add_partition_key(short)
        is_older = Attr(Field.REV).is_absent | (Attr(Field.REV) <= Raw(encoded[Field.REV]))
        put = self._table.put_action(encoded, {Field.RESTORED: until}, if_=is_older)["Put"]
        try:
            response = await self._client.call(
                "put_item", put | {"ReturnConsumedCapacity": "TOTAL"}
            )
        except ConditionFailed:
            return 1.0
        return float(response.get("ConsumedCapacity", {}).get("CapacityUnits", 1.0))


def _check(item: Item, decode: Callable[[Item], Message]) -> CheckedItem:
    ts = int(item[Field.TS]["N"])
    try:
        message = decode(item)
    except CorruptData:
        return CheckedItem(ts, None, "wrong")
    return CheckedItem(ts, message, verify(item, message))


def _limit_bytes(items: list[Item]) -> list[Item]:
    """Return the first items, at least one, with at most `RUN_BYTES_MAX` bytes of bodies in S3."""
    remaining = RUN_BYTES_MAX
    for index, item in enumerate(items):
        remaining -= int(item[Field.BODY_BYTES]["N"]) if Field.BODY_BYTES in item else 0
        if remaining < 0 and index:
            return items[:index]
    return items
