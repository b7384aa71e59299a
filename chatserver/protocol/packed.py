"""Subprotocol ``chat.v1.msgpack``: the same objects as msgpack in binary frames.

Everything inside speaks JSON, which is made once per message for all devices; a connection that
asked for msgpack has its frames rewritten at its edge, and nobody else pays for it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chatserver.protocol.codec import NotJson

DEPTH_MAX = 32
_decoder = msgspec.msgpack.Decoder()
_json_decoder = msgspec.json.Decoder()
_json_encode = msgspec.json.Encoder().encode
_encode = msgspec.msgpack.Encoder().encode
_HALF = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT = "\ufffd".encode()  # as long, so the lengths in the message stay right


class NotPacked(NotJson):
    """The bytes are not one msgpack object: the peer does not speak the protocol."""


def to_json(data: bytes) -> bytes:
    """Return what a client packed as JSON.

    Raises:
        NotPacked: `data` is not msgpack, or holds what JSON has no word for (bytes, timestamps,
            extensions, keys that are not text), or is nested more than `DEPTH_MAX` deep.
    """
    try:
        value = _decoder.decode(data)
    except UnicodeDecodeError:
        return _to_json_with_halves(data)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise NotPacked(f"frame: not valid msgpack: {exc}") from None
    _check(value, DEPTH_MAX)
    return _json_encode(value)


def _to_json_with_halves(data: bytes) -> bytes:
    """As `to_json`, of what some encoders make of half a character: three bytes that are no UTF-8.

    The JSON has an escape in its place, so that whoever decodes the frame refuses it by name. It
    is refused in any case: so it does no harm that U+FFFD becomes such an escape, too.
    """
    try:
        value = _decoder.decode(_HALF.sub(_REPLACEMENT, data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise NotPacked(f"frame: not valid msgpack: {exc}") from None
    _check(value, DEPTH_MAX)
    return _json_encode(value).replace(_REPLACEMENT, rb"\ud800")


def _check(value: Any, depth: int) -> None:
    if depth == 0:
        raise NotPacked(f"frame: nested more than {DEPTH_MAX} deep")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotPacked("frame: a key is not text")
            _check(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth - 1)
    elif value is not None and not isinstance(value, str | int | float):
        raise NotPacked(f"frame: holds {type(value).__name__}, which the protocol does not have")


def from_json(data: bytes) -> bytes:
    """Return a JSON text of ours as msgpack."""
    return _encode(_json_decoder.decode(data))
