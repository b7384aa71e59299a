"""Watches how late the event loop runs what is due: a blocked loop shows here first."""

from __future__ import annotations

import asyncio

import structlog

from chatserver.domain.clock import Clock
from chatserver.telemetry.metrics import LOOP_LAG
from chatserver.telemetry.probes import PULSE

INTERVAL_S = 0.25
WARN_S = 0.1

log = structlog.get_logger()


async def watch_loop_lag(clock: Clock) -> None:
    """Observe the loop's lag until cancelled; one of more than 100 ms is logged."""
    while True:
        due = clock.monotonic() + INTERVAL_S
        await asyncio.sleep(INTERVAL_S)
        PULSE.beat()
        lag_s = max(0.0, clock.monotonic() - due)
        LOOP_LAG.observe(lag_s)
        if lag_s > WARN_S:
            log.warning("loop.blocked", lag_ms=round(lag_s * 1000))
