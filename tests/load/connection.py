"""A WebSocket connection of the load generator, up to the point where frames come."""

from __future__ import annotations

import asyncio
import collections
from typing import cast

from tests.load import wire

UPGRADE_TIMEOUT_S = 10


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


class Connection(asyncio.Protocol):
    """Upgrades, keeps what is left of an incomplete frame, and knows an unwanted end.

    A subclass takes frames in `read_frames`.
    """

    transport: asyncio.Transport

    def __init__(self, name: str, tally: Tally) -> None:
        self.name = name
        self.tally = tally
        self._rest = b""
        self._is_closing = False
        self._upgrade: tuple[bytes, asyncio.Future[None]] | None = None

    async def connect(self, port: int, subprotocol: str | None = None) -> None:
        """Open the connection and upgrade it.

        Raises:
            BadHandshake: the server did not agree.
        """
        loop = asyncio.get_running_loop()
        request, accept = wire.upgrade_request(port, subprotocol)
        done: asyncio.Future[None] = loop.create_future()
        self._upgrade = (accept, done)
        await loop.create_connection(lambda: self, "127.0.0.1", port)
        self.transport.write(request)
        await asyncio.wait_for(done, UPGRADE_TIMEOUT_S)

    def close(self) -> None:
        """Close it; that the server closes its side too is then no violation."""
        self._is_closing = True
        self.transport.close()

    def read_frames(self, data: bytes) -> int:
        """Take every whole frame of `data`; return where the first incomplete one begins."""
        raise NotImplementedError

    def ended(self, failure: ConnectionError) -> None:
        """The connection is gone: give up what waits for an answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if self._upgrade is not None:
            self._read_upgrade(data)
            return
        pos = self.read_frames(data)
        if pos < len(data):
            self._rest = data[pos:]

    def _read_upgrade(self, data: bytes) -> None:
        head, found, rest = data.partition(b"\r\n\r\n")
        if not found:
            self._rest = data
            return
        assert self._upgrade is not None
        accept, done = self._upgrade
        self._upgrade = None
        try:
            wire.check_upgrade(head, accept)
        except wire.BadHandshake as exc:
            done.set_exception(exc)
            return
        done.set_result(None)
        if rest:
            self.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_closing:
            self.tally.note("closed", f"{self.name}: the server closed the connection: {exc}")
        failure = ConnectionResetError(f"{self.name}: the connection is gone")
        if self._upgrade is not None and not self._upgrade[1].done():
            self._upgrade[1].set_exception(failure)
        self.ended(failure)
