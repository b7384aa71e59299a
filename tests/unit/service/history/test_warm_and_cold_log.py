"""The warm and cold tiers as one log, while entries are being archived (guarantee P6)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.archive_segments import ArchiveTop, Restored
from chatserver.domain.ids import Seq, Ts
from chatserver.errors import Unavailable
from chatserver.protocol.frames import Message
from chatserver.service.history.cold_log import apply_late_changes
from chatserver.service.history.warm_and_cold_log import RESTORED_CACHED_S, WarmAndColdLog
from tests.support.fake_clocks import FakeClock

CHAT = "c1"


def entry(seq: int, body: str = "text", rev: int = 0) -> Message:
    """Return an entry of the chat."""
    return Message(seq, seq * 10, CHAT, f"m{seq}", "alice", f"r{seq}", "text", body, rev=rev)


@dataclasses.dataclass
@dataclasses.dataclass
class Tiers:
    """A chat of `stored` entries. Those up to `top` are archived; `kept` are still warm too.

    Before each call archiving continues by some steps: first the manifest, then, with the next
    step, the removals of the archived entries.
    """

    stored: int
    top: int
    kept: frozenset[int]
    steps: Iterator[int]
    is_cold_down: bool = False
    removed: int = 0
    warm_calls: int = 0
    cold_calls: int = 0
    restored: tuple[Restored, ...] = ()

    def _move(self) -> None:
        for _ in range(next(self.steps, 0)):
            self.removed = max(self.removed, self.top)
            self.top = min(self.stored, self.top + next(self.steps, 0))

    def _held(self) -> dict[int, Message]:
        return {
            seq: entry(seq)
            for seq in range(1, self.stored + 1)
            if seq > self.removed or seq in self.kept
        }

    async def find_head(self, chat: str) -> Message | None:
        self._move()
        held = self._held()
        return held[max(held)] if held else None

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> list[Message]:
        self.warm_calls += 1
        self._move()
        assert before is not None
        held, run = self._held(), []
        while len(run) < limit and before - 1 in held:
            before -= 1
            run.append(held[before])
        return run[::-1]

    async def list_after(
        self, chat: str, after: int, limit: int, ts_hint: int | None = None
    ) -> list[Message]:
        self.warm_calls += 1
        self._move()
        held, run = self._held(), []
        while len(run) < limit and after + 1 in held:
            after += 1
            run.append(held[after])
        return run

    async def fill_hole(self, chat: str, seq: int, ts: int) -> None:
        pass

    async def get_top(self, chat: str) -> ArchiveTop:
        self._move()
        return ArchiveTop(Seq(self.top), Ts(self.top * 10), self.restored)

    async def read(self, chat: str, first: int, last: int) -> list[Message]:
        self._move()
        self.cold_calls += 1
        if self.is_cold_down:
            raise Unavailable("the archive is down")
        assert 1 <= first <= last <= self.top
        return [entry(seq) for seq in range(first, last + 1)]


@st.composite
def tiers(draw: st.DrawFn) -> Tiers:
    """Generate states of archiving."""
    stored = draw(st.integers(0, 40))
    top = draw(st.integers(0, stored))
    kept = draw(st.frozensets(st.integers(1, max(1, top)), max_size=6))
    steps = iter(draw(st.lists(st.integers(0, 9), max_size=30)))
    ranges = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=2))
    restored = [range_of(low, high) for low, high in ranges if low <= high <= top]
    restored_seqs = {seq for each in restored for seq in range(each.first, each.last + 1)}
    # Some items may be missing: the row of a restore does not prove that they exist.
    missing = draw(st.frozensets(st.integers(1, 40), max_size=2))
    kept = (kept | restored_seqs) - missing
    generated = Tiers(stored, top, frozenset(seq for seq in kept if seq <= top), steps)
    generated.removed = draw(st.integers(0, top))
    generated.restored = tuple(restored)
    return generated


def range_of(first: int, last: int, until: int = 2**40, **more: Any) -> Restored:
    """Return a range that was restored completely."""
    held = Restored(Seq(first), Seq(last), Ts(first * 10), Ts(last * 10), until, last)
    return dataclasses.replace(held, **more)


@given(tiers(), st.integers(1, 15))
def test_walk_up_during_archiving_returns_each_entry_once(tiers: Tiers, limit: int) -> None:
    """There is no gap and no repeat, and every page but the last is full."""
    older, found = WarmAndColdLog(tiers, tiers), []

    while page := asyncio.run(older.read_run(CHAT, None, len(found), limit, None)).messages:
        found += [each.seq for each in page]
        assert len(page) == limit or found[-1] == tiers.stored

    assert found == list(range(1, tiers.stored + 1))


@given(tiers(), st.integers(1, 15))
def test_walk_down_during_archiving_returns_each_entry_once(tiers: Tiers, limit: int) -> None:
    """The walk begins at the newest entry."""
    older, found, before = WarmAndColdLog(tiers, tiers), [], None

    while page := asyncio.run(older.read_run(CHAT, before, None, limit, None)).messages:
        found[:0] = [each.seq for each in page]
        before = found[0]
        assert len(page) == limit or before == 1

    assert found == list(range(1, tiers.stored + 1))


@given(tiers())
def test_head_during_archiving_never_decreases(tiers: Tiers) -> None:
    """The head stays correct if the warm tier has no entry of the chat any more."""
    head = asyncio.run(WarmAndColdLog(tiers, tiers).find_head(CHAT))

    assert (head.seq if head else 0) == tiers.stored


def test_position_known_to_be_archived_is_not_searched_in_the_warm_tier() -> None:
    """The archive only grows, so a cached top stays valid."""
    tiers = Tiers(40, 30, frozenset(), iter(()), removed=30)
    older = WarmAndColdLog(tiers, tiers)
    first = asyncio.run(older.read_run(CHAT, 31, None, 5, None))
    calls = tiers.warm_calls

    second = asyncio.run(older.read_run(CHAT, 26, None, 5, None))

    assert (first.tier, second.tier) == ("cold", "cold")
    assert tiers.warm_calls == calls


def test_restored_range_is_read_from_the_warm_tier() -> None:
    """Reads in both directions work while the archive is down; pages continue after the range."""
    kept = frozenset(range(11, 21))
    tiers = Tiers(40, 30, kept, iter(()), removed=30, restored=(range_of(11, 20),))
    older = WarmAndColdLog(tiers, tiers)
    asyncio.run(older.find_head(CHAT))

    down = asyncio.run(older.read_run(CHAT, 21, None, 10, None))
    up = asyncio.run(older.read_run(CHAT, None, 10, 10, None))
    calls = tiers.cold_calls
    across = asyncio.run(older.read_run(CHAT, 26, None, 20, None))
    tiers.is_cold_down = True
    alone = asyncio.run(older.read_run(CHAT, 16, None, 20, None))

    assert (down.tier, up.tier, calls) == ("warm", "warm", 0)
    assert [each.seq for each in down.messages] == [each.seq for each in up.messages]
    assert (across.tier, [each.seq for each in across.messages]) == ("cold", list(range(6, 26)))
    assert (alone.tier, [each.seq for each in alone.messages]) == ("warm", list(range(11, 16)))


@pytest.mark.parametrize(
    "held",
    [range_of(11, 20, until=1), range_of(11, 20, is_ending=True), range_of(11, 20, done=10)],
    ids=["expired", "ending", "unfinished"],
)
def test_range_that_is_not_completely_restored_is_read_from_the_archive(held: Restored) -> None:
    """An expired, ending or unfinished restore is not used."""
    kept = frozenset(range(11, 21))
    tiers = Tiers(40, 30, kept, iter(()), removed=30, restored=(held,))

    older = WarmAndColdLog(tiers, tiers)
    asyncio.run(older.find_head(CHAT))  # without a cached top, the warm tier is read first

    run = asyncio.run(older.read_run(CHAT, 21, None, 10, None))

    assert run.tier == "cold"


def test_range_restored_later_is_read_from_the_warm_tier() -> None:
    """The cached ranges expire within seconds."""
    clock = FakeClock()
    tiers = Tiers(40, 30, frozenset(range(11, 21)), iter(()), removed=30)
    older = WarmAndColdLog(tiers, tiers, clock)
    asyncio.run(older.find_head(CHAT))
    before = asyncio.run(older.read_run(CHAT, 21, None, 5, None))

    tiers.restored = (range_of(11, 20),)
    clock.advance(RESTORED_CACHED_S + 1)
    after = asyncio.run(older.read_run(CHAT, 21, None, 5, None))

    assert (before.tier, after.tier) == ("cold", "warm")


def test_read_with_the_archive_down_returns_the_warm_part_or_fails() -> None:
    """A page that begins in the archive fails; one that only ends there is short."""
    tiers = Tiers(40, 30, frozenset(), iter(()), is_cold_down=True, removed=30)
    older = WarmAndColdLog(tiers, tiers)

    short = asyncio.run(older.read_run(CHAT, 36, None, 20, None))

    assert [each.seq for each in short.messages] == [31, 32, 33, 34, 35]
    assert short.tier == "warm"
    with pytest.raises(Unavailable):
        asyncio.run(older.read_run(CHAT, 31, None, 20, None))


def test_fill_hole_of_an_archived_entry_does_nothing() -> None:
    """An archived entry is not lost."""
    tiers = Tiers(40, 30, frozenset(), iter(()), removed=30)
    older = WarmAndColdLog(tiers, tiers)

    assert not asyncio.run(older.fill_hole(CHAT, 30, 300))
    assert asyncio.run(older.fill_hole(CHAT, 31, 310))


def test_late_changes_override_the_archive_unless_they_are_older() -> None:
    """A change applies at once; an item rewritten by a retry does not undo it."""
    archived = [entry(1), entry(2, "edited", 9), entry(3)]

    seen = apply_late_changes(archived, [entry(1, "new", 8), entry(2, "as sent"), entry(7)])

    assert [each.body for each in seen] == ["new", "edited", "text"]


def test_warm_tier_is_read_in_the_requested_direction_with_the_hint() -> None:
    """The hint saves a search."""
    reads: list[tuple[Any, ...]] = []

    class Recorded(Tiers):
        async def list_before(
            self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
        ) -> list[Message]:
            reads.append(("before", before, limit, ts_hint))
            return await super().list_before(chat, before, limit, ts_hint)

        async def list_after(
            self, chat: str, after: int, limit: int, ts_hint: int | None = None
        ) -> list[Message]:
            reads.append(("after", after, limit, ts_hint))
            return await super().list_after(chat, after, limit, ts_hint)

    tiers = Recorded(40, 0, frozenset(), iter(()))
    older = WarmAndColdLog(tiers, tiers)

    asyncio.run(older.read_run(CHAT, 21, None, 20, 1009))
    asyncio.run(older.read_run(CHAT, None, 4, 20, None))

    assert reads == [("before", 21, 20, 1009), ("after", 4, 20, None)]
