"""Connections on a fake transport: closes that real sockets reach only by chance."""

from __future__ import annotations

import asyncio

import pytest
from websockets.http11 import Request
from websockets.server import ServerProtocol

from chatserver.config import Gateway
from chatserver.domain.ids import DeviceId, GatewayId, UserId
from chatserver.gateway.transport.connection import Connection, Phase
from tests.support.wire import CLOSE, build_frame, build_request, close_payload


class Socket(asyncio.Transport):
    """A transport that records writes, and raises where a real one would."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_ended = False
        self.is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """This transport has no buffer."""

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        self.written += bytes(data)

    def write_eof(self) -> None:
        self.is_ended = True

    def close(self) -> None:
        self.is_closed = True


class FakeServer:
    """A server with one connection, and the receiver of its messages."""

    def __init__(self) -> None:
        self.settings = Gateway()
        self.gateway = GatewayId("gw")
        self.dirty: list[Connection] = []
        self.slow: set[Connection] = set()
        self.is_lost = False
        self.user, self.device = UserId("u"), DeviceId("d")
        self.dropped: list[int] = []
        self.requests: list[Request] = []

    def respond_http(self, request: Request, protocol: ServerProtocol, address: str) -> bool:
        return False

    def get_address(self, peer: str, request: Request) -> str:
        assert request.headers["Upgrade"] == "websocket"
        self.requests.append(request)
        return peer

    def handle_connect(self, connection: Connection) -> None: ...

    def create_receiver(self, connection: Connection) -> FakeServer:
        return self

    def remove_connection(self, connection: Connection) -> None:
        """Nothing to remove."""

    def record_slow_close(self, waiting_bytes: int) -> None:
        self.dropped.append(waiting_bytes)

    def flush_soon(self, connection: Connection) -> None:
        self.dirty.append(connection)

    def handle_message(self, payload: bytes) -> None:
        """Send no response."""

    def handle_disconnect(self) -> None:
        self.is_lost = True


def flush(server: FakeServer) -> None:
    """Flush the connections that have queued frames."""
    dirty, server.dirty = server.dirty, []
    for connection in dirty:
        connection.flush()


@pytest.fixture
async def opened() -> tuple[FakeServer, Socket, Connection]:
    """A connection after its handshake."""
    server, socket = FakeServer(), Socket()
    connection = Connection(server)
    connection.connection_made(socket)
    connection.data_received(build_request("h")[0])
    assert connection.phase is Phase.OPEN
    socket.written = b""
    return server, socket, connection


async def test_headers_of_the_handshake_are_freed(
    opened: tuple[FakeServer, Socket, Connection],
) -> None:
    """The library keeps the request: its headers were 2 KB of each idle session."""
    server, _socket, _connection = opened
    (request,) = server.requests

    assert not request.headers and not list(request.headers.raw_items())


@pytest.mark.parametrize("is_paused", [True, False])
@pytest.mark.parametrize("how", ["close frame", "end of stream"])
async def test_frames_queued_when_the_peer_closes_are_dropped(
    opened: tuple[FakeServer, Socket, Connection], is_paused: bool, how: str
) -> None:
    """A write after the end would raise and stop the flush of the other connections."""
    server, socket, connection = opened
    if is_paused:
        connection.pause_writing()
    connection.send_text(b'{"type":"event"}')

    if how == "close frame":
        connection.data_received(build_frame(CLOSE, close_payload(1000)))
    else:
        connection.eof_received()
    connection.send_text(b'{"type":"event"}')
    flush(server)
    if is_paused:
        connection.resume_writing()

    assert socket.is_ended
    connection.connection_lost(None)
    assert server.is_lost


async def test_frames_queued_before_close_are_written_first(
    opened: tuple[FakeServer, Socket, Connection],
) -> None:
    """A `bye` precedes the close frame even if writing was paused."""
    server, socket, connection = opened
    connection.pause_writing()
    connection.send_text(b"bye")

    connection.close(3000, "shutdown")
    flush(server)
    connection.resume_writing()

    assert socket.written == b"\x81\x03bye" + b"\x88\x0a" + close_payload(3000, b"shutdown")
    connection.connection_lost(None)
