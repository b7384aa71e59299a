"""Trace ids derived from message ids, so that nothing is stored with the message.

The trace id, the root span id and the sampling decision are computed from the message id (mid). All
processes and `chatserver trace` therefore compute the same values. See decision 0039.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class TraceIds(NamedTuple):
    """A W3C trace id (16 bytes) and the id of its root span (8 bytes), both nonzero."""

    trace: int
    root: int


def get_trace_ids(mid: str) -> TraceIds:
    """Return the ids of a message's trace."""
    digest = hashlib.blake2b(mid.encode(), digest_size=24, person=b"chat-trace").digest()
    trace, root = int.from_bytes(digest[:16]), int.from_bytes(digest[16:])
    return TraceIds(trace or 1, root or 1)


def is_sampled(ids: TraceIds, ratio: float) -> bool:
    """Return whether a trace is sampled. The result is the same in every process."""
    return (ids.trace & 0xFFFF_FFFF_FFFF_FFFF) < ratio * 2**64
