"""Coverage of a client's cursor by its inbox in the hot tier. Pure: no I/O, no clock."""

from __future__ import annotations

import enum

from chatserver.domain.ids import Epoch, Seq


class Coverage(enum.Enum):
    """Relation of a client's cursor to the inbox in the hot tier."""

    CURRENT = "current"  # all later events can be read
    TOO_LONG = "too_long"  # later events have left the hot tier
    RESET = "reset"  # another epoch, or ahead of the server: the cursor is invalid here


def judge_cursor(
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
