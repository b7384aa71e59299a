"""The list of spread chats: whoever acts by it, however late, puts an entry where all look for it.

The test's processes share one row in memory. Each may be frozen before a call is done and before
its answer arrives, for any time, while clocks run and others go on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.config import Warm
from chatserver.domain.write_sharding import (
    STRETCHES_KEPT,
    STRETCHES_MAX,
    Layout,
    ShardFloor,
    ShardingPeriod,
)
from chatserver.errors import CorruptData
from chatserver.warm.messages import sharded_chats
from chatserver.warm.messages.seq_search import TS_MAX
from chatserver.warm.messages.sharded_chats import (
    EXTENSION_US,
    SHARD_REFRESH_S,
    ShardList,
)
from tests.unit.warm.messages.shard_rows import US, Rows, Time

STEPS = 700


class World:
    """Some processes, one chat, and what each of them did with its entries."""

    def __init__(self, processes: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.row, self.time = Rows(), Time()
        warm = Warm()
        self.lists = [ShardList(cast(Any, self.row), warm, self.time) for _ in range(processes)]
        self.last_ts = 0
        self.placed: list[tuple[int, str]] = []
        self.outcomes: list[str] = []
        self.tries = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.frozen: list[tuple[float, asyncio.Future[None]]] = []
        self.row.gate = self.freeze
        self.is_over = False

    async def freeze(self, is_move: bool) -> None:
        """Now and then a process sleeps, in the middle of what it does; movers most of the time."""
        if self.is_over or self.random.random() > (0.6 if is_move else 0.03):
            return
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        until_s = self.time.now_s + self.random.uniform(0, self.random.choice([0.5, 2, 12]))
        self.frozen.append((until_s, gate))
        await gate

    def commit(self) -> int:
        """Give out a ts, as `accept.lua` does."""
        self.last_ts = max(self.last_ts + 1, int(self.time.time() * US))
        return self.last_ts

    async def find_newest_ts(self) -> int:
        """As `ChatLog.find_newest_ts`."""
        self.tries += 1
        newest = max(self.last_ts, int(self.time.time() * US))
        await self.freeze(is_move=True)
        return newest

    async def handle(self, number: int) -> None:
        """A process puts, or looks for, an entry: a new one or an old one."""
        known = [ts for ts, _ in self.placed[-20:]]
        ts = self.random.choice([self.commit(), *known])
        get = self.lists[number].get_for_keys if ts in known else None
        layouts = await (get or self.lists[number].get_for_writing)(ts)
        self.placed.append((ts, layouts.partition_of("c", ts)))

    async def move(self, number: int) -> None:
        """A process wants the chat on other shards."""
        shards = self.random.choice([1, 16])
        self.outcomes.append(await self.lists[number].spread("c", shards, self.find_newest_ts))

    def start(self, work: Any) -> None:
        """Begin something beside the others."""
        task = asyncio.create_task(work)
        self.tasks.add(task)

    async def step(self) -> None:
        """Do one thing, by chance."""
        number = self.random.randrange(len(self.lists))
        chance = self.random.random()
        if chance < 0.02:
            self.start(self.move(number))
        elif chance < 0.03:
            self.time.jumped_s += self.random.uniform(-5, 20)
        elif chance < 0.3:
            self.time.now_s += self.random.choice([0.01, 0.1, 0.5])
        else:
            self.start(self.handle(number))
        for until_s, gate in self.frozen:
            if until_s <= self.time.now_s and not gate.done():
                gate.set_result(None)
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self) -> None:
        """Let everything that is under way come to its end."""
        self.is_over = True
        for _, gate in self.frozen:
            if not gate.done():
                gate.set_result(None)
        await asyncio.gather(*self.tasks)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**32))
async def test_every_process_puts_an_entry_in_one_place(processes: int, seed: int) -> None:
    """With any delays of processes and writes, the final layout is right for all entries."""
    world = World(processes, seed)
    for _ in range(STEPS):
        await world.step()
    await world.end()

    world.time.now_s += 100
    last = await world.lists[0].get_for_keys(max(ts for ts, _ in world.placed))
    assert world.placed
    assert [(ts, last.partition_of("c", ts)) for ts, _ in world.placed] == world.placed


async def test_simulation_does_move_chats() -> None:
    """The property above is none of worlds in which nothing happens."""
    outcomes: list[str] = []
    spread = raced = 0
    for seed in range(8):
        world = World(3, seed)
        for _ in range(STEPS):
            await world.step()
        await world.end()
        outcomes += world.outcomes
        raced += world.tries - len(world.outcomes)
        spread += sum("#" in partition for _, partition in world.placed)

    assert outcomes.count("moved") > 8 and raced > 3 and spread > 100


def list_of(rows: Rows, time: Time) -> ShardList:
    """The list of a process."""
    return ShardList(cast(Any, rows), Warm(), time)


def now_of(time: Time) -> Callable[[], Awaitable[int]]:
    """The newest ts according to Redis."""

    async def find_newest_ts() -> int:
        return int(time.time() * US)

    return find_newest_ts


async def test_copy_is_used_up_to_its_horizon_without_a_call() -> None:
    """However old it is; beyond the horizon a read is shared, and used for a moment."""
    rows, time = Rows(), Time()
    shards = list_of(rows, time)
    ts = int(time.time() * US)
    await shards.get_for_writing(ts)
    calls = (rows.reads, rows.writes)

    time.now_s += 1000
    await asyncio.gather(*(shards.get_for_writing(ts + EXTENSION_US) for _ in range(10)))
    await shards.get_for_keys(ts)
    await shards.get_for_reading(ts)
    assert (rows.reads, rows.writes) == calls == (1, 1)

    await asyncio.gather(*(shards.get_for_reading(TS_MAX) for _ in range(10)))
    time.now_s += SHARD_REFRESH_S - 0.01
    await shards.get_for_reading(TS_MAX)

    assert (rows.reads, rows.writes) == (2, 1)


async def test_readers_never_move_the_horizon() -> None:
    """A client may name any ts."""
    rows, time = Rows(), Time()
    shards = list_of(rows, time)

    await shards.get_for_keys(TS_MAX)
    await shards.get_for_reading(TS_MAX)

    assert rows.writes == 0


async def test_many_writers_move_the_horizon_about_twice_a_second() -> None:
    """In total; layouts are read again only after a change."""
    rows, time = Rows(), Time()
    lists = [list_of(rows, time) for _ in range(10)]

    for _ in range(100):
        for shards in lists:
            time.now_s += 0.01
            await shards.get_for_writing(int(time.time() * US))

    assert rows.writes <= 10 / (EXTENSION_US / US) + 1
    assert rows.layout_reads == 0


async def test_late_write_of_a_stretch_fails() -> None:
    """A process that pauses between computing and writing a stretch must not write it."""
    rows, time = Rows(), Time()
    sleeper, other = list_of(rows, time), list_of(rows, time)
    await other.get_for_writing(int(time.time() * US))

    async def sleep_here() -> int:
        newest = int(time.time() * US)
        time.now_s += 60
        await other.get_for_writing(int(time.time() * US))
        return newest

    assert await sleeper.spread("c", 4, sleep_here) == "raced"
    assert not (await other.get_for_keys(TS_MAX)).of("c")


async def test_spread_is_tried_again_after_a_concurrent_write() -> None:
    """A steady chat writes an entry at the moment of each decision; it is spread all the same."""
    rows, time = Rows(), Time()
    mover, writer = list_of(rows, time), list_of(rows, time)
    calls = 0

    async def write_once() -> int:
        nonlocal calls
        calls += 1
        newest = int(time.time() * US)
        if calls == 1:
            time.now_s += 1
            await writer.get_for_writing(int(time.time() * US))
        return newest

    assert await mover.spread("c", 4, write_once) == "moved"
    assert calls == 2
    assert (await writer.get_for_keys(TS_MAX)).of("c").shards == 4


async def test_stretch_begins_at_the_horizon_and_nothing_is_decided_anew_before() -> None:
    """At once, but for what readers and writers need to know of it."""
    rows, time = Rows(), Time()
    shards, now = list_of(rows, time), now_of(time)
    start = int(time.time() * US)
    await shards.get_for_writing(start)

    assert await shards.spread("c", 4, now) == "moved"
    layout = (await shards.get_for_keys(TS_MAX)).of("c")

    assert layout == Layout((ShardingPeriod(start + EXTENSION_US + 1, 4),))
    assert await shards.spread("c", 8, now) == "waiting"
    time.now_s += 1
    assert await shards.spread("c", 4, now) == "waiting", "it is so already"
    assert await shards.spread("c", 8, now) == "moved"


async def test_readers_know_a_stretch_before_it_has_entries() -> None:
    """Also where the horizon is behind: reads beyond it use a copy for a moment."""
    rows, time = Rows(), Time()
    shards, now = list_of(rows, time), now_of(time)

    assert await shards.spread("c", 4, now) == "moved"

    layout = (await shards.get_for_keys(TS_MAX)).of("c")
    assert layout.from_ts - int(time.time() * US) > SHARD_REFRESH_S * US


async def test_nothing_is_moved_by_who_cannot_tell_the_time() -> None:
    """A chat that Redis does not have open may go on anywhere."""
    rows, time = Rows(), Time()

    async def unknown() -> None:
        return None

    assert await list_of(rows, time).spread("c", 4, unknown) == "waiting"


async def test_floor_is_kept_with_the_layout_and_on_its_own() -> None:
    """A chat that is on so many shards already stays there for longer."""
    rows, time = Rows(), Time()
    shards, now = list_of(rows, time), now_of(time)
    ends = int(time.time() * US) + 3600 * US

    first = await shards.spread("c", 4, now, ShardFloor(ends, 4))
    again = await shards.spread("c", 4, now, ShardFloor(ends + US, 4))
    layouts = await shards.get_for_keys(TS_MAX)

    assert (first, again) == ("moved", "moved")
    assert len(layouts.of("c").stretches) == 1
    assert (layouts.floor_of("c", ends + US), layouts.floor_of("c", ends + US + 1)) == (4, 1)
    assert layouts.floor_of("other", ends) == 1


async def test_full_chat_goes_up_and_not_down() -> None:
    """The last stretches are kept for load: a chat that used up the others stays spread."""
    rows, time = Rows(), Time()
    shards, now = list_of(rows, time), now_of(time)

    outcomes = []
    for number in range(STRETCHES_MAX):
        time.now_s += 2
        outcomes.append(await shards.spread("c", 1 if number % 2 else 2, now))
    assert outcomes.count("moved") == STRETCHES_MAX - STRETCHES_KEPT + 1
    assert outcomes[-1] == "full"

    time.now_s += 2
    assert await shards.spread("c", 4, now) == "moved"


async def test_full_list_takes_no_more_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row stays one that DynamoDB takes; chats beyond it are not spread."""
    rows, time = Rows(), Time()
    shards, now = list_of(rows, time), now_of(time)
    monkeypatch.setattr(sharded_chats, "TEXT_MAX", 110)

    outcomes = [await shards.spread(f"chat-{n}", 2, now) for n in range(6)]

    assert outcomes == ["moved"] * 5 + ["full"]


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [("chats", "5:3", "not a shard layout"), ("floors", "5:3", "not a minimum number of shards")],
)
async def test_row_that_makes_no_sense_stops_who_reads_it(field: str, text: str, why: str) -> None:
    """A guess would put messages where no reader finds them."""
    rows, time = Rows(), Time()
    await list_of(rows, time).spread("c", 4, now_of(time))
    rows.layouts = {**rows.layouts, field: {"M": {"c": {"S": text}}}}

    with pytest.raises(CorruptData, match=why):
        await list_of(rows, time).get_for_keys(TS_MAX)
