"""Deadlines of many HTTP connections that expire together."""

from __future__ import annotations

import asyncio
from typing import Any

from chatserver import config
from chatserver.api.http_connection import EXPIRED_IN_TICK_MAX, HttpLimits


class Connection:
    """A connection that records its expiry."""

    def __init__(self, expired: list[Connection]) -> None:
        self._expired = expired

    def expire(self) -> None:
        self._expired.append(self)


async def test_connections_that_expire_together_close_in_several_ticks() -> None:
    """Thousands of half-open requests that started together do not block the event loop."""
    limits: Any = HttpLimits(config.Api(), [])
    expired: list[Connection] = []
    connections = [Connection(expired) for _ in range(3 * EXPIRED_IN_TICK_MAX)]
    counts = []

    for connection in connections:
        limits.add_expired(connection)
    limits.remove_expired(connections[1])  # its stage ended in time
    for _ in range(4):
        await asyncio.sleep(0)
        counts.append(len(expired))

    assert max(b - a for a, b in zip([0, *counts], counts, strict=False)) == EXPIRED_IN_TICK_MAX
    assert expired == [connections[0], *connections[2:]]
