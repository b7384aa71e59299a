"""Cursor coverage: which events after a device's cursor the Redis inbox still has. No I/O."""

from __future__ import annotations

import enum

from chatserver.domain.ids import Epoch, Seq


class Coverage(enum.Enum):
    """Availability of the events after a client's cursor in the Redis inbox."""

    CURRENT = "current"  # all events after the cursor are in Redis
    TOO_LONG = "too_long"  # some events after the cursor are no longer in Redis
    RESET = "reset"  # the cursor is invalid: it has another epoch, or is ahead of the inbox


def compare_cursor(
    epoch: Epoch, seq: Seq, *, inbox_epoch: Epoch, inbox_first: Seq, inbox_head: Seq
) -> Coverage:
    """Compare a client's ``(epoch, seq)`` with an inbox that holds ``[inbox_first, inbox_head]``.

    An empty inbox has ``inbox_first == inbox_head + 1``.
    """
    if epoch != inbox_epoch or seq > inbox_head:
        return Coverage.RESET
    if seq + 1 < inbox_first:
        return Coverage.TOO_LONG
    return Coverage.CURRENT
