"""The list of sharded chats: all processes use the same partition for an entry.

The processes of a test share one row in memory. Each may be frozen before a call and before its
response, for any time, while clocks and other processes continue.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.domain.write_sharding import (
    PERIODS_MAX,
    PERIODS_RESERVED,
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
    ShardedChats,
)
from tests.unit.warm.messages.shard_rows import US, Rows, Time

STEPS = 700


class World:
    """Several processes, one chat, and the partitions that they used for its entries."""

    def __init__(self, processes: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.row, self.time = Rows(), Time()
        self.lists = [ShardedChats(cast(Any, self.row), self.time) for _ in range(processes)]
        self.last_ts = 0
        self.placed: list[tuple[int, str]] = []
        self.outcomes: list[str] = []
        self.tries = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.frozen: list[tuple[float, asyncio.Future[None]]] = []
        self.row.gate = self.freeze
        self.is_over = False

    async def freeze(self, is_reshard: bool) -> None:
        """Sometimes block a call; mostly calls of processes that change the sharding."""
        if self.is_over or self.random.random() > (0.6 if is_reshard else 0.03):
            return
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        until_s = self.time.now_s + self.random.uniform(0, self.random.choice([0.5, 2, 12]))
        self.frozen.append((until_s, gate))
        await gate

    def commit(self) -> int:
        """Assign a timestamp, as `commit_messages.lua` does."""
        self.last_ts = max(self.last_ts + 1, int(self.time.time() * US))
        return self.last_ts

    async def find_newest_ts(self) -> int:
        """Act as `ChatLog.find_newest_ts`."""
        self.tries += 1
        newest = max(self.last_ts, int(self.time.time() * US))
        await self.freeze(is_reshard=True)
        return newest

    async def handle(self, number: int) -> None:
        """Let a process write a new entry or read an old one."""
        known = [ts for ts, _ in self.placed[-20:]]
        ts = self.random.choice([self.commit(), *known])
        get = self.lists[number].get_for_keys if ts in known else None
        layouts = await (get or self.lists[number].get_for_writing)(ts)
        self.placed.append((ts, layouts.get_partition("c", ts)))

    async def reshard_chat(self, number: int) -> None:
        """Let a process change the number of shards."""
        shards = self.random.choice([1, 16])
        self.outcomes.append(await self.lists[number].reshard("c", shards, self.find_newest_ts))

    def start(self, work: Any) -> None:
        """Start a concurrent task."""
        task = asyncio.create_task(work)
        self.tasks.add(task)

    async def run_step(self) -> None:
        """Take one random step."""
        number = self.random.randrange(len(self.lists))
        chance = self.random.random()
        if chance < 0.02:
            self.start(self.reshard_chat(number))
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

    async def finish(self) -> None:
        """Complete all running tasks."""
        self.is_over = True
        for _, gate in self.frozen:
            if not gate.done():
                gate.set_result(None)
        await asyncio.gather(*self.tasks)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**32))
async def test_every_process_uses_the_same_partition_for_an_entry(
    processes: int, seed: int
) -> None:
    """With any delays, the final layout is correct for all entries."""
    world = World(processes, seed)
    for _ in range(STEPS):
        await world.run_step()
    await world.finish()

    world.time.now_s += 100
    last = await world.lists[0].get_for_keys(max(ts for ts, _ in world.placed))
    assert world.placed
    assert [(ts, last.get_partition("c", ts)) for ts, _ in world.placed] == world.placed


async def test_simulation_changes_the_sharding_often() -> None:
    """Without frequent changes, the property test above would prove nothing."""
    outcomes: list[str] = []
    sharded = raced = 0
    for seed in range(8):
        world = World(3, seed)
        for _ in range(STEPS):
            await world.run_step()
        await world.finish()
        outcomes += world.outcomes
        raced += world.tries - len(world.outcomes)
        sharded += sum("#" in partition for _, partition in world.placed)

    assert outcomes.count("moved") > 8 and raced > 3 and sharded > 100


def open_shard_list(rows: Rows, time: Time) -> ShardedChats:
    """Return the list of one process."""
    return ShardedChats(cast(Any, rows), time)


def now_of(time: Time) -> Callable[[], Awaitable[int]]:
    """Return a function that returns the time of Redis."""

    async def find_newest_ts() -> int:
        return int(time.time() * US)

    return find_newest_ts


async def test_cached_list_is_used_up_to_its_horizon() -> None:
    """The age does not matter; beyond the horizon, reads are shared and cached briefly."""
    rows, time = Rows(), Time()
    shards = open_shard_list(rows, time)
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
    """Clients can read with any timestamp."""
    rows, time = Rows(), Time()
    shards = open_shard_list(rows, time)

    await shards.get_for_keys(TS_MAX)
    await shards.get_for_reading(TS_MAX)

    assert rows.writes == 0


async def test_many_writers_move_the_horizon_about_twice_a_second() -> None:
    """This is the total of all writers; layouts are read again only after a change."""
    rows, time = Rows(), Time()
    lists = [open_shard_list(rows, time) for _ in range(10)]

    for _ in range(100):
        for shards in lists:
            time.now_s += 0.01
            await shards.get_for_writing(int(time.time() * US))

    assert rows.writes <= 10 / (EXTENSION_US / US) + 1
    assert rows.layout_reads == 0


async def test_late_write_of_a_sharding_period_fails() -> None:
    """A process that pauses between computing and writing a period must not write it."""
    rows, time = Rows(), Time()
    late_process, other = open_shard_list(rows, time), open_shard_list(rows, time)
    await other.get_for_writing(int(time.time() * US))

    async def pause() -> int:
        newest = int(time.time() * US)
        time.now_s += 60
        await other.get_for_writing(int(time.time() * US))
        return newest

    assert await late_process.reshard("c", 4, pause) == "raced"
    assert not (await other.get_for_keys(TS_MAX)).of("c")


async def test_reshard_is_repeated_after_a_concurrent_write() -> None:
    """A busy chat writes at the time of each decision and must still be sharded."""
    rows, time = Rows(), Time()
    mover, writer = open_shard_list(rows, time), open_shard_list(rows, time)
    calls = 0

    async def write_once() -> int:
        nonlocal calls
        calls += 1
        newest = int(time.time() * US)
        if calls == 1:
            time.now_s += 1
            await writer.get_for_writing(int(time.time() * US))
        return newest

    assert await mover.reshard("c", 4, write_once) == "moved"
    assert calls == 2
    assert (await writer.get_for_keys(TS_MAX)).of("c").shards == 4


async def test_sharding_period_begins_at_the_horizon_without_earlier_changes() -> None:
    """Other changes wait until the period has begun."""
    rows, time = Rows(), Time()
    shards, now = open_shard_list(rows, time), now_of(time)
    start = int(time.time() * US)
    await shards.get_for_writing(start)

    assert await shards.reshard("c", 4, now) == "moved"
    layout = (await shards.get_for_keys(TS_MAX)).of("c")

    assert layout == Layout((ShardingPeriod(start + EXTENSION_US + 1, 4),))
    assert await shards.reshard("c", 8, now) == "waiting"
    time.now_s += 1
    assert await shards.reshard("c", 4, now) == "waiting", "the number of shards is the same"
    assert await shards.reshard("c", 8, now) == "moved"


async def test_readers_know_a_sharding_period_before_it_has_entries() -> None:
    """The period begins after the cached list of every reader has expired."""
    rows, time = Rows(), Time()
    shards, now = open_shard_list(rows, time), now_of(time)

    assert await shards.reshard("c", 4, now) == "moved"

    layout = (await shards.get_for_keys(TS_MAX)).of("c")
    assert layout.from_ts - int(time.time() * US) > SHARD_REFRESH_S * US


async def test_reshard_without_the_newest_ts_waits() -> None:
    """The next timestamp of a chat that is not in Redis is unknown."""
    rows, time = Rows(), Time()

    async def unknown() -> None:
        return None

    assert await open_shard_list(rows, time).reshard("c", 4, unknown) == "waiting"


async def test_floor_is_stored_with_and_without_a_new_layout() -> None:
    """A floor equal to the current number of shards extends its time only."""
    rows, time = Rows(), Time()
    shards, now = open_shard_list(rows, time), now_of(time)
    ends = int(time.time() * US) + 3600 * US

    first = await shards.reshard("c", 4, now, ShardFloor(ends, 4))
    again = await shards.reshard("c", 4, now, ShardFloor(ends + US, 4))
    layouts = await shards.get_for_keys(TS_MAX)

    assert (first, again) == ("moved", "moved")
    assert len(layouts.of("c").periods) == 1
    assert (layouts.get_shards_min("c", ends + US), layouts.get_shards_min("c", ends + US + 1)) == (
        4,
        1,
    )
    assert layouts.get_shards_min("other", ends) == 1


async def test_chat_with_the_maximum_of_periods_only_gets_more_shards() -> None:
    """The last periods are reserved for more shards: the chat stays sharded."""
    rows, time = Rows(), Time()
    shards, now = open_shard_list(rows, time), now_of(time)

    outcomes = []
    for number in range(PERIODS_MAX):
        time.now_s += 2
        outcomes.append(await shards.reshard("c", 1 if number % 2 else 2, now))
    assert outcomes.count("moved") == PERIODS_MAX - PERIODS_RESERVED + 1
    assert outcomes[-1] == "full"

    time.now_s += 2
    assert await shards.reshard("c", 4, now) == "moved"


async def test_full_list_accepts_no_more_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row stays within the item size of DynamoDB; further chats are not sharded."""
    rows, time = Rows(), Time()
    shards, now = open_shard_list(rows, time), now_of(time)
    monkeypatch.setattr(sharded_chats, "TEXT_MAX", 110)

    outcomes = [await shards.reshard(f"chat-{n}", 2, now) for n in range(6)]

    assert outcomes == ["moved"] * 5 + ["full"]


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [("chats", "5:3", "not a shard layout"), ("floors", "5:3", "not a minimum number of shards")],
)
async def test_invalid_row_is_corrupt_data(field: str, text: str, why: str) -> None:
    """A guess would put messages where no reader finds them."""
    rows, time = Rows(), Time()
    await open_shard_list(rows, time).reshard("c", 4, now_of(time))
    rows.layouts = {**rows.layouts, field: {"M": {"c": {"S": text}}}}

    with pytest.raises(CorruptData, match=why):
        await open_shard_list(rows, time).get_for_keys(TS_MAX)
