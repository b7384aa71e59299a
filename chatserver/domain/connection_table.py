"""Connection table: selects the connection to close when the process or an address has too many.

Pure: no I/O and no clock. New connections are always accepted. At the limit, one of the connections
on which the server waits for the client is closed: an idle one if there is one, else one that is
receiving a request, else one that is sending a response (see `ConnectionStage`); the oldest first.
A connection whose request is being processed is never closed. If clients keep many requests
half-open, mostly their connections are closed, because the server waits for a normal client only
for milliseconds.
"""

from __future__ import annotations

import enum
from typing import Final, Generic, TypeVar

C = TypeVar("C")


class ConnectionStage(enum.IntEnum):
    """Connection stages. At the limit, a connection in the lowest stage is closed first."""

    IDLE = 0  # between two requests
    HEAD = 1  # receiving a request head, or a handshake
    BODY = 2  # receiving the rest of a request
    WRITE = 3  # waiting for the peer to read the response
    BUSY = 4  # processing; never closed to make room for another connection


_WAITING: Final = (
    ConnectionStage.IDLE,
    ConnectionStage.HEAD,
    ConnectionStage.BODY,
    ConnectionStage.WRITE,
)


class _Group(Generic[C]):
    """Connections by stage, ordered by when they entered the stage."""

    __slots__ = ("count", "stages")

    def __init__(self) -> None:
        self.stages: tuple[dict[C, None], ...] = tuple({} for _ in ConnectionStage)
        self.count = 0

    def put(self, connection: C, stage: ConnectionStage) -> None:
        self.stages[stage][connection] = None
        self.count += 1

    def remove(self, connection: C, stage: ConnectionStage) -> None:
        del self.stages[stage][connection]
        self.count -= 1

    def find_oldest(self, newcomer: C) -> C | None:
        for stage in _WAITING:
            for connection in self.stages[stage]:
                if connection is not newcomer:
                    return connection
        return None


class ConnectionTable(Generic[C]):
    """The connections of a process, limited in total and per address.

    The table accepts up to an eighth more connections than the limits, so that the server can
    answer a health check while it processes the maximum number of connections.
    """

    def __init__(self, connections_max: int, per_address_max: int) -> None:
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._all: _Group[C] = _Group()
        self._by_address: dict[str, _Group[C]] = {}
        self._entries: dict[C, tuple[str | None, ConnectionStage]] = {}

    def __len__(self) -> int:
        return self._all.count

    def count(self, stage: ConnectionStage) -> int:
        return len(self._all.stages[stage])

    def put(self, connection: C, address: str | None, stage: ConnectionStage) -> C | None:
        """Add or move a connection; return the connection to close if a limit is exceeded.

        `address` is the peer's address; None for a proxy, which has no limit per address.
        """
        self.remove(connection)
        self._entries[connection] = (address, stage)
        self._all.put(connection, stage)
        if address is not None:
            group = self._by_address.get(address)
            if group is None:
                group = self._by_address[address] = _Group()
            group.put(connection, stage)
            if group.count > _with_headroom(self._per_address_max):
                return group.find_oldest(connection)
        if self._all.count > _with_headroom(self._connections_max):
            return self._all.find_oldest(connection)
        return None

    def move(self, connection: C, stage: ConnectionStage) -> None:
        """Move a connection to a stage; does nothing if it has been removed."""
        entry = self._entries.get(connection)
        if entry is None:
            return
        address, before = entry
        self._entries[connection] = (address, stage)
        self._all.remove(connection, before)
        self._all.put(connection, stage)
        if address is not None:
            group = self._by_address[address]
            group.remove(connection, before)
            group.put(connection, stage)

    def remove(self, connection: C) -> None:
        """Remove a connection. Idempotent."""
        entry = self._entries.pop(connection, None)
        if entry is None:
            return
        address, stage = entry
        self._all.remove(connection, stage)
        if address is not None:
            group = self._by_address[address]
            group.remove(connection, stage)
            if not group.count:
                del self._by_address[address]

    @property
    def is_full(self) -> bool:
        """True while the server processes more connections than the limit."""
        return self.count(ConnectionStage.BUSY) > self._connections_max

    def is_share_used_up(self, address: str) -> bool:
        """Return whether the server processes more connections from an address than allowed."""
        group = self._by_address.get(address)
        return group is not None and len(group.stages[ConnectionStage.BUSY]) > self._per_address_max


def _with_headroom(bound: int) -> int:
    return bound + max(1, bound // 8)
