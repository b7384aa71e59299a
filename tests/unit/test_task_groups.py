"""Task groups that raise the error of a task instead of an exception group."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.errors import BadRequest, NotFound, Unavailable
from chatserver.task_groups import map_concurrently, open_task_group


async def fail(error: Exception) -> None:
    raise error


async def test_failed_task_fails_the_block_with_its_error_and_cancels_the_others() -> None:
    """Callers catch `ChatError`, so a group must not hide it, at any depth."""
    with pytest.raises(NotFound):
        async with open_task_group(), asyncio.TaskGroup() as group:
            other = group.create_task(asyncio.Event().wait(), name="other")
            group.create_task(fail(NotFound("gone")), name="failing")

    assert other.cancelled()


async def test_error_of_the_block_is_raised_unchanged() -> None:
    """Code in the block may fail too."""
    with pytest.raises(BadRequest):
        async with open_task_group():
            raise BadRequest("wrong")


async def test_unexpected_error_is_raised_without_a_group() -> None:
    """Callers need not know that the work is concurrent."""
    with pytest.raises(KeyError):
        async with open_task_group() as group:
            group.create_task(fail(KeyError("bug")), name="failing")


async def test_map_keeps_the_order_and_the_limit() -> None:
    """Results have the order of the items, not the order in which the calls finish."""
    running, most = 0, 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10 - number):
            await asyncio.sleep(0)
        running -= 1
        return number * number

    found = await map_concurrently(work, range(10), in_flight_max=3, name="square")

    assert found == [number * number for number in range(10)]
    assert most == 3


async def test_map_raises_the_error_of_a_call() -> None:
    """The first failure ends the whole call."""

    async def work(number: int) -> None:
        if number == 1:
            raise Unavailable("store")
        await asyncio.Event().wait()

    with pytest.raises(Unavailable):
        await map_concurrently(work, range(3), in_flight_max=3, name="read")
