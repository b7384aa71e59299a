"""TCP proxy that injects network faults between two processes.

It runs between a client and a server on loopback, in the test's own event loop. All faults apply to
every connection, open and future, until `end_faults`:

| fault        | effect on the peers                                                          |
|--------------|------------------------------------------------------------------------------|
| `latency_s`  | each chunk is delayed by this time                                           |
| `bytes_per_s`| maximum bandwidth of each direction; 0: no limit                             |
| `blackhole`  | bytes of a direction are dropped; the connection looks alive                 |
| `tear`       | the answer ends after a number of bytes, with a reset (once)                 |
| `reset`      | a reset (RST) on every open connection, now                                  |
| `refuse`     | new connections are reset immediately                                        |

Directions: ``up`` is client to server, ``down`` is server to client.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Literal, Self

Direction = Literal["up", "down"]
_CHUNK_BYTES = 65_536
_RST_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 seconds


class _Link:
    """One proxied connection."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.has_lost_bytes = False

    def reset(self) -> None:
        """Reset both sides."""
        for writer in (self.client, self.server):
            sock: socket.socket = writer.get_extra_info("socket")
            if sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
            writer.transport.abort()


class TcpProxy:
    """Forwards connections to one port. Use as an async context manager."""

    def __init__(self, target_port: int, host: str = "127.0.0.1") -> None:
        self.host = host
        self.target_port = target_port
        self.port = 0
        self.latency_s = 0.0
        self.bytes_per_s = 0
        self.is_refusing = False
        self.blackholes: set[Direction] = set()
        self.connections_made = 0
        self._tear_after: int | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # faults

    def blackhole(self, *directions: Direction) -> None:
        """Drop the bytes of these directions."""
        self.blackholes = set(directions or ("up", "down"))

    def tear(self, after_bytes: int) -> None:
        """Forward `after_bytes` more bytes of responses, then reset that connection."""
        self._tear_after = after_bytes

    def reset(self) -> None:
        """Reset every open connection."""
        for link in list(self._links):
            link.reset()

    def refuse(self) -> None:
        """Reset every open and every new connection."""
        self.is_refusing = True
        self.reset()

    @property
    def has_lost_bytes(self) -> bool:
        """True once bytes of an open connection were dropped."""
        return any(link.has_lost_bytes for link in self._links)

    def end_faults(self) -> None:
        """End all faults. A connection with dropped bytes is reset, because it cannot recover."""
        self.latency_s = 0.0
        self.bytes_per_s = 0
        self.is_refusing = False
        self.blackholes = set()
        self._tear_after = None
        for link in list(self._links):
            if link.has_lost_bytes:
                link.reset()

    # forwarding

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections_made += 1
        if self.is_refusing:
            _Link(writer, writer).reset()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(self.host, self.target_port)
        except OSError:
            _Link(writer, writer).reset()
            return
        link = _Link(writer, far_writer)
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(link, "up", reader, far_writer),
                self._pump(link, "down", far_reader, writer),
            )
        except (ConnectionError, OSError):
            link.reset()
        finally:
            self._links.discard(link)
            link.client.transport.abort()
            link.server.transport.abort()

    async def _pump(
        self,
        link: _Link,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if self.latency_s:
                await asyncio.sleep(self.latency_s)
            if self.bytes_per_s:
                await asyncio.sleep(len(data) / self.bytes_per_s)
            if direction in self.blackholes:
                link.has_lost_bytes = True
                continue
            if direction == "down" and self._tear_after is not None:
                data = await self._torn(link, data, writer)
            writer.write(data)
            await writer.drain()
        if direction not in self.blackholes and writer.can_write_eof():
            writer.write_eof()

    async def _torn(self, link: _Link, data: bytes, writer: asyncio.StreamWriter) -> bytes:
        assert self._tear_after is not None
        if len(data) <= self._tear_after:
            self._tear_after -= len(data)
            return data
        writer.write(data[: self._tear_after])
        self._tear_after = None
        await writer.drain()
        raise ConnectionResetError("torn")
