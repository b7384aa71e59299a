"""Event loop lag measurement."""

from __future__ import annotations

import asyncio

import structlog

from chatserver.domain.clock import Clock
from chatserver.telemetry.metrics import LOOP_LAG
from chatserver.telemetry.probes import HEARTBEAT

INTERVAL_S = 0.5
WARN_S = 0.1
STARTUP_S = 10.0  # lag during startup is normal: imports and opening connections block the loop

log = structlog.get_logger()


async def watch_loop_lag(clock: Clock, startup_s: float = STARTUP_S) -> None:
    """Record the event loop's lag until cancelled; log a lag above 100 ms, except at startup."""
    started = clock.monotonic()
    while True:
        due = clock.monotonic() + INTERVAL_S
        await asyncio.sleep(INTERVAL_S)
        HEARTBEAT.record()
        lag_s = max(0.0, clock.monotonic() - due)
        LOOP_LAG.observe(lag_s)
        if lag_s > WARN_S and due - started > startup_s:
            log.warning("loop.blocked", lag_ms=round(lag_s * 1000))
