"""Concurrency slots, shared fairly between users, with a total limit and a limit per user.

Each free slot goes to the next waiting user who holds fewer than `user_max` slots, so a user with
many requests delays only themselves. No I/O.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import OrderedDict, deque
from collections.abc import AsyncIterator

from chatserver.errors import RateLimited
from chatserver.telemetry import metrics

RETRY_MS = 1_000


class FairSemaphore:
    """Semaphore with `total_max` slots, at most `user_max` of them per user.

    At most `waiting_max` requests per user wait for a slot, and at most `all_waiting_max` in total.
    `requests` is the word for requests in error messages and in the metric of held and waiting
    slots, for example "searches". `users` is the word in error messages for those who are limited,
    for example "network".
    """

    def __init__(
        self,
        *,
        total_max: int,
        user_max: int,
        waiting_max: int,
        requests: str,
        all_waiting_max: int = sys.maxsize,
        users: str = "user",
    ) -> None:
        self._free = total_max
        self._user_max = user_max
        self._waiting_max = waiting_max
        self._requests = requests
        self._users = users
        self._held = metrics.SLOTS.labels(requests, "held")
        self._waits = metrics.SLOTS.labels(requests, "waiting")
        self._all_waiting_max = all_waiting_max
        self._held_by_user: dict[str, int] = {}
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def held_count(self) -> int:
        return sum(self._held_by_user.values())

    @contextlib.asynccontextmanager
    async def hold(self, user: str) -> AsyncIterator[None]:
        """Hold a slot for a user.

        Raises:
            RateLimited: too many requests from the user, or from all users, are waiting.
        """
        await self._acquire(user)
        try:
            yield
        finally:
            self._release(user)

    async def _acquire(self, user: str) -> None:
        if self._free and self._held_by_user.get(user, 0) < self._user_max:
            # This overtakes no waiting user, because all of them hold `user_max` slots.
            self._assign(user)
            return
        if len(self._queues.get(user, ())) >= self._waiting_max:
            raise _refuse(
                f"at most {self._waiting_max} {self._requests} per {self._users} may be waiting; "
                "try again"
            )
        if sum(map(len, self._queues.values())) >= self._all_waiting_max:
            raise _refuse(f"too many {self._requests} are waiting; try again")
        queue = self._queues.setdefault(user, deque())
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(slot)
        self._waits.inc()
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self._release(user)
            elif slot in queue:
                queue.remove(slot)
                if not queue:
                    self._queues.pop(user, None)
            raise
        finally:
            self._waits.dec()

    def _assign(self, user: str) -> None:
        self._free -= 1
        self._held.inc()
        self._held_by_user[user] = self._held_by_user.get(user, 0) + 1

    def _release(self, user: str) -> None:
        self._free += 1
        self._held.dec()
        self._held_by_user[user] -= 1
        if not self._held_by_user[user]:
            del self._held_by_user[user]
        while self._free and (next_user := self._find_next()) is not None:
            queue = self._queues.pop(next_user)
            slot = queue.popleft()
            if queue:
                self._queues[next_user] = queue  # the user is now behind the other waiting users
            if not slot.cancelled():
                self._assign(next_user)
                slot.set_result(None)

    def _find_next(self) -> str | None:
        for user in self._queues:
            if self._held_by_user.get(user, 0) < self._user_max:
                return user
        return None


def _refuse(reason: str) -> RateLimited:
    metrics.RATE_LIMITED.labels("requests_in_flight").inc()
    return RateLimited(reason, retry_after_ms=RETRY_MS)
