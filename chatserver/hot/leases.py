"""Leases: one worker at a time on a piece of work, with a token that only ever rises.

Data: ``{pN}:lease:<work>`` (hash: owner, token, until). The times are Redis's own. A holder that
slept past its lease is fenced off where it writes to Redis, by its token; where it writes elsewhere
it looks first, and its writes have a deadline shorter than the lease.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from chatserver.domain.clock import Clock
from chatserver.errors import ChatError
from chatserver.hot.client import HotClient
from chatserver.hot.scripts import load_script


class Lease:
    """One worker's claim on ``<work>`` of a partition."""

    def __init__(
        self, hot: HotClient, partition: int, work: str, owner: str, ttl_s: float, clock: Clock
    ) -> None:
        self.partition = partition
        self.token = 0
        self._hot = hot
        self._key = hot.keys.lease(partition, work)
        self._owner = owner
        self._ttl_s = ttl_s
        self._clock = clock
        self._until = 0.0

    def left_s(self) -> float:
        """Return for how long the lease surely holds; 0 or less: it does not."""
        return self._until - self._clock.monotonic()

    async def claim(self) -> bool:
        """Take or renew the lease; False while somebody else holds it.

        Raises:
            Unavailable: Redis does not answer; the lease runs on until it ends.
        """
        asked_at = self._clock.monotonic()
        token: int = await self._hot.run(
            load_script("lease"),
            {"lease": self._key},
            {"owner": self._owner, "ttl_ms": int(self._ttl_s * 1000)},
        )
        if token == 0:
            self._until = 0.0
            return False
        # Counted from before the call: on Redis's clock it ends no earlier.
        self._until = asked_at + self._ttl_s
        self.token = token
        return True

    async def hold(self) -> bool:
        """Take the lease, or renew it once a third of its time is over; False: somebody else's.

        Raises:
            Unavailable: Redis does not answer; the lease runs on until it ends.
        """
        return self.left_s() > self._ttl_s * 2 / 3 or await self.claim()

    @contextlib.asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """Give it back at the end, if it is held then; where that fails it ends by itself."""
        try:
            yield
        finally:
            if self.left_s() > 0:
                with contextlib.suppress(ChatError):
                    await self.release()

    async def release(self) -> None:
        """Give it back, so that another need not wait."""
        self._until = 0.0
        await self._hot.run(load_script("release"), {"lease": self._key}, {"owner": self._owner})
