"""The list of spread chats: whoever acts by it, however late, puts an entry where all look for it.

The test's processes share one row in memory. Each may be frozen before a call is done and before
its answer arrives, for any time, while clocks run and others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.config import Warm
from chatserver.domain.write_sharding import STRETCHES_KEPT, STRETCHES_MAX, Layout, ShardingPeriod
from chatserver.errors import CorruptData
from chatserver.warm.dynamo.client import ConditionFailed, Item
from chatserver.warm.messages import sharded_chats
from chatserver.warm.messages.sharded_chats import LEAD, SLACK, ShardList
from tests.support.constants import constants

FOR_S = 1.0
REFRESH = "chatserver.warm.messages.sharded_chats.SHARD_REFRESH_S"
pytestmark = pytest.mark.constants({REFRESH: FOR_S})
US = 1_000_000
STEPS = 700


class Row:
    """The row, behind the door to DynamoDB. Each call waits twice at `gate`, if there is one."""

    def __init__(self) -> None:
        self.item: Item | None = None
        self.gate: Callable[[bool], Awaitable[None]] | None = None
        self.writes = self.reads = 0

    @contextlib.asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        yield

    async def _wait(self, request: dict[str, Any]) -> None:
        if self.gate is not None:
            await self.gate(":layout" in request.get("ExpressionAttributeValues", ()))

    async def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        await self._wait(request)
        answer = getattr(self, operation)(request)
        await self._wait(request)
        if isinstance(answer, Exception):
            raise answer
        return cast(dict[str, Any], answer)

    def get_item(self, request: dict[str, Any]) -> dict[str, Any]:
        assert request["ConsistentRead"]
        self.reads += 1
        return {} if self.item is None else {"Item": self.item}

    def update_item(self, request: dict[str, Any]) -> dict[str, Any] | ConditionFailed:
        values = request["ExpressionAttributeValues"]
        self.writes += 1
        held = None if self.item is None else self.item["rev"]
        if held != values.get(":rev"):
            return ConditionFailed("rev", [None])
        item = self.item or {"for_ms": values[":for"], "chats": {"M": {}}}
        chats = dict(item["chats"]["M"])
        if ":layout" in values:
            chats[request["ExpressionAttributeNames"]["#chat"]] = values[":layout"]
        self.item = {**item, "rev": values[":next"], "chats": {"M": chats}}
        return {}


class Time:
    """Monotonic time of all processes, and Redis's clock, which may jump."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.jumped_s = 0.0

    def time(self) -> float:
        return self.now_s + self.jumped_s

    def monotonic(self) -> float:
        return self.now_s


class World:
    """Some processes, one chat, and what each of them did with its entries."""

    def __init__(self, processes: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.row, self.time = Row(), Time()
        warm = Warm()
        self.lists = [ShardList(cast(Any, self.row), warm, self.time) for _ in range(processes)]
        self.last_ts = 0
        self.placed: list[tuple[int, str]] = []
        self.outcomes: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.frozen: list[tuple[float, asyncio.Future[None]]] = []
        self.row.gate = self.freeze
        self.is_over = False

    async def freeze(self, is_move: bool) -> None:
        """Now and then a process sleeps, in the middle of what it does; movers most of the time."""
        if self.is_over or self.random.random() > (0.6 if is_move else 0.03):
            return
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        until_s = (
            self.time.now_s + self.random.uniform(0, self.random.choice([2, 2 * LEAD])) * FOR_S
        )
        self.frozen.append((until_s, gate))
        await gate

    def commit(self) -> int:
        """Give out a ts, as `accept.lua` does."""
        self.last_ts = max(self.last_ts + 1, int(self.time.time() * US))
        return self.last_ts

    async def find_newest_ts(self) -> int:
        """As `ChatLog.find_newest_ts`."""
        newest = max(self.last_ts, int(self.time.time() * US))
        await self.freeze(is_move=True)
        return newest

    async def handle(self, number: int) -> None:
        """A process puts, or looks for, an entry: a new one or an old one."""
        known = [ts for ts, _ in self.placed[-20:]]
        ts = self.random.choice([self.commit(), *known])
        layouts = await self.lists[number].get()
        self.placed.append((ts, layouts.partition_of("c", ts)))

    async def move(self, number: int) -> None:
        """A process wants the chat on other shards."""
        await self.lists[number].get()
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
            left = SLACK * FOR_S * 0.9 - self.time.jumped_s
            self.time.jumped_s += self.random.uniform(0, left) / 4
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
    """Whoever sleeps where, for how long, and writes how late: the last list is right for all."""
    world = World(processes, seed)
    for _ in range(STEPS):
        await world.step()
    await world.end()

    world.time.now_s += 100
    last = await world.lists[0].get()
    assert world.placed
    assert [(ts, last.partition_of("c", ts)) for ts, _ in world.placed] == world.placed


async def test_simulation_does_move_chats() -> None:
    """The property above is none of worlds in which nothing happens."""
    outcomes: list[str] = []
    spread = 0
    for seed in range(8):
        world = World(3, seed)
        for _ in range(STEPS):
            await world.step()
        await world.end()
        outcomes += world.outcomes
        spread += sum("#" in partition for _, partition in world.placed)

    assert outcomes.count("moved") > 8 and outcomes.count("raced") > 3 and spread > 100


def list_of(row: Row, time: Time) -> ShardList:
    """The list of a process."""
    return ShardList(cast(Any, row), Warm(), time)


async def test_list_is_read_once_for_its_time() -> None:
    """All that a process does in the meantime costs nothing, side by side too."""
    row, time = Row(), Time()
    shards = list_of(row, time)

    await asyncio.gather(*(shards.get() for _ in range(10)))
    first = (row.reads, row.writes)
    time.now_s += FOR_S - 0.01
    await shards.get()
    assert (row.reads, row.writes) == first == (2, 1)

    time.now_s += 0.02
    await shards.get()

    assert (row.reads, row.writes) == (3, 1)


async def test_rev_that_nobody_changes_is_changed() -> None:
    """By one of those who read, so that a write of before cannot land: a unit now and then."""
    row, time = Row(), Time()
    lists = [list_of(row, time) for _ in range(10)]

    for _ in range(100):
        for shards in lists:
            time.now_s += 0.1
            await shards.get()

    took_s = 100
    assert took_s / 4 < row.writes < took_s


async def test_late_write_of_a_stretch_fails() -> None:
    """Who slept between reckoning and writing has reckoned for a time that is over."""
    row, time = Row(), Time()
    sleeper, other = list_of(row, time), list_of(row, time)
    await sleeper.get()
    await other.get()

    async def sleep_here() -> int:
        time.now_s += 60
        await other.get()
        return int(time.time() * US)

    assert await sleeper.spread("c", 4, sleep_here) == "raced"
    assert not (await other.get()).of("c")


async def test_stretch_begins_when_all_know_of_it() -> None:
    """And nothing is decided anew before that."""
    row, time = Row(), Time()
    shards = list_of(row, time)
    await shards.get()

    async def now() -> int:
        return int(time.time() * US)

    assert await shards.spread("c", 4, now) == "moved"
    time.now_s += FOR_S
    layout = (await shards.get()).of("c")

    assert layout == Layout((ShardingPeriod(int(1000 * US + LEAD * FOR_S * US), 4),))
    assert await shards.spread("c", 8, now) == "waiting"
    time.now_s += LEAD * FOR_S
    assert await shards.spread("c", 4, now) == "waiting", "it is so already"
    assert await shards.spread("c", 8, now) == "moved"


async def test_nothing_is_moved_by_who_cannot_tell_the_time() -> None:
    """A chat that Redis does not have open may go on anywhere."""
    row, time = Row(), Time()
    shards = list_of(row, time)
    await shards.get()

    async def unknown() -> None:
        return None

    assert await shards.spread("c", 4, unknown) == "waiting"


async def test_longer_refresh_than_the_rows_own_is_cut() -> None:
    """A process with other settings acts by the list as long as the others reckon with."""
    row, time = Row(), Time()
    await list_of(row, time).get()
    other = list_of(row, time)
    with constants({REFRESH: 30.0}):
        await other.get()
    reads = row.reads

    time.now_s += FOR_S + 0.01
    with constants({REFRESH: 30.0}):
        await other.get()

    assert row.reads > reads


async def test_full_chat_goes_up_and_not_down() -> None:
    """The last stretches are kept for load: a chat that used up the others stays spread."""
    row, time = Row(), Time()
    shards = list_of(row, time)
    await shards.get()

    async def now() -> int:
        return int(time.time() * US)

    outcomes = []
    for number in range(STRETCHES_MAX):
        time.now_s += LEAD * FOR_S + 1
        outcomes.append(await shards.spread("c", 1 if number % 2 else 2, now))
    assert outcomes.count("moved") == STRETCHES_MAX - STRETCHES_KEPT + 1
    assert outcomes[-1] == "full"

    time.now_s += LEAD * FOR_S + 1
    assert await shards.spread("c", 4, now) == "moved"


async def test_full_list_takes_no_more_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row stays one that DynamoDB takes; chats beyond it are not spread."""
    row, time = Row(), Time()
    shards = list_of(row, time)
    await shards.get()
    monkeypatch.setattr(sharded_chats, "TEXT_MAX", 100)

    async def now() -> int:
        return int(time.time() * US)

    outcomes = [await shards.spread(f"chat-{n}", 2, now) for n in range(6)]

    assert outcomes == ["moved"] * 5 + ["full"]


async def test_row_that_makes_no_sense_stops_who_reads_it() -> None:
    """A guess would put messages where nobody finds them."""
    row, time = Row(), Time()
    shards = list_of(row, time)
    await shards.get()
    assert row.item is not None
    row.item = {**row.item, "chats": {"M": {"c": {"S": "5:3"}}}}

    time.now_s += 10
    with pytest.raises(CorruptData, match="not a shard layout"):
        await shards.get()
