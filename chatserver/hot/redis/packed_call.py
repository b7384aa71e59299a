"""Calls that are encoded in the Redis protocol once, and sent unchanged."""

from __future__ import annotations


def pack(*values: bytes) -> bytes:
    """Return values in the encoding of a `Packed` call."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(value), value) for value in values])


class Packed(bytes):
    """A complete call in the Redis protocol; `key` is one of its keys."""

    key: str
