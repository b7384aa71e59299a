"""One WebSocket connection to a gateway: handshake, frames and close reasons."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)
from websockets.typing import Subprotocol

from chatserver.client.request_queue import Fields
from chatserver.errors import ConfigError
from chatserver.protocol.frames import SUBPROTOCOL

OPEN_S = 10.0
CLOSE_S = 1.0
PING_S = 20.0
PONG_S = 10.0
FRAME_BYTES_MAX = 4_194_304  # maximum size of a received frame; a page can have 256 KB of text


@dataclasses.dataclass
class ConnectionLost(Exception):
    """A connection was closed or could not be opened. Code 0: there is no close code."""

    code: int
    reason: str
    retry_after_ms: int | None = None


class Socket:
    """An open connection that sends and receives decoded frames."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._bye: Fields = {}

    async def send(self, fields: Fields) -> None:
        """Send a frame. If the connection is closed, only `receive` raises an error."""
        with contextlib.suppress(ConnectionClosed):
            await self._connection.send(msgspec.json.encode(fields).decode())

    async def receive(self) -> Fields:
        """Return the next frame.

        Raises:
            ConnectionLost: the connection is closed.
        """
        try:
            while True:
                frame: Any = msgspec.json.decode(await self._connection.recv())
                if not isinstance(frame, dict) or "type" not in frame:
                    continue
                if frame["type"] != "bye":
                    return frame
                self._bye = frame
        except ConnectionClosed as exc:
            code, reason = (exc.rcvd.code, exc.rcvd.reason) if exc.rcvd is not None else (0, "")
            reason = self._bye.get("reason") or reason or "the connection was lost"
            raise ConnectionLost(code, reason, self._bye.get("retry_after_ms")) from exc
        except msgspec.DecodeError as exc:
            raise ConnectionLost(0, f"the server sent invalid JSON: {exc}") from exc

    async def close(self) -> None:
        await self._connection.close()


@contextlib.asynccontextmanager
async def open_socket(url: str) -> AsyncIterator[Socket]:
    """Connect to a gateway.

    Raises:
        ConnectionLost: the server does not respond, or is not a gateway.
        ConfigError: the address is invalid.
    """
    try:
        is_local = urlsplit(url).hostname in {"127.0.0.1", "localhost", "::1"}
        connecting = connect(
            url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            max_size=FRAME_BYTES_MAX,
            open_timeout=OPEN_S,
            close_timeout=CLOSE_S,
            ping_interval=PING_S,
            ping_timeout=PONG_S,
            proxy=None if is_local else True,
        )
    except (InvalidURI, ValueError) as exc:
        raise ConfigError(f"{url}: must be a gateway address, ws:// or wss://") from exc
    try:
        connection = await connecting
    except InvalidStatus as exc:
        wait = _retry_after_ms(exc.response.headers.get)
        raise ConnectionLost(0, f"HTTP {exc.response.status_code}", wait) from exc
    except (OSError, TimeoutError, InvalidHandshake, WebSocketException) as exc:
        raise ConnectionLost(0, str(exc) or type(exc).__name__) from exc
    try:
        yield Socket(connection)
    finally:
        await connection.close()


def _retry_after_ms(header: Callable[[str], str | None]) -> int | None:
    """Return the Retry-After header in milliseconds; None if it is not given in seconds."""
    value = header("Retry-After")
    return int(value) * 1000 if value is not None and value.isdecimal() else None
