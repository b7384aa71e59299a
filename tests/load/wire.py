"""The client's half of WebSocket, as bare as a load generator needs it.

RFC 6455 wants every client frame masked. The mask key here is zero, which is legal and leaves the
payload as it is, so a frame that was built once is sent without touching its bytes again. The
server does the same work as for any other key.
"""

from __future__ import annotations

import base64
import hashlib
import os

TEXT = 0x81  # FIN and opcode 1
PING, PONG, CLOSE = 0x89, 0x8A, 0x88

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


class BadHandshake(Exception):
    """The server did not answer the upgrade as RFC 6455 wants."""


def upgrade_request(port: int, subprotocol: str | None) -> tuple[bytes, bytes]:
    """Return the upgrade request and the accept value that the answer must carry."""
    key = base64.b64encode(os.urandom(16))
    lines = [
        b"GET / HTTP/1.1",
        b"Host: 127.0.0.1:%d" % port,
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Key: " + key,
        b"Sec-WebSocket-Version: 13",
    ]
    if subprotocol is not None:
        lines.append(b"Sec-WebSocket-Protocol: " + subprotocol.encode())
    # SHA-1 is what the RFC prescribes; nothing secret rests on it
    accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
    return b"\r\n".join([*lines, b"", b""]), accept


def check_upgrade(head: bytes, accept: bytes) -> None:
    """Check the head of the server's answer.

    Raises:
        BadHandshake: it is not a 101, or its accept value is not ours.
    """
    status, *lines = head.split(b"\r\n")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in lines)
    }
    if b" 101 " not in status:
        raise BadHandshake(status.decode(errors="replace"))
    if headers.get(b"sec-websocket-accept") != accept:
        raise BadHandshake("the accept value is wrong")


def client_frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """Return one whole masked frame with the zero key."""
    size = len(payload)
    if size < 126:
        head = bytes((opcode, 0x80 | size))
    elif size < 65_536:
        head = bytes((opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + b"\0\0\0\0" + payload


def find_payload(data: bytes, pos: int) -> tuple[int, int] | None:
    """Return where the payload of the server frame at `pos` begins and ends.

    None: the head is not whole yet. The end may lie beyond `data`.
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
