"""Large-chat threshold: the member counts at which a chat becomes large or small again."""

from __future__ import annotations

SMALL_AGAIN = 0.8  # a large chat stays large down to this share of the limit (hysteresis)


def is_large_after(count: int, fanout_max: int, *, was_large: bool) -> bool:
    """Return whether a chat with `count` members is large.

    Members read a large chat from its log, not from their inboxes.
    """
    return count >= SMALL_AGAIN * fanout_max if was_large else count > fanout_max
