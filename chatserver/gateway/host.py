"""What a connection needs of its server, and of who takes its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from websockets.http11 import Request
from websockets.server import ServerProtocol

from chatserver import config
from chatserver.domain.ids import DeviceId, GatewayId, UserId

if TYPE_CHECKING:
    from chatserver.gateway.connection import Connection


class Receiver(Protocol):
    """Who takes a connection's messages. Whose it is: empty before a good hello."""

    @property
    def user(self) -> UserId: ...
    @property
    def device(self) -> DeviceId: ...

    def received(self, payload: bytes) -> None:
        """A whole text message, valid UTF-8."""

    def lost(self) -> None:
        """The connection is over."""

    def dropped_slow(self, waiting_bytes: int) -> None:
        """The peer is being closed, as it did not take so much."""


class Host(Protocol):
    """What a connection needs of its server."""

    settings: config.Gateway
    gateway: GatewayId
    slow: set[Connection]  # whose peers do not take what is written, now

    def connected(self, connection: Connection) -> None:
        """A socket was accepted; its handshake comes next."""

    def answer_http(self, request: Request, protocol: ServerProtocol, address: str) -> bool:
        """Answer a plain HTTP request; False if it is a handshake to be accepted."""

    def address_of(self, peer: str, request: Request) -> str:
        """Return the client's address, where `peer` may be a proxy."""

    def opened(self, connection: Connection) -> Receiver:
        """A handshake is done: who takes the messages?"""

    def gone(self, connection: Connection) -> None:
        """A connection is over, opened or not."""

    def flush_soon(self, connection: Connection) -> None:
        """Call `flush` at the end of this tick."""
