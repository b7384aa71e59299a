"""WebSocket framing fast path: frame boundaries, unmasking and text frame headers.

`websockets` implements the handshake, control frames, fragments, close and all checks (RFC 6455).
This module contains only the code that runs for every message: it finds frame boundaries,
unmasks received text frames and adds headers to sent ones.
"""

from __future__ import annotations

import struct

from websockets.speedups import apply_mask

from chatserver.protocol.msgpack import from_json

HEADER_BYTES_MAX = 14
_FIN_TEXT = 0x81
_CONTROL = 0x08


def _encode_header(length: int) -> bytes:
    if length < 126:
        return b"\x81%c" % length
    if length < 65_536:
        return b"\x81\x7e" + length.to_bytes(2, "big")
    return b"\x81\x7f" + length.to_bytes(8, "big")


_HEADERS = [_encode_header(length) for length in range(2048)]


def encode_text_header(length: int) -> bytes:
    """Return the header of an unmasked, final text frame of `length` bytes (RFC 6455, 5.2)."""
    return _HEADERS[length] if length < 2048 else _encode_header(length)


def encode_text_frame(payload: bytes) -> bytes:
    """Return `payload` as one unmasked, final text frame."""
    return encode_text_header(len(payload)) + payload


def repack(frames: bytes) -> bytes:
    """Re-encode concatenated outgoing text frames (JSON) as binary MessagePack frames."""
    packed: list[bytes] = []
    offset = 0
    while offset < len(frames):
        start, offset = find_frame_end(frames, offset)
        payload = from_json(frames[start:offset])
        packed += (b"\x82", encode_text_header(len(payload))[1:], payload)
    return b"".join(packed)


class NeedMore(Exception):
    """The data contains only a part of the frame."""


def find_frame_end(data: bytes, offset: int) -> tuple[int, int]:
    """Return the payload's `(start, end)` for the frame at `offset`.

    If `data` does not have the complete frame, `end` is greater than `len(data)`.

    Raises:
        NeedMore: the header is not complete.
    """
    available = len(data) - offset
    if available < 2:
        raise NeedMore
    second = data[offset + 1]
    length, start = second & 0x7F, offset + 2
    if length == 126:
        if available < 4:
            raise NeedMore
        length, start = data[offset + 2] << 8 | data[offset + 3], offset + 4
    elif length == 127:
        if available < 10:
            raise NeedMore
        length, start = struct.unpack_from(">Q", data, offset + 2)[0], offset + 10
    if second & 0x80:
        start += 4
    return start, start + length


def is_plain_text(data: bytes, offset: int) -> bool:
    """Return whether the frame is final, text and masked, with no reserved bits."""
    return data[offset] == _FIN_TEXT and data[offset + 1] >= 0x80


def unmask(data: bytes, start: int, end: int) -> bytes:
    """Return the payload of a masked frame; the mask is the four bytes before `start`."""
    return apply_mask(data[start:end], data[start - 4 : start])
