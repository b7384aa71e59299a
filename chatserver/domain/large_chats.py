"""Large-chat threshold: the member counts at which a chat becomes large, and small again. Pure."""

from __future__ import annotations

SMALL_AGAIN = 0.8  # share of the limit: joins and leaves must not cause repeated transitions


def is_large_after(count: int, fanout_max: int, *, was_large: bool) -> bool:
    """Return whether a chat of `count` members is large: read from its log, not from inboxes."""
    return count >= SMALL_AGAIN * fanout_max if was_large else count > fanout_max
