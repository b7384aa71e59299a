"""WebSocket connection of the load generator: upgrade, frame buffering and disconnect handling."""

from __future__ import annotations

import abc
import asyncio
import ssl
from typing import cast

from chatserver.loadtest import wire

UPGRADE_TIMEOUT_S = 10


class LoadConnection(asyncio.Protocol, abc.ABC):
    """Upgrades the connection, buffers incomplete frames and detects unexpected disconnects.

    A subclass handles frames in `read_frames` and the disconnect in `handle_close`.
    """

    transport: asyncio.Transport

    def __init__(self, name: str) -> None:
        self.name = name
        self._rest = b""
        self._is_closing = False
        self._upgrade: tuple[bytes, asyncio.Future[None]] | None = None

    async def open_to(self, address: wire.Address, subprotocol: str | None = None) -> None:
        """Open the connection and upgrade it, within `UPGRADE_TIMEOUT_S`.

        Raises:
            BadHandshake: the server rejected the upgrade.
            OSError, TimeoutError: the server does not respond.
        """
        loop = asyncio.get_running_loop()
        request, accept = wire.build_upgrade_request(address, subprotocol)
        done: asyncio.Future[None] = loop.create_future()
        self._upgrade = (accept, done)
        context = ssl.create_default_context() if address.is_tls else None
        async with asyncio.timeout(UPGRADE_TIMEOUT_S):
            await loop.create_connection(lambda: self, address.host, address.port, ssl=context)
            self.transport.write(request)
            await done

    def close(self) -> None:
        """Close the connection; the disconnect that follows is not a violation."""
        self._is_closing = True
        self.transport.close()

    @abc.abstractmethod
    def read_frames(self, data: bytes) -> int:
        """Handle every complete frame in `data`; return the offset of the first incomplete one."""

    def handle_close(self, failure: ConnectionError, *, is_expected: bool) -> None:
        """Handle the disconnect. `is_expected`: this client closed the connection."""

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
        head, separator, body_start = data.partition(b"\r\n\r\n")
        if not separator:
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
        if body_start:
            self.data_received(body_start)

    def connection_lost(self, exc: Exception | None) -> None:
        failure = ConnectionResetError(f"{self.name}: connection lost: {exc}")
        if self._upgrade is not None and not self._upgrade[1].done():
            self._upgrade[1].set_exception(failure)
        self.handle_close(failure, is_expected=self._is_closing)


async def probe_gateway(url: str) -> None:
    """Check that the URL is a gateway: open a WebSocket and close it again.

    Raises:
        BadHandshake: the server is not a gateway.
        OSError, TimeoutError: the server does not respond.
    """
    connection = _Probe("probe")
    await connection.open_to(wire.parse_address(url))
    connection.close()


class _Probe(LoadConnection):
    def read_frames(self, data: bytes) -> int:
        return len(data)
