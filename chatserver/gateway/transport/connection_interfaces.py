"""Interfaces of a connection: its host server and the receiver of its messages."""

from __future__ import annotations

from typing import Protocol, TypeVar

from websockets.http11 import Request
from websockets.server import ServerProtocol

from chatserver import config
from chatserver.domain.ids import DeviceId, GatewayId, UserId

ConnectionT = TypeVar("ConnectionT")


class Receiver(Protocol):
    """Receiver of a connection's messages. `user` and `device` are empty before `hello`."""

    @property
    def user(self) -> UserId: ...
    @property
    def device(self) -> DeviceId: ...

    def handle_message(self, payload: bytes) -> None:
        """Handle a complete message: the UTF-8 bytes of its JSON text."""

    def handle_disconnect(self) -> None:
        """Handle the end of the connection."""

    def record_slow_close(self, waiting_bytes: int) -> None:
        """Record that the connection closes because its peer reads too slowly.

        `waiting_bytes` is the size of the connection's send queue.
        """


class Host(Protocol[ConnectionT]):
    """The server that a connection belongs to."""

    settings: config.Gateway
    gateway: GatewayId
    slow: set[ConnectionT]  # connections with a full socket buffer

    def handle_connect(self, connection: ConnectionT) -> None:
        """Handle an accepted socket, before its handshake."""

    def respond_http(self, request: Request, protocol: ServerProtocol, address: str) -> bool:
        """Respond to a health check or refuse a request; return False for an allowed handshake."""

    def get_address(self, peer: str, request: Request) -> str:
        """Return the client's IP address; `peer` may be a proxy."""

    def create_receiver(self, connection: ConnectionT) -> Receiver:
        """Return the receiver of a connection that has completed its handshake."""

    def remove_connection(self, connection: ConnectionT) -> None:
        """Handle the end of a connection, whether its handshake completed or not."""

    def flush_soon(self, connection: ConnectionT) -> None:
        """Call the connection's `flush` at the end of this tick."""
