"""Encoding of replies in the Redis protocol, RESP 2."""

from __future__ import annotations

from typing import Any, Final

from tests.simulation.redis.values import RedisError

NO_ENTRIES: Final = object()  # reply of a read without entries: a null array


class Encoded(bytes):
    """A reply that is already encoded."""


def encode(reply: Any, out: bytearray) -> None:
    """Append an encoded reply."""
    kind = type(reply)
    if kind is bytes:
        out += b"$%d\r\n%b\r\n" % (len(reply), reply)
    elif kind is Encoded:
        out += reply
    elif kind is int:
        out += b":%d\r\n" % reply
    elif reply is None:
        out += b"$-1\r\n"
    elif kind is list:
        out += b"*%d\r\n" % len(reply)
        for each in reply:
            encode(each, out)
    elif isinstance(reply, str):
        out += b"+%b\r\n" % reply.encode()
    elif isinstance(reply, RedisError):
        out += b"-%b\r\n" % str(reply).encode()
    else:
        assert reply is NO_ENTRIES, reply
        out += b"*-1\r\n"
