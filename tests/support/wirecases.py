"""Helpers of the WebSocket conformance tests: a message that gets a response, whole or fragmented.

The response proves that the server accepted the message: a frame of an unknown type gets an `error`
with its id.
"""

from __future__ import annotations

from tests.support.wire import CONTINUATION, TEXT, RawSocket, build_frame


def question(number: int = 1, size: int | None = None) -> bytes:
    """Return a message that gets a response with its id, padded to a size."""
    plain = b'{"type":"nosuch","id":%d,"pad":"' % number
    pad = 0 if size is None else size - len(plain) - 2
    assert pad >= 0
    return plain + b"x" * pad + b'"}'


async def expect_answer(ws: RawSocket, number: int = 1) -> None:
    """Check that the message gets its response."""
    answer = await ws.recv_json()
    assert (answer["type"], answer["id"]) == ("error", number)


def fragments(payload: bytes, sizes: list[int]) -> list[bytes]:
    """Split a message into frames; the last one contains the rest."""
    pieces = []
    for size in sizes:
        pieces.append(payload[:size])
        payload = payload[size:]
    pieces.append(payload)
    last = len(pieces) - 1
    return [
        build_frame(CONTINUATION if index else TEXT, piece, fin=index == last)
        for index, piece in enumerate(pieces)
    ]
