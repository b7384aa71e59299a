"""Which trace a message is told of in: both follow from its mid, so nothing need be stored with it.

Whoever holds the message knows its trace id, the span that all others hang from, and whether it is
sampled: the gateway, a worker an hour later, an operator with `chatserver trace`. See decision
0039.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class TraceIds(NamedTuple):
    """A W3C trace id (16 bytes) and the id of its first span (8 bytes), both not zero."""

    trace: int
    root: int


def trace_ids_of(mid: str) -> TraceIds:
    """Return the ids of a message's trace. About 1 µs."""
    digest = hashlib.blake2b(mid.encode(), digest_size=24, person=b"chat-trace").digest()
    trace, root = int.from_bytes(digest[:16]), int.from_bytes(digest[16:])
    return TraceIds(trace or 1, root or 1)


def is_sampled(ids: TraceIds, ratio: float) -> bool:
    """Tell whether a trace is one of those that are told, as every process says of it."""
    return (ids.trace & 0xFFFF_FFFF_FFFF_FFFF) < ratio * 2**64
