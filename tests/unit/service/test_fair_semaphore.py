"""The fair semaphore: bounded, fair among users, and always released."""

from __future__ import annotations

import asyncio
import random

import pytest

from chatserver.errors import RateLimited
from chatserver.service.fair_semaphore import FairSemaphore


class BlockingWork:
    """Tasks that hold a slot until the test ends them; records the order of their starts."""

    def __init__(self, slots: FairSemaphore) -> None:
        self._slots = slots
        self.started: list[str] = []
        self.ends: list[asyncio.Event] = []

    async def run(self, user: str) -> None:
        async with self._slots.hold(user):
            self.started.append(user)
            end = asyncio.Event()
            self.ends.append(end)
            await end.wait()

    def start(self, user: str, count: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.run(user)) for _ in range(count)]


async def run_until_idle() -> None:
    """Let pending tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_hold_by_a_busy_user_leaves_slots_for_others() -> None:
    """One user has at most three of ten slots."""
    work = BlockingWork(FairSemaphore(total_max=10, user_max=3, waiting_max=100, requests="calls"))
    tasks = work.start("busy", 50)
    await run_until_idle()
    assert work.started == ["busy"] * 3

    tasks += work.start("other", 1)
    await run_until_idle()

    assert work.started[3:] == ["other"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_hold_with_all_slots_taken_is_round_robin() -> None:
    """A free slot goes to the next user, not to the next request."""
    work = BlockingWork(FairSemaphore(total_max=1, user_max=1, waiting_max=100, requests="calls"))
    tasks = work.start("a", 10) + work.start("b", 2) + work.start("c", 1)
    await run_until_idle()
    for number in range(6):
        work.ends[number].set()
        await run_until_idle()

    assert work.started == ["a", "a", "b", "c", "a", "b", "a"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_hold_above_the_waiting_limit_is_rate_limited_for_that_user() -> None:
    """A user with too many waiting requests gets a retry time; other users still wait."""
    work = BlockingWork(FairSemaphore(total_max=1, user_max=1, waiting_max=2, requests="calls"))
    tasks = work.start("a", 3)
    await run_until_idle()

    with pytest.raises(RateLimited) as caught:
        await work.run("a")

    assert caught.value.retry_after_ms == 1_000
    tasks += work.start("b", 1)
    await run_until_idle()
    assert not tasks[-1].done()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_canceled_hold_releases_its_slot() -> None:
    """After random completions and cancellations all slots are free again."""
    chance = random.Random(7)
    for _ in range(50):
        slots = FairSemaphore(total_max=3, user_max=2, waiting_max=100, requests="calls")
        work = BlockingWork(slots)
        tasks = [task for user in "abc" for task in work.start(user, 6)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if work.ends and chance.random() < 0.5:
                chance.choice(work.ends).set()
            if chance.random() < 0.5:
                chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert (slots._free, slots._held_by_user, len(slots._queues)) == (3, {}, 0)
