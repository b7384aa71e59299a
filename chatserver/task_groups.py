"""Concurrent tasks. If one fails, its error is raised instead of an exception group."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def wait_for_shared(work: asyncio.Future[R]) -> R:
    """Return the result of a task or future that continues if this caller is cancelled.

    Guarantees:
        Cancellation: safe; the work continues for other callers. If all callers are cancelled,
            asyncio does not log that its exception was never retrieved.
    """
    work.add_done_callback(_retrieve_exception)
    return await asyncio.shield(work)


def _retrieve_exception(work: asyncio.Future[R]) -> None:
    if not work.cancelled():
        work.exception()


@contextlib.asynccontextmanager
async def open_task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Open an `asyncio.TaskGroup`. If a task fails, the block raises the task's error itself."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except* Exception as failures:
        first: BaseException = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from failures


async def map_concurrently(
    work: Callable[[T], Awaitable[R]], items: Iterable[T], *, in_flight_max: int, name: str
) -> list[R]:
    """Run `work` for each item in tasks called `name`; return the results in the order of `items`.

    Guarantees:
        At most `in_flight_max` calls to `work` run at the same time.
        If one call fails, the others are cancelled.

    Raises:
        Exception: the error raised by `work`.
    """
    slots = asyncio.Semaphore(in_flight_max)

    async def run(item: T) -> R:
        async with slots:
            return await work(item)

    tasks: list[asyncio.Task[R]] = []
    async with open_task_group() as group:
        tasks += [group.create_task(run(item), name=name) for item in items]
    return [task.result() for task in tasks]


@contextlib.asynccontextmanager
async def run_in_background(work: Coroutine[Any, Any, None], *, name: str) -> AsyncIterator[None]:
    """Run `work` in a task until the block ends; then cancel it and wait for its end."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
