"""Self-check of the gateway's stream: the gateway sends echo records to itself through Redis.

The stream reader has its own Redis connection, which can hang while the gateway's other connections
work.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.jitter import add_jitter
from chatserver.hot.bus.gateway_stream import Echo, GatewayStream

log = structlog.get_logger()

INTERVAL_S: Final = 2.0
FIRST_S: Final = 0.1  # interval between echo records until the first one arrives
# The gateway is not ready if no echo record arrives for this long (three intervals).
LATE_S: Final = 6.0


class GatewayStreamEcho:
    """Sends echo records to the gateway's own stream and checks that they arrive."""

    def __init__(self, gateway_stream: GatewayStream, clock: Clock) -> None:
        self._gateway_stream = gateway_stream
        self._clock = clock
        self._number = 0
        self._arrived_at: float | None = None
        self._is_late = False

    async def run(self) -> None:
        while True:
            self._number += 1
            self._gateway_stream.send_to_self(Echo(self._number))
            if self._arrived_at is None:
                # Records sent before the gateway first reads its stream are lost.
                await asyncio.sleep(FIRST_S)
                continue
            await asyncio.sleep(add_jitter(INTERVAL_S))
            if bool(self.find_problem()) != self._is_late:
                self._is_late = not self._is_late
                log.warning(
                    "gateway_stream.echo_delayed"
                    if self._is_late
                    else "gateway_stream.echo_resumed"
                )

    def record_arrival(self, echo: Echo) -> None:
        if echo.number <= self._number:
            self._arrived_at = self._clock.monotonic()

    def find_problem(self) -> str:
        """Return an error text if no echo record has arrived, or none within `LATE_S`; else ''."""
        if self._arrived_at is None:
            return "the gateway has not received an echo through its stream yet"
        if self._clock.monotonic() - self._arrived_at > LATE_S:
            return "the gateway receives no echoes through its stream; check Redis"
        return ""
