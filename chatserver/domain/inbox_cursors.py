"""Device cursors: the position of a device in its user's inbox, and the next event (promise P4).

Pure: no I/O, no clock. A session owns one `DeviceCursor` and checks each pushed event with it.
"""

from __future__ import annotations

import enum

from chatserver.domain.ids import Epoch, Seq


class Verdict(enum.Enum):
    """Handling of an event that arrived for a device."""

    SEND = "send"
    DROP = "drop"  # the device already has it
    GAP = "gap"  # an earlier event is missing: read the inbox


_SEND = Verdict.SEND


class DeviceCursor:
    """The last inbox seq sent to a device, and the newest one known to exist.

    Invariants: `seq` never decreases within an epoch; an event is sent only as ``seq + 1``, so a
    device gets a contiguous sequence without repeats.
    """

    __slots__ = ("epoch", "head", "seq")

    def __init__(self, epoch: Epoch, seq: Seq, head: Seq | None = None) -> None:
        self.epoch = epoch
        self.seq = seq
        self.head = seq if head is None else head

    def offer(self, epoch: Epoch, seq: Seq) -> Verdict:
        """Return how to handle event `seq`; SEND also moves the cursor to it."""
        if seq == self.seq + 1 and epoch == self.epoch:
            self.seq = seq
            if seq > self.head:
                self.head = seq
            return _SEND
        if epoch != self.epoch:
            return Verdict.GAP
        if seq <= self.seq:
            return Verdict.DROP
        if seq > self.head:
            self.head = seq
        return Verdict.GAP

    @property
    def is_behind(self) -> bool:
        """True if events exist that were not sent to the device."""
        return self.seq < self.head


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
