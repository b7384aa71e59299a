"""A wheel of connections: each is pinged once per turn, without a timer of its own."""

from __future__ import annotations

import random

from chatserver.gateway.connection import Connection

TICK_S_MAX = 1.0
SLOTS_MIN = 4


class Wheel:
    """Connections in slots; a turn of the wheel takes one ping interval."""

    def __init__(self, interval_s: float, timeout_s: float) -> None:
        self.tick_s = min(TICK_S_MAX, interval_s / SLOTS_MIN)
        size = max(SLOTS_MIN, round(interval_s / self.tick_s))
        self._slots: list[set[Connection]] = [set() for _ in range(size)]
        self._slot_of: dict[Connection, int] = {}
        self._at = 0
        # A slot is looked at again this many ticks after its pings went out; within one turn.
        self._patience = min(size - 1, max(1, round(timeout_s / self.tick_s)))

    def add(self, connection: Connection) -> None:
        """Put a connection into a slot of its own luck: that is the jitter."""
        slot = random.randrange(len(self._slots))  # noqa: S311  # spread, not a secret
        self._slots[slot].add(connection)
        self._slot_of[connection] = slot

    def remove(self, connection: Connection) -> None:
        """Forget a connection."""
        slot = self._slot_of.pop(connection, None)
        if slot is not None:
            self._slots[slot].discard(connection)

    def turn(self) -> tuple[list[Connection], list[Connection]]:
        """Move on by a tick; return whom to ping, and who has not answered in time."""
        self._at = (self._at + 1) % len(self._slots)
        waiting = self._slots[(self._at - self._patience) % len(self._slots)]
        overdue = [connection for connection in waiting if connection.pinged_at is not None]
        return list(self._slots[self._at]), overdue
