"""Where entries of spread chats are, and that streams read side by side are one again."""

from __future__ import annotations

import collections
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.domain.write_sharding import (
    SHARDS_MAX,
    WHOLE,
    Layout,
    Layouts,
    ShardingPeriod,
    ShardMerge,
    chat_of,
    is_shards,
    parse_layout,
    partitions,
    shard_of,
)
from chatserver.errors import CorruptData

START = 1_795_000_000_000_000
shard_counts = st.integers(0, 6).map(lambda n: 2**n)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Layouts with short stretches, so that ranges cross many of them."""
    begins = draw(st.lists(st.integers(1, 60), max_size=8, unique=True))
    return Layout(tuple(ShardingPeriod(begin, draw(shard_counts)) for begin in sorted(begins)))


@settings(deadline=None)
@given(layouts(), st.integers(0, 80))
def test_place_follows_from_the_stretch_that_a_ts_is_in(layout: Layout, ts: int) -> None:
    """The last stretch that has begun counts; before the first there is one shard."""
    begun = [stretch.shards for stretch in layout.stretches if stretch.from_ts <= ts]
    shards = begun[-1] if begun else 1

    partition = Layouts({"c": layout}).partition_of("c", ts)

    assert layout.shards_at(ts) == shards
    assert partition in partitions("c", shards)
    assert chat_of(partition) == "c"


@settings(deadline=None)
@given(layouts(), st.integers(0, 60), st.integers(0, 60), st.integers(1, 60), shard_counts)
def test_stretch_that_lies_ahead_moves_nothing_of_before(
    layout: Layout, ts: int, low: int, ahead: int, shards: int
) -> None:
    """A writer with the old layout writes to the partition where readers look for it."""
    begin = max(layout.from_ts, ts, low) + ahead
    longer = Layout((*layout.stretches, ShardingPeriod(begin, shards)))

    assert Layouts({"c": longer}).partition_of("c", ts) == Layouts({"c": layout}).partition_of(
        "c", ts
    )
    assert longer.pieces("c", low, ts, is_rising=True) == layout.pieces(
        "c", low, ts, is_rising=True
    )


@settings(deadline=None)
@given(layouts(), st.integers(0, 80), st.integers(0, 80), st.booleans())
def test_pieces_hold_each_ts_of_a_range_once_in_order(
    layout: Layout, low: int, high: int, is_rising: bool
) -> None:
    """Read piece by piece, all of the range is read, where it is, and nothing else."""
    pieces = layout.pieces("c", low, high, is_rising=is_rising)

    covered = [
        ts for piece in pieces for ts in range(piece.low, piece.high + 1)[:: 1 if is_rising else -1]
    ]

    assert covered == list(range(low, high + 1))[:: 1 if is_rising else -1]
    for piece in pieces:
        for ts in (piece.low, piece.high):
            assert Layouts({"c": layout}).partition_of("c", ts) in piece.partitions


@pytest.mark.parametrize("step_us", [1, 2, 16, 1000, 1_000_000, 60_000_000])
@pytest.mark.parametrize("shards", [2, 16, 64])
def test_neighbours_are_spread_evenly_whatever_the_step(step_us: int, shards: int) -> None:
    """A burst's µs and a metronome's seconds leave no shard with twice its part."""
    count = 64 * shards

    taken = collections.Counter(shard_of(START + n * step_us, shards) for n in range(count))

    assert set(taken) == set(range(shards))
    assert max(taken.values()) < 2 * 64


def test_chat_that_was_never_spread_has_one_partition() -> None:
    """Without a row all of it is where it always was."""
    assert Layouts().partition_of("c", START) == "c"
    assert Layouts().of("c") is WHOLE and WHOLE.shards == 1
    assert partitions("c", 1) == ("c",)


@pytest.mark.parametrize(
    ("partition", "chat"),
    [("c", "c"), ("c#0", "c"), ("c#15", "c"), ("c#gone", "c#gone"), ("7", "7"), ("a#b#3", "a#b")],
)
def test_chat_of_a_partition_is_told_from_its_markers(partition: str, chat: str) -> None:
    """Ids hold no ``#``; what follows it is a shard if it is a number."""
    assert chat_of(partition) == chat


@settings(deadline=None)
@given(layouts())
def test_layout_comes_back_as_it_was_written(layout: Layout) -> None:
    """The text contains the whole layout."""
    if layout:
        assert parse_layout(layout.encode()) == layout


@pytest.mark.parametrize(
    "text", ["", "5", "5:3", "0:2", "5:2,5:4", "9:2,5:4", "5:128", "a:b", "5:2,"]
)
def test_text_that_is_no_layout_is_refused(text: str) -> None:
    """Rather than to look for a chat where it is not."""
    with pytest.raises(CorruptData, match="not a shard layout"):
        parse_layout(text)


def test_shards_are_powers_of_two() -> None:
    """Up to the bound."""
    assert [n for n in range(-1, 200) if is_shards(n)] == [1, 2, 4, 8, 16, 32, 64]
    assert is_shards(SHARDS_MAX)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 500), st.booleans()), unique_by=lambda row: row[0]),
    shard_counts,
    st.booleans(),
    st.data(),
)
def test_merge_gives_each_row_once_in_order(
    rows: list[tuple[int, bool]], shards: int, is_rising: bool, data: st.DataObject
) -> None:
    """However streams are cut, and however many rows of them a filter takes out."""
    sign = 1 if is_rising else -1
    rows = sorted(rows, key=lambda row: sign * row[0])
    streams: list[list[tuple[int, bool]]] = [[] for _ in range(shards)]
    for row in rows:
        streams[shard_of(row[0], shards)].append(row)
    merge: ShardMerge[int] = ShardMerge(shards, is_rising=is_rising)
    given_rows: list[tuple[int, int]] = []

    for _ in range(2 * len(rows) + 3):
        for number in merge.lacking() if not merge.has_rows else ():
            size = data.draw(st.integers(1, 5), "rows of a Query")
            page, streams[number] = streams[number][:size], streams[number][size:]
            # As DynamoDB: a page that is full goes on, also when nothing is behind it.
            upto = page[-1][0] if len(page) == size else None
            merge.feed(number, [(ts, ts) for ts, is_kept in page if is_kept], upto)
        taken = merge.take(data.draw(st.integers(1, 7), "rows taken"))
        given_rows += taken
        if merge.upto is not None and taken:
            # Who goes on behind `upto`, or behind the last row, leaves out and repeats nothing.
            place = taken[-1][0] if merge.has_rows else merge.upto
            seen = [ts for ts, is_kept in rows if is_kept and sign * ts <= sign * place]
            assert [ts for ts, _ in given_rows] == seen
        if merge.upto is None and not merge.has_rows:
            break

    assert given_rows == [(ts, ts) for ts, is_kept in rows if is_kept]


def test_merge_waits_for_the_stream_that_is_behind() -> None:
    """A row is given when no other stream can have one before it."""
    merge: ShardMerge[str] = ShardMerge(2, is_rising=True)
    merge.feed(0, [(1, "a"), (5, "e")], 5)

    assert merge.lacking() == [1] and not merge.has_rows and merge.take(9) == []

    merge.feed(1, [(2, "b"), (3, "c")], 3)

    assert merge.take(9) == [(1, "a"), (2, "b"), (3, "c")]
    assert merge.upto == 3 and merge.lacking() == [1]

    merge.feed(1, [], None)

    assert merge.take(1) == [(5, "e")]
    assert merge.upto == 5 and merge.lacking() == [0]


def test_stretches_are_read_in_both_directions() -> None:
    """Up and down are the same pieces."""
    layout = parse_layout("10:4,20:1,30:2")

    up, down = (layout.pieces("c", 5, 40, is_rising=way) for way in (True, False))

    assert [(piece.low, piece.high, len(piece.partitions)) for piece in up] == [
        (5, 9, 1),
        (10, 19, 4),
        (20, 29, 1),
        (30, 40, 2),
    ]
    assert down == up[::-1]
    assert all(a.high + 1 == b.low for a, b in itertools.pairwise(up))
