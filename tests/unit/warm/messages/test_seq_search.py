"""The search for a seq in a table sorted by time, compared with a list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.errors import CorruptData
from chatserver.warm.messages.seq_search import (
    PROBES_MAX,
    TS_MAX,
    WINDOW,
    Probe,
    SeqPosition,
    SeqSearch,
)

STEPS = st.one_of(
    st.integers(1, 3),  # a burst
    st.integers(1, 60_000_000),  # a conversation
    st.integers(1, 10**12),  # a pause of up to 11 days
)


class Rows:
    """One chat of a fake table; answers probes like a Query, and counts them."""

    def __init__(self, places: list[SeqPosition]) -> None:
        self.places = sorted(places, key=lambda place: place.ts)
        self.probes = 0

    def read(self, probe: Probe) -> list[SeqPosition]:
        self.probes += 1
        if probe.is_newest_first:
            hits = [place for place in reversed(self.places) if place.ts <= probe.ts]
        else:
            hits = [place for place in self.places if place.ts >= probe.ts]
        return hits[: probe.count]


def search(rows: Rows, target: int, known: list[SeqPosition] | None = None) -> SeqPosition | None:
    """Run a search to its end."""
    search = SeqSearch(target, known or [])
    while (probe := search.next_probe()) is not None:
        assert 0 <= probe.ts <= TS_MAX
        assert 1 <= probe.count <= WINDOW
        assert rows.probes < PROBES_MAX
        search.record_result(probe, rows.read(probe))
    return search.found


def evenly(count: int, step: int, start: int = 1_700_000_000_000_000) -> list[SeqPosition]:
    """Return the places of a chat with evenly spaced messages."""
    return [SeqPosition(seq, start + seq * step) for seq in range(1, count + 1)]


@st.composite
def chats(draw: st.DrawFn) -> list[SeqPosition]:
    """Generate chats with bursts, conversations and pauses; some chats lack messages."""
    ts = draw(st.integers(0, 2**51))
    places: list[SeqPosition] = []
    for length, step in draw(st.lists(st.tuples(st.integers(1, 150), STEPS), max_size=8)):
        for _ in range(length):
            ts += step
            places.append(SeqPosition(len(places) + 1, ts))
    if draw(st.booleans()):
        absent = draw(st.sets(st.integers(1, len(places) + 1), max_size=40))
        places = [place for place in places if place.seq not in absent]
    first = draw(st.integers(0, 100))  # older ones are in the cold tier
    return [place for place in places if place.seq > first]


@given(places=chats(), data=st.data())
def test_search_of_any_chat_finds_the_seq_if_and_only_if_it_is_stored(
    places: list[SeqPosition], data: st.DataObject
) -> None:
    """With any times, gaps and hints, the search agrees with the table."""
    head = places[-1].seq if places else 0
    target = data.draw(st.integers(0, head + 3))
    known = data.draw(st.lists(st.sampled_from(places), max_size=3)) if places else []
    rows = Rows(places)

    found = search(rows, target, known)

    assert found == next((place for place in places if place.seq == target), None)


@pytest.mark.parametrize("target", [1, 2, 777, 50_000, 99_999, 100_000])
def test_search_in_an_even_chat_takes_few_probes(target: int) -> None:
    """With 100,000 evenly spaced messages, a search reads both ends and at most two windows."""
    rows = Rows(evenly(100_000, 1_000_000))

    found = search(rows, target)

    assert found is not None
    assert found.seq == target
    assert rows.probes <= 4


@pytest.mark.parametrize("target", [65, 3_500, 5_001, 9_900])
def test_search_across_long_pauses_takes_few_probes(target: int) -> None:
    """Ten bursts of a thousand messages with a month between them need few probes."""
    month_us = 30 * 86_400 * 1_000_000
    places = [
        SeqPosition(burst * 1000 + n + 1, 10**15 + burst * month_us + n * 1000)
        for burst in range(10)
        for n in range(1000)
    ]
    rows = Rows(places)

    found = search(rows, target)

    assert found == places[target - 1]
    assert rows.probes <= 12


def test_search_inside_a_large_gap_takes_few_probes() -> None:
    """An empty range between two rows is detected without a binary search."""
    places = evenly(200_000, 1_000_000)
    rows = Rows(places[:1000] + places[-1000:])

    assert search(rows, 100_000) is None
    assert rows.probes <= 4


def test_search_with_a_nearby_hint_takes_one_probe() -> None:
    """A hint may be off by a few messages."""
    places = evenly(10_000, 5_000)
    rows = Rows(places)

    found = search(rows, 5_000, known=[places[5_029]])

    assert found == places[4_999]
    assert rows.probes == 1


def test_search_of_an_empty_chat_finds_nothing() -> None:
    """A chat that has no rows has no message."""
    assert search(Rows([]), 1) is None
    assert search(Rows([]), 1000) is None


def test_search_for_a_seq_beyond_the_head_takes_one_probe() -> None:
    """The newest item shows that the seq is not stored yet."""
    rows = Rows(evenly(500, 10))

    assert search(rows, 501) is None
    assert rows.probes == 1


def test_search_in_rows_out_of_order_is_corrupt_data() -> None:
    """Items in the wrong order are reported; the search does not loop forever."""
    places = evenly(1000, 10)
    places[500] = SeqPosition(3, places[500].ts)
    known = [places[400], places[500]]

    with pytest.raises(CorruptData, match="is out of order"):
        search(Rows(places), 450, known)
