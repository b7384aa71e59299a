"""Shared reads: few reads, none that began before the call, and independent callers."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.errors import Unavailable
from chatserver.warm.dynamo.shared_reads import SharedReads


class Store:
    """A store whose reads return the value at their start, and end when `gate` is set."""

    def __init__(self) -> None:
        self.value = 0
        self.reads: list[str] = []
        self.gate = asyncio.Event()
        self.is_down = False

    async def read(self, key: str) -> int:
        self.reads.append(key)
        value = self.value
        await self.gate.wait()
        if self.is_down:
            raise Unavailable("down")
        return value


async def start(reads: SharedReads[str, int], key: str, count: int) -> list[asyncio.Task[int]]:
    """Start callers, and let them run until they wait."""
    tasks = [asyncio.create_task(reads.get(key)) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_concurrent_callers_share_a_read_of_their_key() -> None:
    """There is one read per key."""
    store = Store()
    reads = SharedReads(store.read)
    tasks = [asyncio.create_task(reads.get(key)) for key in "aabab"]
    store.gate.set()

    await asyncio.gather(*tasks)

    assert sorted(store.reads) == ["a", "b"]


async def test_caller_during_a_read_gets_the_result_of_a_later_one() -> None:
    """The result includes everything written before the call."""
    store = Store()
    reads = SharedReads(store.read)
    early = await start(reads, "a", 3)
    store.value = 1
    late = await start(reads, "a", 3)
    store.gate.set()

    assert await asyncio.gather(*early) == [0, 0, 0]
    assert await asyncio.gather(*late) == [1, 1, 1]
    assert store.reads == ["a", "a"]


async def test_read_that_hangs_does_not_delay_later_callers() -> None:
    """The next read begins after `WAIT_S_MAX`."""
    store = Store()
    reads = SharedReads(store.read)
    early = await start(reads, "a", 1)
    stuck, store.gate = store.gate, asyncio.Event()
    store.value = 1
    store.gate.set()

    assert await asyncio.wait_for(reads.get("a"), 30) == 1
    assert not early[0].done()
    stuck.set()
    assert await early[0] == 0


async def test_canceled_caller_does_not_end_the_read_of_others() -> None:
    """The read continues for the other callers."""
    store = Store()
    reads = SharedReads(store.read)
    first, second = await start(reads, "a", 2)

    first.cancel()
    await asyncio.wait([first])
    store.gate.set()

    assert await second == 0
    assert store.reads == ["a"]


async def test_error_reaches_all_callers_and_no_later_one() -> None:
    """A later caller starts a new read."""
    store = Store()
    store.is_down = True
    reads = SharedReads(store.read)
    tasks = await start(reads, "a", 2)
    store.gate.set()

    for task in tasks:
        with pytest.raises(Unavailable):
            await task
    store.is_down = False
    assert await reads.get("a") == 0
