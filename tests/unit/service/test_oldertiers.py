"""The warm and the cold tier as one, while entries move from one to the other (promise P6)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import Seq, Ts
from chatserver.domain.segments import ArchiveTop
from chatserver.errors import Unavailable
from chatserver.protocol.frames import Message
from chatserver.service.coldlog import lay_over
from chatserver.service.oldertiers import OlderTiers

CHAT = "c1"


def entry(seq: int, body: str = "text", rev: int = 0) -> Message:
    """An entry of the chat."""
    return Message(seq, seq * 10, CHAT, f"m{seq}", "alice", f"r{seq}", "text", body, rev=rev)


@dataclasses.dataclass
class Tiers:
    """A chat of `stored` entries, of which up to `top` are archived, and `kept` of those are warm.

    Before each call the archive goes on by some steps: first the manifest, then, with the next
    one, the removals that belong to it.
    """

    stored: int
    top: int
    kept: frozenset[int]
    steps: Iterator[int]
    is_cold_down: bool = False
    removed: int = 0
    warm_calls: int = 0

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

    async def fill_hole(self, chat: str, seq: int, ts: int) -> bool:
        return True

    async def get_top(self, chat: str) -> ArchiveTop:
        self._move()
        return ArchiveTop(Seq(self.top), Ts(self.top * 10))

    async def read(self, chat: str, first: int, last: int) -> list[Message]:
        self._move()
        if self.is_cold_down:
            raise Unavailable("the archive is away")
        assert 1 <= first <= last <= self.top
        return [entry(seq) for seq in range(first, last + 1)]


@st.composite
def tiers(draw: st.DrawFn) -> Tiers:
    """Any moment of any archive."""
    stored = draw(st.integers(0, 40))
    top = draw(st.integers(0, stored))
    kept = draw(st.frozensets(st.integers(1, max(1, top)), max_size=6))
    steps = iter(draw(st.lists(st.integers(0, 9), max_size=30)))
    made = Tiers(stored, top, frozenset(seq for seq in kept if seq <= top), steps)
    made.removed = draw(st.integers(0, top))
    return made


@given(tiers(), st.integers(1, 15))
def test_walk_up_gives_each_entry_once_whatever_moves(tiers: Tiers, limit: int) -> None:
    """No hole, no repeat, and full pages but the last."""
    older, found = OlderTiers(tiers, tiers), []

    while page := asyncio.run(older.read_run(CHAT, None, len(found), limit, None)).messages:
        found += [each.seq for each in page]
        assert len(page) == limit or found[-1] == tiers.stored

    assert found == list(range(1, tiers.stored + 1))


@given(tiers(), st.integers(1, 15))
def test_walk_down_gives_each_entry_once_whatever_moves(tiers: Tiers, limit: int) -> None:
    """As upwards, from the newest."""
    older, found, before = OlderTiers(tiers, tiers), [], None

    while page := asyncio.run(older.read_run(CHAT, before, None, limit, None)).messages:
        found[:0] = [each.seq for each in page]
        before = found[0]
        assert len(page) == limit or before == 1

    assert found == list(range(1, tiers.stored + 1))


@given(tiers())
def test_head_never_sinks_while_entries_move(tiers: Tiers) -> None:
    """The floor of seq and ts holds when the warm tier has nothing left of a chat."""
    head = asyncio.run(OlderTiers(tiers, tiers).find_head(CHAT))

    assert (head.seq if head else 0) == tiers.stored


def test_place_that_is_known_to_be_archived_costs_no_search_in_the_warm_tier() -> None:
    """The archive only grows: what was learnt of it holds."""
    tiers = Tiers(40, 30, frozenset(), iter(()), removed=30)
    older = OlderTiers(tiers, tiers)
    first = asyncio.run(older.read_run(CHAT, 31, None, 5, None))
    calls = tiers.warm_calls

    second = asyncio.run(older.read_run(CHAT, 26, None, 5, None))

    assert (first.tier, second.tier) == ("cold", "cold")
    assert tiers.warm_calls == calls


def test_archive_that_is_down_is_named_and_the_warm_tier_is_served() -> None:
    """A page that begins in the archive fails; one that only ends there is short."""
    tiers = Tiers(40, 30, frozenset(), iter(()), is_cold_down=True, removed=30)
    older = OlderTiers(tiers, tiers)

    short = asyncio.run(older.read_run(CHAT, 36, None, 20, None))

    assert [each.seq for each in short.messages] == [31, 32, 33, 34, 35]
    assert short.tier == "warm"
    with pytest.raises(Unavailable):
        asyncio.run(older.read_run(CHAT, 31, None, 20, None))


def test_hole_is_not_filled_where_the_archive_has_the_entry() -> None:
    """What has moved is not lost."""
    tiers = Tiers(40, 30, frozenset(), iter(()), removed=30)
    older = OlderTiers(tiers, tiers)

    assert not asyncio.run(older.fill_hole(CHAT, 30, 300))
    assert asyncio.run(older.fill_hole(CHAT, 31, 310))


def test_what_lies_over_the_archive_counts_unless_it_is_older() -> None:
    """A change counts at once; an item that was written again by a repeat does not undo one."""
    archived = [entry(1), entry(2, "edited", 9), entry(3)]

    seen = lay_over(archived, [entry(1, "new", 8), entry(2, "as sent"), entry(7)])

    assert [each.body for each in seen] == ["new", "edited", "text"]
