"""WebSocket frames, as far as they are ours: where one ends, and how a text frame begins.

`websockets` does the handshake, control frames, fragments, close and every check (RFC 6455). Two
things run once per message and are done here instead: a whole, final, masked text frame is
unmasked without a detour, and a text frame that we send is a header of two to four bytes before
its payload. A frame's bytes are cut here in either case, so that the library is always handed
whole frames and is between frames whenever we are.
"""

from __future__ import annotations

import struct

from websockets.speedups import apply_mask

from chatserver.protocol.packed import from_json

HEADER_BYTES_MAX = 14
_FIN_TEXT = 0x81
_CONTROL = 0x08


def _header(length: int) -> bytes:
    if length < 126:
        return b"\x81%c" % length
    if length < 65_536:
        return b"\x81\x7e" + length.to_bytes(2, "big")
    return b"\x81\x7f" + length.to_bytes(8, "big")


_HEADERS = [_header(length) for length in range(2048)]


def text_header(length: int) -> bytes:
    """Return what stands before an unmasked, final text frame of `length` (RFC 6455, 5.2)."""
    return _HEADERS[length] if length < 2048 else _header(length)


def text_frame(payload: bytes) -> bytes:
    """Return `payload` as one unmasked, final text frame."""
    return text_header(len(payload)) + payload


def repack(frames: bytes) -> bytes:
    """Return text frames of ours, one behind the other, as binary frames of msgpack."""
    packed: list[bytes] = []
    at = 0
    while at < len(frames):
        start, at = frame_end(frames, at)
        payload = from_json(frames[start:at])
        packed += (b"\x82", text_header(len(payload))[1:], payload)
    return b"".join(packed)


class NeedMore(Exception):
    """The frame is not complete yet."""


def frame_end(data: bytes, at: int) -> tuple[int, int]:
    """Return where the payload of the frame at `at` starts and where the frame ends.

    Raises:
        NeedMore: its header is not complete. The end may lie beyond `data`.
    """
    available = len(data) - at
    if available < 2:
        raise NeedMore
    second = data[at + 1]
    length, start = second & 0x7F, at + 2
    if length == 126:
        if available < 4:
            raise NeedMore
        length, start = data[at + 2] << 8 | data[at + 3], at + 4
    elif length == 127:
        if available < 10:
            raise NeedMore
        length, start = struct.unpack_from(">Q", data, at + 2)[0], at + 10
    if second & 0x80:
        start += 4
    return start, start + length


def is_plain_text(data: bytes, at: int) -> bool:
    """True for the frame nearly all are: final, text, masked, no reserved bits."""
    return data[at] == _FIN_TEXT and data[at + 1] >= 0x80


def unmask(data: bytes, start: int, end: int) -> bytes:
    """Return the payload of a masked frame; its mask stands before `start`."""
    return apply_mask(data[start:end], data[start - 4 : start])
