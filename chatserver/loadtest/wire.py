"""Minimal WebSocket client codec for the load generator.

RFC 6455 requires masked client frames. The mask key here is zero, which is legal and leaves the
payload unchanged, so an encoded frame can be sent again without modification.
"""

from __future__ import annotations

import base64
import hashlib
import os
from urllib.parse import urlsplit

import msgspec

from chatserver.errors import ConfigError

TEXT = 0x81  # FIN and opcode 1
PING, PONG, CLOSE = 0x89, 0x8A, 0x88

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


class BadHandshake(Exception):
    """The server rejected the upgrade, or its response is not valid under RFC 6455.

    `retry_after_s`: the delay requested by a full or rate-limiting server.
    """

    def __init__(self, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int
    path: str = "/"
    is_tls: bool = False


def parse_address(url: str) -> Address:
    """Parse a ``ws://`` or ``wss://`` address.

    Raises:
        ConfigError: the address is invalid.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise ConfigError(f"--url {url}: {exc}") from exc
    if parts.scheme not in {"ws", "wss"} or parts.hostname is None:
        raise ConfigError(f"--url {url}: must begin with ws:// or wss:// and a host")
    is_tls = parts.scheme == "wss"
    return Address(parts.hostname, port or (443 if is_tls else 80), parts.path or "/", is_tls)


def build_upgrade_request(address: Address, subprotocol: str | None) -> tuple[bytes, bytes]:
    """Return the upgrade request, and the `Sec-WebSocket-Accept` value expected in the response."""
    key = base64.b64encode(os.urandom(16))
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [
        f"GET {address.path} HTTP/1.1".encode(),
        f"Host: {host}:{address.port}".encode(),
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Key: " + key,
        b"Sec-WebSocket-Version: 13",
    ]
    if subprotocol is not None:
        lines.append(b"Sec-WebSocket-Protocol: " + subprotocol.encode())
    return b"\r\n".join([*lines, b"", b""]), compute_accept(key)


def compute_accept(key: bytes) -> bytes:
    """Return the `Sec-WebSocket-Accept` value for a key.

    SHA-1 is required by the RFC; it protects no secret.
    """
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def check_upgrade(head: bytes, accept: bytes) -> None:
    """Check the head of the server's response.

    Raises:
        BadHandshake: the status is not 101, or the accept value does not match.
    """
    status, *lines = head.split(b"\r\n")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in lines)
    }
    if b" 101 " not in status:
        wait = headers.get(b"retry-after", b"")
        raise BadHandshake(status.decode(errors="replace"), float(wait) if wait.isdigit() else None)
    if headers.get(b"sec-websocket-accept") != accept:
        raise BadHandshake("wrong Sec-WebSocket-Accept")


def encode_client_frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """Encode a complete frame, masked with the zero key."""
    size = len(payload)
    if size < 126:
        head = bytes((opcode, 0x80 | size))
    elif size < 65_536:
        head = bytes((opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + b"\0\0\0\0" + payload


def find_payload(data: bytes, pos: int) -> tuple[int, int] | None:
    """Return where the payload of the server frame at `pos` starts and ends.

    The end may be beyond `data`. If the frame header is incomplete, return None.
    """
    have = len(data) - pos
    if have < 2:
        return None
    size = data[pos + 1]
    if size < 126:
        return pos + 2, pos + 2 + size
    if size == 126:
        if have < 4:
            return None
        return pos + 4, pos + 4 + int.from_bytes(data[pos + 2 : pos + 4], "big")
    if have < 10:
        return None
    return pos + 10, pos + 10 + int.from_bytes(data[pos + 2 : pos + 10], "big")
