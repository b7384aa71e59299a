"""Encoding of values in the Redis protocol, for `Packed` calls."""

from __future__ import annotations


def pack(*values: bytes) -> bytes:
    """Encode values for a `Packed` call."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(value), value) for value in values])


_COUNTS = [pack(b"%d" % count) for count in range(1024)]


def pack_count(count: int) -> bytes:
    """Encode a number for a `Packed` call."""
    return _COUNTS[count] if count < len(_COUNTS) else pack(b"%d" % count)
