"""Concurrency slots, shared fairly between users and bounded in total and per user.

Each free slot goes to the next waiting user who holds fewer than `user_max`, so many requests of
one user delay only that user. No I/O.
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


class FairSlots:
    """At most `total_max` slots are held, and `user_max` per user; `waiting_max` per user may wait.

    `what` names the requests in error messages. `all_waiting_max` bounds the waiting requests of
    all users, so that no request waits longer than its caller does.
    """

    def __init__(
        self,
        total_max: int,
        user_max: int,
        waiting_max: int,
        what: str,
        all_waiting_max: int = sys.maxsize,
    ) -> None:
        self._free = total_max
        self._user_max = user_max
        self._waiting_max = waiting_max
        self._what = what
        self._all_waiting_max = all_waiting_max
        self._held: dict[str, int] = {}
        self._line: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def hold(self, user: str) -> AsyncIterator[None]:
        """Hold a slot for a user.

        Raises:
            RateLimited: too many requests of the user, or of all users, are waiting.
        """
        await self._acquire(user)
        try:
            yield
        finally:
            self._release(user)

    async def _acquire(self, user: str) -> None:
        if self._free and self._held.get(user, 0) < self._user_max:
            self._give(user)  # no waiter is eligible: slots are assigned as they become free
            return
        if len(self._line.get(user, ())) >= self._waiting_max:
            raise _refuse(f"at most {self._waiting_max} {self._what} of a user may wait")
        if sum(map(len, self._line.values())) >= self._all_waiting_max:
            raise _refuse(f"too many {self._what} wait; try again")
        queue = self._line.setdefault(user, deque())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(user)
            elif turn in queue:
                queue.remove(turn)
                if not queue:
                    self._line.pop(user, None)
            raise

    def _give(self, user: str) -> None:
        self._free -= 1
        self._held[user] = self._held.get(user, 0) + 1

    def _release(self, user: str) -> None:
        self._free += 1
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
        while self._free and (following := self._find_next()) is not None:
            queue = self._line.pop(following)
            turn = queue.popleft()
            if queue:
                self._line[following] = queue  # at the end of the line
            if not turn.cancelled():
                self._give(following)
                turn.set_result(None)

    def _find_next(self) -> str | None:
        for user in self._line:
            if self._held.get(user, 0) < self._user_max:
                return user
        return None


def _refuse(why: str) -> RateLimited:
    metrics.RATE_LIMITED.labels("requests_in_flight").inc()
    return RateLimited(why, retry_after_ms=RETRY_MS)
