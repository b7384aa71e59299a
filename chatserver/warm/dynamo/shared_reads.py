"""Reads whose result concurrent callers share, such as a popular author's newest posts.

A caller gets the result of a read that begins after its call. So even a caller that must see
everything written before its call can use a shared read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from chatserver.task_groups import wait_for_shared

WAIT_S_MAX: Final = 0.01  # longest wait for a read in flight before another read of the key begins
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SharedReads(Generic[K, T]):
    """Shares reads by key. `read` must have a deadline. Callers must limit concurrent keys."""

    def __init__(self, read: Callable[[K], Awaitable[T]]) -> None:
        self._read = read
        self._waiting: dict[K, asyncio.Task[T]] = {}
        self._running: dict[K, asyncio.Task[T]] = {}

    async def get(self, key: K) -> T:
        """Return the result of a read of `key`.

        Guarantees:
            Order: the read begins after this is called.
            Cancellation: safe; other callers are not affected.

        Raises:
            Whatever `read` raises.
        """
        task = self._waiting.get(key)
        if task is None:
            task = asyncio.create_task(self._run(key, self._running.get(key)), name="shared-read")
            self._waiting[key] = task
        return await wait_for_shared(task)

    async def _run(self, key: K, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before], timeout=WAIT_S_MAX)
        task = self._running[key] = self._waiting.pop(key)
        try:
            return await self._read(key)
        finally:
            if self._running.get(key) is task:
                del self._running[key]
