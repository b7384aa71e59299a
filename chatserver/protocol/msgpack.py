"""MessagePack codec for the subprotocol ``chat.v1.msgpack``: the same objects in binary frames.

The server uses JSON internally. A MessagePack connection's transport converts each frame.
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
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
# Replaces a surrogate. Both are encoded in 3 bytes, so MessagePack length prefixes stay valid.
_REPLACEMENT = "\ufffd".encode()


class NotPacked(NotJson):
    """The bytes are not one MessagePack object. The gateway closes the connection."""


def to_json(data: bytes) -> bytes:
    """Convert a client's MessagePack object to JSON.

    Raises:
        NotPacked: `data` is not valid MessagePack, contains types that JSON does not have (bytes,
            timestamps, extensions, non-string keys), or is nested more than `DEPTH_MAX` deep.
    """
    try:
        value = _decoder.decode(data)
    except UnicodeDecodeError:
        return _convert_with_surrogates(data)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise NotPacked(f"frame: not valid msgpack: {exc}") from None
    _check(value, DEPTH_MAX)
    return _json_encode(value)


def _convert_with_surrogates(data: bytes) -> bytes:
    r"""Convert like `to_json`, but accept lone surrogates, which some encoders write.

    Lone surrogates are invalid UTF-8. They become ``\ud800`` escapes in the JSON, so that the frame
    decoder rejects the frame and names the field.
    """
    try:
        value = _decoder.decode(_SURROGATE.sub(_REPLACEMENT, data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise NotPacked(f"frame: not valid msgpack: {exc}") from None
    _check(value, DEPTH_MAX)
    return _json_encode(value).replace(_REPLACEMENT, rb"\ud800")


def _check(value: Any, depth: int) -> None:
    if depth == 0:
        raise NotPacked(f"frame: nested more than {DEPTH_MAX} levels deep")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotPacked("frame: a key is not a string")
            _check(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth - 1)
    elif value is not None and not isinstance(value, str | int | float):
        raise NotPacked(
            f"frame: contains {type(value).__name__}, which the protocol does not allow"
        )


def from_json(data: bytes) -> bytes:
    """Convert the server's own JSON to MessagePack."""
    return _encode(_json_decoder.decode(data))
