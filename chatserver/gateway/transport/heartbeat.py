"""Heartbeat timer wheel: pings each connection once per interval without per-connection timers."""

from __future__ import annotations

import random

from chatserver.gateway.transport.connection import Connection

TICK_S_MAX = 1.0
SLOTS_MIN = 4


class HeartbeatWheel:
    """Timer wheel of connections; one revolution takes one ping interval."""

    def __init__(self, interval_s: float, timeout_s: float) -> None:
        self.tick_s = min(TICK_S_MAX, interval_s / SLOTS_MIN)
        size = max(SLOTS_MIN, round(interval_s / self.tick_s))
        self._slots: list[set[Connection]] = [set() for _ in range(size)]
        self._slots_by_connection: dict[Connection, int] = {}
        self._tick = 0
        # Ticks from a slot's pings to the check for its pongs; less than a revolution, so that the
        # check precedes the slot's next pings.
        self._timeout_ticks = min(size - 1, max(1, round(timeout_s / self.tick_s)))

    def add(self, connection: Connection) -> None:
        """Add a connection to a random slot, which spreads the pings over the interval."""
        slot = random.randrange(len(self._slots))  # noqa: S311  # for jitter, not for security
        self._slots[slot].add(connection)
        self._slots_by_connection[connection] = slot

    def remove(self, connection: Connection) -> None:
        slot = self._slots_by_connection.pop(connection, None)
        if slot is not None:
            self._slots[slot].discard(connection)

    def advance(self) -> tuple[list[Connection], list[Connection]]:
        """Advance one tick. Return `(to_ping, timed_out)`: timed-out connections sent no pong."""
        self._tick = (self._tick + 1) % len(self._slots)
        waiting = self._slots[(self._tick - self._timeout_ticks) % len(self._slots)]
        overdue = [connection for connection in waiting if connection.pinged_at is not None]
        return list(self._slots[self._tick]), overdue
