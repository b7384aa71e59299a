"""HTTP/1.1 messages for the DynamoDB proxy. Each body needs a Content-Length."""

from __future__ import annotations

import asyncio
import http
import zlib
from typing import Final

_HEAD_END: Final = b"\r\n\r\n"
BODY_BYTES_MAX: Final = 17_000_000  # maximum bytes of a request body; AWS allows 16 MB


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read the head and the body of a request or response.

    Raises:
        asyncio.IncompleteReadError: the connection was closed.
    """
    head = await reader.readuntil(_HEAD_END)
    length = int(find_header(head, "content-length") or 0)
    if length > BODY_BYTES_MAX:
        raise ConnectionError(f"a body of {length} bytes exceeds {BODY_BYTES_MAX}")
    return head, await reader.readexactly(length)


def find_header(head: bytes, name: str) -> str:
    """Return the value of a header; empty if it is missing."""
    position = head.lower().find(b"\r\n" + name.encode() + b":")
    if position < 0:
        return ""
    start = position + len(name) + 3
    return head[start : head.index(b"\r\n", start)].strip().decode("latin-1")


def make_head(head: bytes) -> bytes:
    """Return the head of the proxy's own requests, without the headers for operation and length.

    `head` is the head of a client request. Its signature is copied, because the local server
    requires a signature but does not verify it.
    """
    names = ("host", "authorization", "x-amz-date", "content-type")
    lines = [f"{name}: {find_header(head, name)}\r\n" for name in names]
    return f"POST / HTTP/1.1\r\n{''.join(lines)}".encode()


def encode_call(own_head: bytes, operation: str, body: bytes) -> bytes:
    """Return the HTTP request that calls a DynamoDB operation."""
    return b"%bX-Amz-Target: DynamoDB_20120810.%b\r\nContent-Length: %d\r\n\r\n%b" % (
        own_head,
        operation.encode(),
        len(body),
        body,
    )


def encode_response(status: int, body: bytes, request_id: str) -> bytes:
    """Return a response in DynamoDB's format."""
    reason = http.HTTPStatus(status).phrase.encode()
    return (
        b"HTTP/1.1 %d %b\r\nContent-Type: application/x-amz-json-1.0\r\nx-amzn-RequestId: %b\r\n"
        b"x-amz-crc32: %d\r\nContent-Length: %d\r\n\r\n%b"
        % (status, reason, request_id.encode(), zlib.crc32(body), len(body), body)
    )
