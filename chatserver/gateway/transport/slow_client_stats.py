"""Slow clients, current and recently closed, for the admin page."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection
from typing import Any

from chatserver.domain.clock import Clock
from chatserver.domain.ids import DeviceId, UserId
from chatserver.gateway.transport.connection import Connection
from chatserver.telemetry.process_stats import QUEUES_MAX, SLOW_MAX, Queue, SlowClose


class SlowClients:
    """The current slow clients (`slow`), and the last `SLOW_MAX` that were closed as slow."""

    def __init__(self, slow: Collection[Connection], clock: Clock) -> None:
        self._clock = clock
        self._slow = slow
        self._closed: deque[SlowClose] = deque(maxlen=SLOW_MAX)

    def record_close(self, user: UserId, device: DeviceId, waiting_bytes: int) -> None:
        self._closed.append(SlowClose(user, device, int(self._clock.time() * 1000), waiting_bytes))

    async def drain_stats(self) -> dict[str, Any]:
        """Return the slow clients with the longest queues, and those closed since the last call."""
        queues = [
            Queue(receiver.user, receiver.device, connection.queued_bytes)
            for connection in self._slow
            if (receiver := connection.receiver) is not None
        ]
        longest = heapq.nlargest(
            QUEUES_MAX, queues, key=lambda connection: connection.waiting_bytes
        )
        closed = list(self._closed)
        self._closed.clear()
        return {"queues": longest, "slow": closed}
