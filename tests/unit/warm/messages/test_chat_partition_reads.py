"""Rows of a chat read as one list, over any shards, in pages and in both directions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.config import Warm
from chatserver.domain.write_sharding import Layout, Layouts, ShardingPeriod, get_partition_chat
from chatserver.errors import BadRequest
from chatserver.warm.dynamo.client import Item
from chatserver.warm.dynamo.paging import Span, Token, read_page
from chatserver.warm.messages.chat_partition_reads import (
    ChatPartitionReads,
    add_partition_key,
    build_key,
    compute_share,
    get_row_chat,
)
from chatserver.warm.schema.tables import MESSAGES, STATUS_INDEX

LAST = 99  # timestamps are 0 to LAST; seq equals ts


class Table:
    """Table `messages` with the rows of one chat and the Query behavior of AWS.

    A Query scans at most `Limit` rows, and at most `cut` rows to simulate the limit of 1 MB.
    Rows in `filtered` do not pass its filter.
    """

    settings = Warm()

    def __init__(self, layout: Layout, stamps: Sequence[int], filtered: frozenset[int], cut: int):
        self.layouts = Layouts({"c": layout} if layout else {})
        self._filtered = filtered
        self._cut = cut
        self.queries = 0
        self._partitions: dict[str, list[Item]] = {}
        for ts in sorted(stamps):
            row = add_partition_key(self.layouts, _row(ts))
            self._partitions.setdefault(row["chatid"]["S"], []).append(row)

    async def get_for_reading(self, upto_ts: int) -> Layouts:
        """Act as the list of sharded chats too."""
        return self.layouts

    @contextlib.asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        yield

    async def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        assert operation == "query"
        self.queries += 1
        values, sort = request["ExpressionAttributeValues"], "ts"
        partition, *bounds = values.values()
        if request.get("IndexName"):
            sort = "status_ts"
        low, high = 0, LAST
        if len(bounds) == 2:
            low, high = map(_of, bounds)
        for name in (*values, *request["ExpressionAttributeNames"]):
            assert name in request["KeyConditionExpression"], (
                "DynamoDB refuses unused names and values"
            )
        assert low <= high, "DynamoDB refuses an empty range"
        rows = self._partitions.get(partition["S"], [])
        rows = [row for row in rows if low <= _of(row[sort]) <= high]
        is_ascending = request.get("ScanIndexForward", True)
        if not is_ascending:
            rows.reverse()
        if (start := request.get("ExclusiveStartKey")) is not None:
            after = _of(start[sort])
            rows = [row for row in rows if (_of(row[sort]) > after) == is_ascending]
            rows = [row for row in rows if _of(row[sort]) != after]
        size = min(request["Limit"], self._cut)
        assert size > 0, "DynamoDB refuses a limit of 0"
        page = rows[:size]
        response: dict[str, Any] = {
            "Items": [row for row in page if int(row["ts"]["N"]) not in self._filtered],
            "ScannedCount": len(page),
        }
        if len(page) == size:
            response["LastEvaluatedKey"] = page[-1]
        return response


def _of(value: dict[str, str]) -> int:
    return int(value["N"]) if "N" in value else int(value["S"][-20:])


def _row(ts: int) -> Item:
    stamp = {"S": f"active#{ts:020d}"}
    return {"chatid": {"S": "c"}, "ts": {"N": str(ts)}, "status_ts": stamp}


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Generate layouts with up to five sharding periods."""
    begins = draw(st.lists(st.integers(1, LAST), max_size=5, unique=True))
    shards = st.sampled_from([1, 2, 4, 16])
    return Layout(tuple(ShardingPeriod(begin, draw(shards)) for begin in sorted(begins)))


def reader_of(table: Table) -> ChatPartitionReads:
    """Return a reader of the table with its layouts."""
    return ChatPartitionReads(cast(Any, table), None, cast(Any, table))


def span_of(low: int, high: int, *, is_status: bool) -> Span:
    """Return a range of the table or of the index."""
    if not is_status:
        return Span(MESSAGES, "c", between=(low, high))
    if (low, high) == (0, LAST):
        return Span(MESSAGES, "c", STATUS_INDEX, prefix="active#")
    return Span(MESSAGES, "c", STATUS_INDEX, (f"active#{low:020d}", f"active#{high:020d}"))


async def _load(rows: list[Item]) -> list[int | None]:
    return [int(row["ts"]["N"]) for row in rows]


stamps = st.lists(st.integers(0, LAST), max_size=100, unique=True)
ends = st.integers(0, LAST)


@settings(deadline=None)
@given(
    layouts(),
    stamps,
    st.frozensets(ends, max_size=60),
    st.one_of(st.just([0, LAST]), st.tuples(ends, ends).map(sorted)),
    st.booleans(),
    st.booleans(),
    st.integers(1, 70),
    st.lists(st.integers(1, 9), min_size=1, max_size=9),
    st.lists(st.tuples(st.integers(1, 20), st.sampled_from([1, 2, 8])), max_size=3),
)
async def test_pages_of_a_sharded_chat_contain_each_row_once_in_order(
    layout: Layout,
    stamps: list[int],
    filtered: frozenset[int],
    ends: list[int],
    is_ascending: bool,
    is_status: bool,
    cut: int,
    limits: list[int],
    moves: list[tuple[int, int]],
) -> None:
    """Pages are full, across sharding periods, also while new periods are added."""
    table = Table(layout, stamps, filtered, cut)
    rows = reader_of(table)
    low, high = ends
    wanted = [ts for ts in sorted(stamps) if low <= ts <= high and ts not in filtered]
    found: list[int] = []
    start: Token | None = None

    for number in range(3 * LAST):
        limit = limits[number % len(limits)]
        span = span_of(low, high, is_status=is_status)
        source = await rows.open(span, start, is_newest_first=not is_ascending)
        page = await read_page(
            cast(Any, table), span, {}, _load, limit=limit, start=start, source=source
        )
        found += page.items
        start = page.next
        if start is None:
            break
        assert len(page.items) == limit
        assert start["chatid"] == "c", "tokens contain no shard"
        if moves:  # add a period that begins after all rows
            ahead, shards = moves.pop()
            now = table.layouts.of("c")
            begin = max(LAST, now.from_ts) + ahead
            table.layouts = Layouts({"c": Layout((*now.periods, ShardingPeriod(begin, shards)))})

    assert start is None
    assert found == (wanted if is_ascending else wanted[::-1])


@settings(deadline=None)
@given(layouts(), stamps, st.integers(1, 110), st.booleans(), st.integers(1, 70))
async def test_list_of_a_sharded_chat_returns_the_first_rows(
    layout: Layout, stamps: list[int], count: int, is_ascending: bool, cut: int
) -> None:
    """A Query on one partition would return the same rows."""
    table = Table(layout, stamps, frozenset(), cut)
    span = span_of(0, LAST, is_status=False)
    first_rows = await reader_of(table).list(span, count, is_newest_first=not is_ascending)
    all_rows = await reader_of(table).list(span, None, is_newest_first=not is_ascending)

    wanted = sorted(stamps, reverse=not is_ascending)
    assert await _load(first_rows) == wanted[:count]
    assert await _load(all_rows) == wanted


@settings(deadline=None)
@given(layouts(), ends)
def test_entry_is_read_with_the_key_of_its_write(layout: Layout, ts: int) -> None:
    """Readers and writers compute the same key."""
    known = Layouts({"c": layout} if layout else {})

    placed = add_partition_key(known, _row(ts))

    assert {name: placed[name] for name in ("chatid", "ts")} == build_key(known, "c", ts)
    assert get_row_chat(placed) == "c" and get_partition_chat(placed["chatid"]["S"]) == "c"
    assert {**placed, "chatid": {"S": "c"}} == _row(ts)


async def test_unsharded_chat_is_read_with_one_query() -> None:
    """Sharding adds no cost to other chats."""
    table = Table(Layout(), range(100), frozenset(), 1000)
    span = span_of(0, LAST, is_status=False)

    found = await reader_of(table).list(span, 50)

    assert len(found) == 50 and table.queries == 1


@pytest.mark.parametrize("shards", [2, 4, 16, 64])
def test_page_of_a_sharded_chat_rarely_needs_a_second_query(shards: int) -> None:
    """The limit of each shard is a little above its share of the page."""
    assert 50 / shards < compute_share(50, shards) <= 50 / shards + 2 * (50 / shards) ** 0.5 + 2
    assert compute_share(1, shards) == 1


async def test_token_of_another_chat_is_refused() -> None:
    """A token is valid only for its own chat."""
    table = Table(Layout((ShardingPeriod(5, 4),)), range(10), frozenset(), 10)
    span = span_of(0, LAST, is_status=False)

    for chat in ("d", "c#1"):
        with pytest.raises(BadRequest, match="page token"):
            await reader_of(table).open(span, {"chatid": chat, "ts": 3})
