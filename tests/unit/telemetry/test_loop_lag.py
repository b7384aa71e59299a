"""Loop lag: late wake-ups are measured and logged."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from chatserver.telemetry import loop_lag
from chatserver.telemetry.loop_lag import watch_loop_lag
from chatserver.telemetry.metrics import LOOP_LAG


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure often, because the task really sleeps."""
    monkeypatch.setattr(loop_lag, "INTERVAL_S", 0.01)


class LateClock:
    """A clock that advances by `late_s` more than each sleep.

    It is read once at the start, then before and after each sleep.
    """

    def __init__(self, late_s: float) -> None:
        self.now = 0.0
        self.late_s = late_s
        self.reads = 0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        self.reads += 1
        if self.reads >= 3 and self.reads % 2 == 1:
            self.now += loop_lag.INTERVAL_S + self.late_s
        return self.now


async def warnings_of(late_s: float, startup_s: float = 0.0) -> list[str]:
    clock = LateClock(late_s)
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(watch_loop_lag(clock, startup_s))
        async with asyncio.timeout(20):
            while clock.reads < 4:
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return [str(entry["event"]) for entry in logs]


async def test_lag_of_a_blocked_loop_is_counted_and_logged() -> None:
    """A lag of half a second is logged."""
    before = LOOP_LAG._sum.get()

    assert await warnings_of(0.5) == ["loop.blocked"]

    assert LOOP_LAG._sum.get() >= before + 0.5


async def test_lag_of_an_idle_loop_is_not_logged() -> None:
    """Normal jitter is only counted."""
    assert await warnings_of(0.001) == []


async def test_lag_at_startup_is_not_logged() -> None:
    """Loading libraries blocks the loop before it serves clients."""
    assert await warnings_of(0.5, startup_s=10.0) == []
