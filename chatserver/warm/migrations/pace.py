"""So many capacity units a second, and no more, over all tasks of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from chatserver.domain.clock import Clock


class Pace:
    """Lets units be spent one after the other at a rate. Without a rate, at once."""

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

    async def take(self, units: float) -> None:
        """Wait until what was taken before is paid for, then take `units`."""
        if self._rate is None:
            return
        now = self._clock.monotonic()
        start = max(self._free_at, now)
        self._free_at = start + units / self._rate
        if start > now:
            await self._sleep(start - now)

    def settle(self, units: float) -> None:
        """Correct what was taken, when more or fewer units (a negative number) were spent."""
        if self._rate is not None:
            self._free_at += units / self._rate
