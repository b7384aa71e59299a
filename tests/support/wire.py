"""WebSocket client that can violate the protocol, for server tests.

It shares no code with the server or with a WebSocket library: it builds and parses frames according
to RFC 6455 itself, and lets a test set each bit. Every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import msgspec

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA

DEADLINE_S = 20.0  # deadline of expected events; only a failure takes this long
SUBPROTOCOL = "chat.v1"
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


class Frame(NamedTuple):
    """One frame as received from the server."""

    opcode: int
    payload: bytes
    fin: bool = True
    rsv: int = 0
    masked: bool = False

    @property
    def close_code(self) -> int | None:
        """The code of a close frame, or None if it has none."""
        assert self.opcode == CLOSE, f"not a close frame: {self}"
        return int.from_bytes(self.payload[:2], "big") if len(self.payload) >= 2 else None


class Response(NamedTuple):
    """The head of the handshake response, and the body if the upgrade was refused."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


class Ended(Exception):
    """The server closed the TCP connection: `how` is ``eof`` or ``reset``."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class Refused(Exception):
    """The server did not upgrade the connection."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"{response.status} {response.headers} {response.body[:200]!r}")
        self.response = response


def build_frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    mask: bytes | None = b"\x37\xfa\x21\x3d",
    length_bytes: int | None = None,
) -> bytes:
    """Build one frame.

    `mask` None leaves the frame unmasked. `length_bytes` 0, 2 or 8 forces a length encoding, also
    where RFC 6455 requires a shorter one; None selects the shortest.
    """
    size = len(payload)
    if length_bytes is None:
        length_bytes = 0 if size < 126 else 2 if size < 65_536 else 8
    mask_bit = 0 if mask is None else 0x80
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    match length_bytes:
        case 0:
            head += bytes([mask_bit | size])
        case 2:
            head += bytes([mask_bit | 126]) + struct.pack("!H", size)
        case _:
            head += bytes([mask_bit | 127]) + struct.pack("!Q", size)
    if mask is None:
        return head + payload
    return head + mask + apply_mask(payload, mask)


def apply_mask(payload: bytes, mask: bytes) -> bytes:
    """Apply the mask to the payload; applying it twice restores the payload."""
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


def close_payload(code: int, reason: bytes = b"") -> bytes:
    """Return the payload of a close frame."""
    return struct.pack("!H", code) + reason


def build_request(
    host: str,
    *,
    target: str = "/",
    method: str = "GET",
    subprotocols: Sequence[str] = (SUBPROTOCOL,),
    key: str | None = None,
    change: dict[str, str | None] | None = None,
    more: Iterable[tuple[str, str]] = (),
) -> tuple[bytes, str]:
    """Return an upgrade request and the accept value expected in the response.

    `change` replaces headers by name, or removes them (None); `more` adds lines unchanged.
    """
    key = base64.b64encode(os.urandom(16)).decode() if key is None else key
    headers: dict[str, str] = {
        "Host": host,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Version": "13",
    }
    if subprotocols:
        headers["Sec-WebSocket-Protocol"] = ", ".join(subprotocols)
    for name, value in (change or {}).items():
        headers.pop(name, None)
        if value is not None:
            headers[name] = value
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in [*headers.items(), *more]]
    accept = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), accept


class RawSocket:
    """A TCP connection to the server with frame-level WebSocket access."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.response: Response | None = None

    @classmethod
    async def connect(
        cls, port: int, host: str = "127.0.0.1", *, receive_bytes: int | None = None
    ) -> Self:
        """Open only the TCP connection. A small `receive_bytes` makes a slow client."""
        if receive_bytes is None:
            async with asyncio.timeout(DEADLINE_S):
                return cls(*await asyncio.open_connection(host, port, limit=2**21))
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await loop.sock_connect(sock, (host, port))
        except BaseException:
            sock.close()
            raise
        return cls(*await asyncio.open_connection(sock=sock, limit=receive_bytes))

    @classmethod
    async def open(cls, port: int, host: str = "127.0.0.1", **request: Any) -> Self:
        """Connect and complete the handshake; the keywords are those of `build_request`.

        Raises:
            Refused: the status of the response is not 101.
            Ended: it closed the connection instead.
        """
        ws = await cls.connect(port, host, receive_bytes=request.pop("receive_bytes", None))
        try:
            await ws.handshake(f"{host}:{port}", **request)
        except BaseException:
            await ws.abort()
            raise
        return ws

    async def handshake(self, host: str, **request: Any) -> Response:
        """Send an upgrade request and check the response."""
        data, accept = build_request(host, **request)
        await self.write(data)
        response = self.response = await self.read_response()
        if response.status != 101:
            raise Refused(response)
        headers = response.headers
        assert headers.get("sec-websocket-accept") == accept, headers
        assert headers.get("upgrade", "").lower() == "websocket", headers
        assert headers.get("connection", "").lower() == "upgrade", headers
        return response

    async def read_response(self, deadline_s: float = DEADLINE_S) -> Response:
        """Read the head of an HTTP response, and its body if it is not an upgrade."""
        async with asyncio.timeout(deadline_s):
            try:
                head = await self._reader.readuntil(b"\r\n\r\n")
                status_line, *lines = head.decode("latin-1").split("\r\n")
                headers: dict[str, str] = {}
                for line in filter(None, lines):
                    name, _, value = line.partition(":")
                    headers[name.strip().lower()] = value.strip()
                status = int(status_line.split(" ", 2)[1])
                size = 0 if status == 101 else int(headers.get("content-length", "0"))
                return Response(status, headers, await self._reader.readexactly(size))
            except asyncio.IncompleteReadError:
                raise Ended("eof") from None
            except ConnectionError:
                raise Ended("reset") from None

    # sending

    async def write(self, data: bytes, deadline_s: float = DEADLINE_S) -> None:
        """Send bytes unchanged.

        Raises:
            Ended: the server has closed the connection.
        """
        self._writer.write(data)
        try:
            async with asyncio.timeout(deadline_s):
                await self._writer.drain()
        except ConnectionError:
            raise Ended("reset") from None

    async def send(self, opcode: int, payload: bytes = b"", **bits: Any) -> None:
        """Send one frame; the keywords are those of `build_frame`."""
        await self.write(build_frame(opcode, payload, **bits))

    async def send_json(self, fields: dict[str, Any]) -> None:
        """Send one object as a text message."""
        await self.send(TEXT, msgspec.json.encode(fields))

    # receiving

    async def recv(self, deadline_s: float = DEADLINE_S) -> Frame:
        """Return the next frame.

        Raises:
            Ended: the server closed the connection.
            TimeoutError: nothing arrived within `deadline_s`.
        """
        try:
            async with asyncio.timeout(deadline_s):
                return await self._read_frame()
        except asyncio.IncompleteReadError:
            raise Ended("eof") from None
        except ConnectionError:
            raise Ended("reset") from None

    async def _read_frame(self) -> Frame:
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self._reader.readexactly(2))
            assert size >= 126, "the length is not in its shortest form"
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
            assert size >= 65_536, "the length is not in its shortest form"
        masked = bool(second & 0x80)
        assert not masked, "a server must not mask"
        payload = await self._reader.readexactly(size)
        return Frame(first & 0x0F, payload, bool(first & 0x80), first >> 4 & 0x7, masked)

    async def recv_json(self, deadline_s: float = DEADLINE_S) -> dict[str, Any]:
        """Return the next text message, decoded; respond to pings meanwhile."""
        fields: dict[str, Any] = msgspec.json.decode(await self._recv_message(TEXT, deadline_s))
        return fields

    async def recv_packed(self, deadline_s: float = DEADLINE_S) -> dict[str, Any]:
        """Return the next binary message, decoded from msgpack; respond to pings meanwhile."""
        payload = await self._recv_message(BINARY, deadline_s)
        fields: dict[str, Any] = msgspec.msgpack.decode(payload)
        return fields

    async def _recv_message(self, opcode: int, deadline_s: float) -> bytes:
        frame = await self.recv_answer(deadline_s)
        assert frame.opcode == opcode, f"wanted opcode {opcode}, got {describe(frame)}"
        assert frame.fin and frame.rsv == 0
        return frame.payload

    async def recv_answer(self, deadline_s: float = DEADLINE_S) -> Frame:
        """Return the next frame that is not a ping, which may arrive at any time; see `recv`."""
        async with asyncio.timeout(deadline_s):
            while (frame := await self.recv(deadline_s)).opcode == PING:
                await self.send(PONG, frame.payload)
            return frame

    async def drain_to_close(self, deadline_s: float = DEADLINE_S) -> tuple[list[Frame], Frame]:
        """Read up to the server's close frame; return the frames before it and the close frame.

        The client does not respond to the close. Raises the same errors as `recv`.
        """
        before: list[Frame] = []
        async with asyncio.timeout(deadline_s):
            while True:
                frame = await self.recv(deadline_s)
                if frame.opcode == CLOSE:
                    return before, frame
                before.append(frame)

    async def expect_close(self, *codes: int, deadline_s: float = DEADLINE_S) -> Frame:
        """Read up to the server's close frame, check its code, and check that the connection
        ends.
        """
        before, frame = await self.drain_to_close(deadline_s)
        assert frame.close_code in codes, (
            f"closed with {frame.close_code} {frame.payload[2:]!r}, wanted {codes},"
            f" after {[describe(each) for each in before]}"
        )
        await self.send_ignoring_end(CLOSE, frame.payload[:2])
        await self.expect_end(deadline_s)
        return frame

    async def send_ignoring_end(self, opcode: int, payload: bytes = b"") -> None:
        """Send a frame to a server that may have closed the connection."""
        try:
            await self.send(opcode, payload)
        except Ended:
            return

    async def expect_end(self, deadline_s: float = DEADLINE_S) -> None:
        """Check that the server closes the TCP connection without sending anything more."""
        try:
            frame = await self.recv(deadline_s)
        except Ended:
            return
        raise AssertionError(f"wanted the end of the connection, got {describe(frame)}")

    async def close(self, code: int = 1000) -> None:
        """Close with a handshake, and check that the server echoes the close."""
        await self.send(CLOSE, close_payload(code))
        _, frame = await self.drain_to_close()
        assert frame.close_code == code, describe(frame)
        await self.abort()

    async def abort(self) -> None:
        """Abort the TCP connection."""
        self._writer.transport.abort()
        try:
            await self._writer.wait_closed()
        except (ConnectionError, OSError):
            return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abort()


def describe(frame: Frame) -> str:
    """Describe a frame in a short text for a failure message."""
    names = {0: "continuation", 1: "text", 2: "binary", 8: "close", 9: "ping", 10: "pong"}
    bits = "" if frame.fin else " not final"
    return f"{names.get(frame.opcode, frame.opcode)}{bits} {frame.payload[:120]!r}"
