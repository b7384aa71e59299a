"""A WebSocket connection of the benchmarks: one that ends by itself is a violation."""

from __future__ import annotations

import collections

from chatserver.loadtest import connection
from chatserver.loadtest.wire import Address


class Tally:
    """Counts what must not happen, and keeps the first examples of it."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.examples: list[str] = []
        self.slow_frames = 0  # not wrong, but a sign that the fast path misses the server's form
        self.stored_frames = 0
        self.refused = 0  # sends answered with an error: what comes after has other numbers

    @property
    def is_void(self) -> bool:
        """True if sends were refused: then nothing can be said of loss and order."""
        return self.refused > 0

    def note(self, kind: str, text: str) -> None:
        """Count one violation."""
        self.counts[kind] += 1
        if len(self.examples) < 20:
            self.examples.append(f"{kind}: {text}"[:300])


class Connection(connection.Connection):
    """A connection to a server on this machine."""

    def __init__(self, name: str, tally: Tally) -> None:
        super().__init__(name)
        self.tally = tally

    async def connect(self, port: int, subprotocol: str | None = None) -> None:
        """Open the connection and upgrade it. Raises BadHandshake."""
        await self.open_to(Address("127.0.0.1", port), subprotocol)

    def ended(self, failure: ConnectionError, *, is_wanted: bool) -> None:
        """Count an end that we did not want."""
        if not is_wanted:
            self.tally.note("closed", str(failure))
