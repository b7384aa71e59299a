"""Write sharding: the partitions of entries, and reads that merge partitions."""

from __future__ import annotations

import collections
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.domain.write_sharding import (
    SHARDS_MAX,
    UNSHARDED,
    Layout,
    Layouts,
    ShardingPeriod,
    ShardMerge,
    get_partition_chat,
    get_shard,
    is_shards,
    parse_layout,
    partitions,
)
from chatserver.errors import CorruptData

START = 1_795_000_000_000_000
shard_counts = st.integers(0, 6).map(lambda n: 2**n)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Generate layouts with short periods, so that ranges cross many of them."""
    begins = draw(st.lists(st.integers(1, 60), max_size=8, unique=True))
    return Layout(tuple(ShardingPeriod(begin, draw(shard_counts)) for begin in sorted(begins)))


@settings(deadline=None)
@given(layouts(), st.integers(0, 80))
def test_partition_is_chosen_by_the_sharding_period_of_a_ts(layout: Layout, ts: int) -> None:
    """The last period that has begun applies; before the first period, there is one shard."""
    begun = [period.shards for period in layout.periods if period.from_ts <= ts]
    shards = begun[-1] if begun else 1

    partition = Layouts({"c": layout}).get_partition("c", ts)

    assert layout.get_shards_at(ts) == shards
    assert partition in partitions("c", shards)
    assert get_partition_chat(partition) == "c"


@settings(deadline=None)
@given(layouts(), st.integers(0, 60), st.integers(0, 60), st.integers(1, 60), shard_counts)
def test_future_period_moves_no_earlier_entry(
    layout: Layout, ts: int, low: int, offset: int, shards: int
) -> None:
    """A writer with the old layout writes to the partition where readers look for it."""
    begin = max(layout.from_ts, ts, low) + offset
    longer = Layout((*layout.periods, ShardingPeriod(begin, shards)))

    assert Layouts({"c": longer}).get_partition("c", ts) == Layouts({"c": layout}).get_partition(
        "c", ts
    )
    assert longer.split_by_period("c", low, ts, is_ascending=True) == layout.split_by_period(
        "c", low, ts, is_ascending=True
    )


@settings(deadline=None)
@given(layouts(), st.integers(0, 80), st.integers(0, 80), st.booleans())
def test_pieces_cover_each_ts_of_a_range_once_in_order(
    layout: Layout, low: int, high: int, is_ascending: bool
) -> None:
    """The pieces together are exactly the range, each with its partitions."""
    pieces = layout.split_by_period("c", low, high, is_ascending=is_ascending)

    covered = [
        ts
        for piece in pieces
        for ts in range(piece.low, piece.high + 1)[:: 1 if is_ascending else -1]
    ]

    assert covered == list(range(low, high + 1))[:: 1 if is_ascending else -1]
    for piece in pieces:
        for ts in (piece.low, piece.high):
            assert Layouts({"c": layout}).get_partition("c", ts) in piece.partitions


@pytest.mark.parametrize("step_us", [1, 2, 16, 1000, 1_000_000, 60_000_000])
@pytest.mark.parametrize("shards", [2, 16, 64])
def test_consecutive_ts_are_distributed_evenly_for_any_step(step_us: int, shards: int) -> None:
    """Neither a burst nor regular intervals give a shard twice its fair share."""
    count = 64 * shards

    counts = collections.Counter(get_shard(START + n * step_us, shards) for n in range(count))

    assert set(counts) == set(range(shards))
    assert max(counts.values()) < 2 * 64


def test_chat_without_a_layout_has_one_partition() -> None:
    """Chats are not sharded by default."""
    assert Layouts().get_partition("c", START) == "c"
    assert Layouts().of("c") is UNSHARDED and UNSHARDED.shards == 1
    assert partitions("c", 1) == ("c",)


@pytest.mark.parametrize(
    ("partition", "chat"),
    [("c", "c"), ("c#0", "c"), ("c#15", "c"), ("c#name", "c#name"), ("7", "7"), ("a#b#3", "a#b")],
)
def test_chat_of_a_partition_is_parsed_from_its_key(partition: str, chat: str) -> None:
    """Ids contain no ``#``; a number after it is a shard."""
    assert get_partition_chat(partition) == chat


@settings(deadline=None)
@given(layouts())
def test_layout_round_trips(layout: Layout) -> None:
    """The text form contains the whole layout."""
    if layout:
        assert parse_layout(layout.encode()) == layout


@pytest.mark.parametrize(
    "text", ["", "5", "5:3", "0:2", "5:2,5:4", "9:2,5:4", "5:128", "a:b", "5:2,"]
)
def test_invalid_layout_text_is_refused(text: str) -> None:
    """Otherwise a chat would be read from the wrong partitions."""
    with pytest.raises(CorruptData, match="not a shard layout"):
        parse_layout(text)


def test_shard_counts_are_powers_of_two_up_to_the_limit() -> None:
    assert [n for n in range(-1, 200) if is_shards(n)] == [1, 2, 4, 8, 16, 32, 64]
    assert is_shards(SHARDS_MAX)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 500), st.booleans()), unique_by=lambda row: row[0]),
    shard_counts,
    st.booleans(),
    st.data(),
)
def test_merge_returns_each_row_once_in_order(
    rows: list[tuple[int, bool]], shards: int, is_ascending: bool, data: st.DataObject
) -> None:
    """This holds for any page sizes and any rows removed by a filter."""
    sign = 1 if is_ascending else -1
    rows = sorted(rows, key=lambda row: sign * row[0])
    streams: list[list[tuple[int, bool]]] = [[] for _ in range(shards)]
    for row in rows:
        streams[get_shard(row[0], shards)].append(row)
    merge: ShardMerge[int] = ShardMerge(shards, is_ascending=is_ascending)
    merged: list[tuple[int, int]] = []

    for _ in range(2 * len(rows) + 3):
        for number in merge.list_unread_streams() if not merge.has_rows else ():
            size = data.draw(st.integers(1, 5), "rows of a Query")
            page, streams[number] = streams[number][:size], streams[number][size:]
            # As in DynamoDB, a full page has a next page, even if that one is empty.
            upto = page[-1][0] if len(page) == size else None
            merge.add_rows(number, [(ts, ts) for ts, is_kept in page if is_kept], upto)
        rows_read = merge.pop_rows(data.draw(st.integers(1, 7), "rows read"))
        merged += rows_read
        if merge.upto is not None and rows_read:
            # A read that continues after `upto`, or after the last row, has no gap or repeat.
            position = rows_read[-1][0] if merge.has_rows else merge.upto
            seen = [ts for ts, is_kept in rows if is_kept and sign * ts <= sign * position]
            assert [ts for ts, _ in merged] == seen
        if merge.upto is None and not merge.has_rows:
            break

    assert merged == [(ts, ts) for ts, is_kept in rows if is_kept]


def test_merge_waits_for_the_slowest_stream() -> None:
    """A row is returned once no other stream can have an earlier one."""
    merge: ShardMerge[str] = ShardMerge(2, is_ascending=True)
    merge.add_rows(0, [(1, "a"), (5, "e")], 5)

    assert merge.list_unread_streams() == [1] and not merge.has_rows and merge.pop_rows(9) == []

    merge.add_rows(1, [(2, "b"), (3, "c")], 3)

    assert merge.pop_rows(9) == [(1, "a"), (2, "b"), (3, "c")]
    assert merge.upto == 3 and merge.list_unread_streams() == [1]

    merge.add_rows(1, [], None)

    assert merge.pop_rows(1) == [(5, "e")]
    assert merge.upto == 5 and merge.list_unread_streams() == [0]


def test_periods_are_read_in_both_directions() -> None:
    """The pieces are the same in both directions."""
    layout = parse_layout("10:4,20:1,30:2")

    up, down = (layout.split_by_period("c", 5, 40, is_ascending=way) for way in (True, False))

    assert [(piece.low, piece.high, len(piece.partitions)) for piece in up] == [
        (5, 9, 1),
        (10, 19, 4),
        (20, 29, 1),
        (30, 40, 2),
    ]
    assert down == up[::-1]
    assert all(a.high + 1 == b.low for a, b in itertools.pairwise(up))
