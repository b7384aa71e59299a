"""Slots shared by users: bounded, fair, and always released."""

from __future__ import annotations

import asyncio
import random

import pytest

from chatserver.errors import RateLimited
from chatserver.service.fair_semaphore import FairSemaphore


class Work:
    """Work that goes on until it is let go; remembers the order in which it began."""

    def __init__(self, slots: FairSemaphore) -> None:
        self._slots = slots
        self.begun: list[str] = []
        self.ends: list[asyncio.Event] = []

    async def do(self, user: str) -> None:
        async with self._slots.hold(user):
            self.begun.append(user)
            end = asyncio.Event()
            self.ends.append(end)
            await end.wait()

    def start(self, user: str, count: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.do(user)) for _ in range(count)]


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_hold_of_a_user_with_much_work_lets_others_in_at_once() -> None:
    """Of ten slots one user has at most three, however much they ask for."""
    work = Work(FairSemaphore(total_max=10, user_max=3, waiting_max=100, requests="calls"))
    tasks = work.start("busy", 50)
    await settle()
    assert work.begun == ["busy"] * 3

    tasks += work.start("other", 1)
    await settle()

    assert work.begun[3:] == ["other"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_hold_with_all_slots_taken_serves_users_in_turn() -> None:
    """A free slot goes to the next user, not to the next request."""
    work = Work(FairSemaphore(total_max=1, user_max=1, waiting_max=100, requests="calls"))
    tasks = work.start("a", 10) + work.start("b", 2) + work.start("c", 1)
    await settle()
    for number in range(6):
        work.ends[number].set()
        await settle()

    assert work.begun == ["a", "a", "b", "c", "a", "b", "a"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_hold_beyond_the_waiting_bound_is_rate_limited_for_that_user_only() -> None:
    """A user with too many waiting requests gets a retry time; other users still wait."""
    work = Work(FairSemaphore(total_max=1, user_max=1, waiting_max=2, requests="calls"))
    tasks = work.start("a", 3)
    await settle()

    with pytest.raises(RateLimited) as caught:
        await work.do("a")

    assert caught.value.retry_after_ms == 1_000
    tasks += work.start("b", 1)
    await settle()
    assert not tasks[-1].done()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_hold_cancelled_anywhere_gives_its_slot_back() -> None:
    """After any mix of ends and cancellations all slots are free again."""
    dice = random.Random(7)
    for _ in range(50):
        slots = FairSemaphore(total_max=3, user_max=2, waiting_max=100, requests="calls")
        work = Work(slots)
        tasks = [task for user in "abc" for task in work.start(user, 6)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if work.ends and dice.random() < 0.5:
                dice.choice(work.ends).set()
            if dice.random() < 0.5:
                dice.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert (slots._free, slots._held, len(slots._queues)) == (3, {}, 0)
