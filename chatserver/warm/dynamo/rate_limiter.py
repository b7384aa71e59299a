"""Rate limiter for capacity units, shared by all tasks of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from chatserver.domain.clock import Clock


class RateLimiter:
    """Limits the units consumed per second. Without a rate, there is no limit."""

    def __init__(
        self,
        units_per_s: float | None,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate = units_per_s
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock.monotonic()

    async def acquire(self, units: float) -> None:
        """Reserve `units`, and wait while earlier reservations exceed the rate."""
        if self._rate is None:
            return
        now = self._clock.monotonic()
        start = max(self._free_at, now)
        self._free_at = start + units / self._rate
        if start > now:
            await self._sleep(start - now)

    def adjust(self, units: float) -> None:
        """Correct a reservation by `units`: negative if fewer were consumed than reserved."""
        if self._rate is not None:
            self._free_at += units / self._rate
