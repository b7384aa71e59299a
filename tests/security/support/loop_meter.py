"""CPU time that requests take on the event loops of server processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final, NamedTuple, TypeVar

from tests.support.loop_ticks import TickReader

T = TypeVar("T")
IDLE_S: Final = 0.02
IDLE_CHECKS_MAX: Final = 250
IDLE_MS: Final = 0.3  # CPU time per interval of a server that only waits


class LoopTime(NamedTuple):
    """CPU time of a request in ms: its longest tick, and all ticks together."""

    tick_ms: float
    total_ms: float


class LoopMeter:
    """Measures what a request costs the event loop of each process."""

    def __init__(self, ticks: Mapping[str, TickReader]) -> None:
        self._ticks = ticks

    async def measure(self, request: Awaitable[T]) -> tuple[LoopTime, T]:
        """Send a request; return what it costs the loop that it uses most, and the response.

        The work that follows the response is included.
        """
        await self._wait_until_idle()
        for each in self._ticks.values():
            each.restart()
        answer = await request
        await self._wait_until_idle()
        times = [each.read_ms() for each in self._ticks.values()]
        return LoopTime(*map(max, zip(*times, strict=True))), answer

    async def _wait_until_idle(self) -> None:
        """Wait for an interval without work, at most `IDLE_CHECKS_MAX` intervals."""
        read = self._read_totals()
        for _ in range(IDLE_CHECKS_MAX):
            await asyncio.sleep(IDLE_S)
            read, before = self._read_totals(), read
            if all(now - then < IDLE_MS for now, then in zip(read, before, strict=True)):
                return

    def _read_totals(self) -> list[float]:
        return [each.read_ms()[1] for each in self._ticks.values()]
