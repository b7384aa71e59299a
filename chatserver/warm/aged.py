"""Old entries of table `messages`, for who moves them away: by time, with what each one's item is.

Owns nothing: the items are those of `chatserver.warm.messages`. The archive takes a chat's oldest
entries in order of seq and removes an item only if it still is what it took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from chatserver.config import Warm
from chatserver.domain.clock import Clock, SystemClock
from chatserver.protocol import expiry
from chatserver.protocol.frames import Message
from chatserver.warm import markers
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.messages import decode_item
from chatserver.warm.paging import Span
from chatserver.warm.seqsearch import TS_MAX
from chatserver.warm.tables import MESSAGES
from chatserver.warm.tables import MessageField as Field


class AgedMessages:
    """Reads and removes items of table `messages`."""

    def __init__(self, client: DynamoClient, settings: Warm, clock: Clock | None = None) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock or SystemClock()
        self._table = MESSAGES.name_in(settings)

    async def list_between(
        self, chat: str, from_ts: int, to_ts: int, limit: int | None = None
    ) -> list[Message]:
        """Return the entries that have items in ``[from_ts, to_ts]``, as stored, oldest first.

        Consistent. Without `limit` all of them.
        """
        return [decode_item(item) for item in await self._read(chat, from_ts, to_ts, limit)]

    async def list_run(
        self, chat: str, after_seq: int, after_ts: int, to_ts: int, limit: int
    ) -> list[Message]:
        """Return the run of entries that follows an entry, up to `to_ts`, in rising seq.

        Contiguous from ``after_seq + 1`` on; it ends before a hole that no marker explains. An
        entry whose item TTL has removed is its tombstone. As stored: what has expired is not told
        from what has not.
        """
        items = await self._read(chat, after_ts + 1, to_ts, limit)
        end = int(items[-1][Field.TS]["N"]) if len(items) == limit else to_ts
        held = {message.seq: message for message in map(decode_item, items)}
        gone = await self._read(markers.partition_of(chat), after_ts + 1, end, None)
        held = {message.seq: message for message in map(markers.decode_marker, gone)} | held
        run: list[Message] = []
        while len(run) < limit and (found := held.get(after_seq + 1 + len(run))) is not None:
            run.append(found)
        return run

    async def find_oldest(self, chat: str) -> Message | None:
        """Return the oldest entry that has an item."""
        found = await self.list_between(chat, 0, TS_MAX, 1)
        return found[0] if found else None

    async def _read(
        self, partition: str, from_ts: int, to_ts: int, limit: int | None
    ) -> list[Item]:
        if from_ts > to_ts:
            return []
        span = Span(MESSAGES, partition, between=(from_ts, to_ts))
        request: dict[str, Any] = {**span.query(self._settings), "ConsistentRead": True}
        items: list[Item] = []
        while True:
            if limit is not None:
                request["Limit"] = limit - len(items)
            answer = await self._client.call("query", request)
            items += answer["Items"]
            last = answer.get("LastEvaluatedKey")
            if last is None or (limit is not None and len(items) >= limit):
                return items
            request["ExclusiveStartKey"] = last

    async def remove(self, entries: Sequence[Message], in_flight_max: int) -> int:
        """Remove the items of entries that are still as given; return how many stay.

        One that was changed since stays, and so does one that has yet to expire: its text is
        nowhere else.
        """
        slots = asyncio.Semaphore(in_flight_max)
        now_s = self._clock.time()

        async def remove(entry: Message) -> bool:
            ends = entry.expires_at is not None and not expiry.has_expired(entry, now_s)
            if ends and not entry.deleted:
                return False
            async with slots:
                return await self._remove(entry)

        removed = await asyncio.gather(*map(remove, entries))
        return len(removed) - sum(removed)

    async def _remove(self, entry: Message) -> bool:
        request = {
            "TableName": self._table,
            "Key": {Field.CHAT: {"S": entry.chat}, Field.TS: {"N": str(entry.ts)}},
            "ConditionExpression": "attribute_not_exists(#rev) OR #rev = :rev",
            "ExpressionAttributeNames": {"#rev": Field.REV},
            "ExpressionAttributeValues": {":rev": {"N": str(entry.rev or 1)}},
        }
        try:
            await self._client.call("delete_item", request)
        except ConditionFailed:
            return False
        return True
