"""A simulated device's connection, from handshake to disconnect."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol, Self

import msgspec

from chatserver.loadtest import frame_reader, wire
from chatserver.loadtest.connection import LoadConnection
from chatserver.protocol.frames import SUBPROTOCOL

HELLO_S: Final = 15.0


class HelloRefused(Exception):
    """The server responded to `hello` with `error` or `bye` instead of `welcome`."""

    def __init__(self, text: str, *, is_temporary: bool, retry_after_s: float | None) -> None:
        super().__init__(text)
        self.is_temporary = is_temporary
        self.retry_after_s = retry_after_s


class ConnectionOwner(Protocol):
    """Handles a connection's frames and its disconnect."""

    user: str

    def handle_frame(self, frame: frame_reader.ReceivedFrame) -> None: ...

    def handle_unreadable(self, data: bytes) -> None: ...

    def handle_link_close(self, link: DeviceConnection) -> None: ...


class DeviceConnection(LoadConnection):
    """Passes each frame that follows `welcome` to the owner, and then the disconnect."""

    def __init__(self, owner: ConnectionOwner) -> None:
        super().__init__(owner.user)
        self._owner = owner
        self._early: list[frame_reader.ReceivedFrame] = []  # frames received before `start`
        self._is_started = self._is_aborted = self._is_ended = False
        self._welcome: asyncio.Future[frame_reader.Welcome] | None = None
        self._bye: frame_reader.Bye | None = None
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}

    @classmethod
    async def open(
        cls, owner: ConnectionOwner, address: wire.Address, hello: dict[str, Any]
    ) -> tuple[Self, frame_reader.Welcome]:
        """Connect and send `hello`; if that fails, close the connection.

        Raises:
            Refused: the server rejects this user, permanently or temporarily.
            BadHandshake, OSError, TimeoutError: the server does not respond, or is not a gateway.
        """
        link = cls(owner)
        try:
            await link.open_to(address, SUBPROTOCOL)
            link._welcome = asyncio.get_running_loop().create_future()
            link.write(hello)
            return link, await asyncio.wait_for(link._welcome, HELLO_S)
        except BaseException:
            link.abort()
            raise

    def start(self) -> None:
        """Pass the buffered frames to the owner; later frames are passed as they arrive."""
        self._is_started = True
        early, self._early = self._early, []
        for frame in early:
            self._owner.handle_frame(frame)
        if self._is_ended:
            self._owner.handle_link_close(self)

    def abort(self) -> None:
        """Abort the connection without a close frame."""
        self._is_aborted = self._is_closing = True
        if hasattr(self, "transport"):
            self.transport.abort()

    def write(self, fields: dict[str, Any]) -> None:
        self.transport.write(wire.encode_client_frame(frame_reader.encode(fields)))

    async def request_fields(self, fields: dict[str, Any], id_: int) -> dict[str, Any]:
        """Send a request and return all fields of its response. Raises ConnectionError."""
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[id_] = reply
        self.write(fields)
        return await reply

    def _is_awaited_reply(self, payload: bytes) -> bool:
        """Pass the frame to `request_fields` if it is one of its responses."""
        try:
            fields = msgspec.json.decode(payload, type=dict[str, Any])
        except msgspec.MsgspecError:
            return False
        # A response to a request that its caller no longer waits for must not count as unexpected.
        reply = self._replies.pop(fields["id"], None) if isinstance(fields.get("id"), int) else None
        if reply is None:
            return False
        if not reply.done():
            reply.set_result(fields)
        return True

    def read_frames(self, data: bytes) -> int:
        pos, end = 0, len(data)
        while (payload := wire.find_payload(data, pos)) is not None and payload[1] <= end:
            start, stop = payload
            first = data[pos]
            if first == wire.TEXT:
                if self._is_aborted:
                    return end  # discard frames in transit
                if self._replies and self._is_awaited_reply(data[start:stop]):
                    pos = stop
                    continue
                try:
                    frame = frame_reader.decode(data[start:stop])
                except msgspec.MsgspecError:
                    self._owner.handle_unreadable(data[start:stop])
                else:
                    if self._is_started:
                        self._owner.handle_frame(frame)
                    else:
                        self._handle_early_frame(frame)
            elif first == wire.PING:
                self.transport.write(wire.encode_client_frame(data[start:stop], wire.PONG))
            elif first == wire.CLOSE:
                self.transport.close()
            pos = stop
        return pos

    def _handle_early_frame(self, frame: frame_reader.ReceivedFrame) -> None:
        welcome = self._welcome
        if welcome is None or welcome.done():
            self._early.append(frame)
        elif isinstance(frame, frame_reader.Welcome):
            welcome.set_result(frame)
        elif isinstance(frame, frame_reader.Refusal):
            wait_s = frame.retry_after_ms / 1000
            text = f"{frame.code}: {frame.message}"
            welcome.set_exception(
                HelloRefused(text, is_temporary=frame.temporary, retry_after_s=wait_s)
            )
        elif isinstance(frame, frame_reader.Bye):
            self._bye = frame

    def handle_close(self, failure: ConnectionError, *, is_expected: bool) -> None:
        bye, self._is_ended = self._bye, True
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(failure)
        if self._welcome is not None and not self._welcome.done():
            if bye is None:
                self._welcome.set_exception(failure)
            else:
                wait_s = None if bye.retry_after_ms is None else bye.retry_after_ms / 1000
                self._welcome.set_exception(
                    HelloRefused(bye.reason, is_temporary=bye.code < 3500, retry_after_s=wait_s)
                )
        if self._is_started and not is_expected:
            self._owner.handle_link_close(self)
