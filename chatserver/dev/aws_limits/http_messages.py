"""HTTP/1.1 messages of a proxy in front of a DynamoDB server. Bodies have a length."""

from __future__ import annotations

import asyncio
import http
import zlib
from typing import Final

_HEAD_END: Final = b"\r\n\r\n"
BODY_BYTES_MAX: Final = 17_000_000  # AWS: a request has at most 16 MB


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
    for line in head.decode("latin-1").split("\r\n"):
        found, _, value = line.partition(":")
        if found.strip().lower() == name:
            return value.strip()
    return ""


def encode_request(head: bytes, body: bytes, operation: str | None = None) -> bytes:
    """Return a request with the head of another one, for another body or operation."""
    dropped = [b"content-length:"] if operation is None else [b"content-length:", b"x-amz-target:"]
    lines = [
        line
        for line in head.removesuffix(_HEAD_END).split(b"\r\n")
        if not line.lower().startswith(tuple(dropped))
    ]
    lines.append(b"Content-Length: %d" % len(body))
    if operation is not None:
        lines.append(b"X-Amz-Target: DynamoDB_20120810." + operation.encode())
    return b"\r\n".join(lines) + _HEAD_END + body


def encode_response(status: int, body: bytes, request_id: str) -> bytes:
    """Return a response of DynamoDB."""
    reason = http.HTTPStatus(status).phrase.encode()
    return (
        b"HTTP/1.1 %d %b\r\nContent-Type: application/x-amz-json-1.0\r\nx-amzn-RequestId: %b\r\n"
        b"x-amz-crc32: %d\r\nContent-Length: %d\r\n\r\n%b"
        % (status, reason, request_id.encode(), zlib.crc32(body), len(body), body)
    )
