"""Reads of a chat's items across its partitions. All reads of a chat use this module.

`chatserver.domain.write_sharding` maps entries to partitions, based on the chat's *layout*: time
ranges, each with a constant number of shards. A chat that has never been sharded is read with the
given Query. A sharded chat is read by these time ranges; the partitions of a range are read in
parallel and merged by ts. A page token contains a ts, so it remains valid after partitions are
added.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Collection
from typing import Any, Unpack

from chatserver.domain.clock import Clock
from chatserver.domain.write_sharding import (
    Layout,
    Layouts,
    PeriodRange,
    ShardMerge,
    get_partition_chat,
)
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.paging import PartitionRows, RowChunk, RowSource, Span, Token
from chatserver.warm.dynamo.table import Selection, Table
from chatserver.warm.messages.seq_search import TS_MAX
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.schema.tables import MESSAGES
from chatserver.warm.schema.tables import MessageField as Field

_DIGITS = 20  # number of digits of the ts in sort keys of index `status`


class ChatPartitionReads:
    """Locates and reads the items of chats."""

    def __init__(
        self,
        client: DynamoClient,
        clock: Clock | None = None,
        shards: ShardedChats | None = None,
    ) -> None:
        """`shards` is the process's `ShardedChats`; the default is a new one."""
        self._client = client
        self._table = Table(client, MESSAGES)
        self._shards = shards or ShardedChats(client, clock)

    async def get_layouts(self, upto_ts: int) -> Layouts:
        """Return the sharding layouts for entries with a ts up to `upto_ts`. Raises Unavailable."""
        return await self._shards.get_for_writing(upto_ts)

    async def build_key(self, chat: str, ts: int) -> Item:
        """Return the key of an entry that has already been written."""
        return build_key(await self._shards.get_for_keys(ts), chat, ts)

    async def add_partition_key(self, item: Item) -> Item:
        """Return an entry's item with its shard's partition key."""
        return add_partition_key(await self._shards.get_for_writing(int(item[Field.TS]["N"])), item)

    async def list_keys(self, positions: Collection[tuple[str, int]]) -> list[Item]:
        """Return the keys of entries already written, given their ``(chat, ts)``."""
        if not positions:
            return []
        layouts = await self._shards.get_for_keys(max(ts for _, ts in positions))
        return [build_key(layouts, chat, ts) for chat, ts in positions]

    async def open(
        self, span: Span, start: Token | None = None, **options: Unpack[Selection]
    ) -> RowSource:
        """Start reading a key range of a chat, in the table or in an index partitioned by chat.

        `start` is a page token.

        Raises:
            BadRequest: the token belongs to another query.
            Unavailable: the layouts cannot be read.
        """
        layout = (await self._shards.get_for_reading(_get_last_ts(span))).of(span.partition)
        if not layout:
            query = self._table.build_query(span, **options)
            return PartitionRows(self._client, span, query, start)
        return _MergedRows(self._table, span, options, layout, start)

    async def list(self, span: Span, count: int | None, **options: Unpack[Selection]) -> list[Item]:
        """Return the first `count` items in a key range (None: all). May take several Queries.

        Raises Unavailable.
        """
        source = await self.open(span, **options)
        items: list[Item] = []
        while True:
            remaining = ALL_AT_ONCE if count is None else count - len(items)
            rows, _, after = await source.read(remaining)
            items += rows
            if after is None or (count is not None and len(items) >= count):
                return items


ALL_AT_ONCE = 4096  # maximum rows per Query, which also ends after 1 MB


def build_key(layouts: Layouts, chat: str, ts: int) -> Item:
    return {Field.CHAT: {"S": layouts.get_partition(chat, ts)}, Field.TS: {"N": str(ts)}}


def add_partition_key(layouts: Layouts, item: Item) -> Item:
    """Return an entry's item with its shard's partition key."""
    chat = item[Field.CHAT]["S"]
    if layouts.of(chat):
        return {**item, Field.CHAT: {"S": layouts.get_partition(chat, int(item[Field.TS]["N"]))}}
    return item


def get_row_chat(row: Item) -> str:
    """Return the chat id of an item, even if the item is in a shard's partition."""
    return get_partition_chat(row[Field.CHAT]["S"])


class _MergedRows:
    """Rows of a sharded chat, merged by ts."""

    def __init__(
        self,
        table: Table,
        span: Span,
        options: Selection,
        layout: Layout,
        start: Token | None,
    ) -> None:
        self._table = table
        self._span = span = _with_bounds(span)
        self._options = options
        self._is_ascending = not options.get("is_newest_first", False)
        low, high = _get_ts_range(span)
        if start is not None:
            span.build_start_key(start)  # raises BadRequest if the token is from another query
            ts = int(start[Field.TS])
            low, high = (max(low, ts + 1), high) if self._is_ascending else (low, min(high, ts - 1))
        self._pieces = layout.split_by_period(
            span.partition, low, high, is_ascending=self._is_ascending
        )[::-1]
        self._merge: ShardMerge[Item] | None = None
        self._piece = PeriodRange(low, high, ())
        self._starts: dict[int, Item] = {}

    def build_token(self, row: Item) -> Token:
        return self._build_token_at(int(row[Field.TS]["N"]))

    def _build_token_at(self, ts: int) -> Token:
        sort = {name: _sort_at(self._span, ts) for name in self._span.names}
        return {**sort, Field.CHAT: self._span.partition, Field.TS: ts}

    async def read(self, limit: int) -> RowChunk:
        """Return the next rows by ts. If none are buffered, query the partitions first."""
        if self._merge is None:
            if not self._pieces:
                return RowChunk([], 0, None)
            self._piece = self._pieces.pop()
            self._merge = ShardMerge(len(self._piece.partitions), is_ascending=self._is_ascending)
        merge, scanned = self._merge, 0
        if not merge.has_rows:
            scanned = await self._read_more(merge, limit)
        merged = merge.pop_rows(limit)
        rows = [row for _, row in merged]
        if merge.has_rows:
            return RowChunk(rows, scanned, self._build_token_at(merged[-1][0]))
        if merge.upto is not None:
            return RowChunk(rows, scanned, self._build_token_at(merge.upto))
        self._merge, self._starts = None, {}
        if not self._pieces:
            return RowChunk(rows, scanned, None)
        end = self._piece.high if self._is_ascending else self._piece.low
        return RowChunk(rows, scanned, self._build_token_at(end))

    async def _read_more(self, merge: ShardMerge[Item], limit: int) -> int:
        share = compute_share(limit, len(self._piece.partitions))
        unread = merge.list_unread_streams()
        responses = await asyncio.gather(*(self._query_one(number, share) for number in unread))
        scanned = 0
        for number, response in zip(unread, responses, strict=True):
            last: Item | None = response.get("LastEvaluatedKey")
            if last is not None:
                self._starts[number] = last
            upto = None if last is None else _get_ts(last)
            merge.add_rows(number, ((_get_ts(row), row) for row in response["Items"]), upto)
            scanned += response.get("ScannedCount", len(response["Items"]))
        return scanned

    async def _query_one(self, number: int, limit: int) -> dict[str, Any]:
        piece = self._piece
        low, high = _sort_at(self._span, piece.low), _sort_at(self._span, piece.high)
        between = (low, high)
        part = Span(self._span.table, piece.partitions[number], self._span.index, between)  # type: ignore[arg-type]  # both of one type
        start = self._starts.get(number)
        query = self._table.build_query(part, limit=limit, start=start, **self._options)
        return await self._table.client.call("query", query)


def compute_share(limit: int, shards: int) -> int:
    """Return how many rows to read per shard, so that all shards together usually yield `limit`."""
    mean = limit / shards
    return min(limit, math.ceil(mean + 2 * math.sqrt(mean)) + 1)


def _get_ts(row: Item) -> int:
    return int(row[Field.TS]["N"])


def _with_bounds(span: Span) -> Span:
    if span.prefix is None:
        return span
    ends = (f"{span.prefix}{ts:0{_DIGITS}d}" for ts in (0, TS_MAX))
    return dataclasses.replace(span, prefix=None, between=(next(ends), next(ends)))


def _get_ts_range(span: Span) -> tuple[int, int]:
    assert span.table is MESSAGES and span.between is not None
    low, high = span.between
    return (int(str(low)[-_DIGITS:]), int(str(high)[-_DIGITS:]))


def _get_last_ts(span: Span) -> int:
    return TS_MAX if span.between is None else int(str(span.between[1])[-_DIGITS:])


def _sort_at(span: Span, ts: int) -> int | str:
    assert span.between is not None
    low = span.between[0]
    return ts if isinstance(low, int) else f"{low[:-_DIGITS]}{ts:0{_DIGITS}d}"
