"""Where a device stands in its user's inbox, and what may be sent to it next (promise P4).

Pure: no I/O, no clock. A session owns one `DeviceCursor` and asks it about each pushed event.
"""

from __future__ import annotations

import enum

from chatserver.domain.ids import Epoch, Seq


class Verdict(enum.Enum):
    """What to do with an event that arrived for a device."""

    SEND = "send"
    DROP = "drop"  # the device has it
    GAP = "gap"  # something before it is missing: read the inbox


_SEND = Verdict.SEND


class DeviceCursor:
    """The last inbox seq a device was sent, and the newest one known to exist.

    Invariants: `seq` never moves back within an epoch; an event is sent only as ``seq + 1``, so
    what a device sees is contiguous and free of repeats.
    """

    __slots__ = ("epoch", "head", "seq")

    def __init__(self, epoch: Epoch, seq: Seq, head: Seq | None = None) -> None:
        self.epoch = epoch
        self.seq = seq
        self.head = seq if head is None else head

    def offer(self, epoch: Epoch, seq: Seq) -> Verdict:
        """Say what to do with event `seq`; on SEND the cursor has moved to it."""
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
        """True while events are known to exist that the device was not sent."""
        return self.seq < self.head


class Coverage(enum.Enum):
    """How a client's cursor relates to the inbox that the hot tier holds."""

    CURRENT = "current"  # everything after it can be read
    TOO_LONG = "too_long"  # events after it have left the hot tier
    RESET = "reset"  # another epoch, or ahead of the server: it means nothing here


def judge_cursor(
    epoch: Epoch, seq: Seq, *, inbox_epoch: Epoch, inbox_first: Seq, inbox_head: Seq
) -> Coverage:
    """Relate a client's ``(epoch, seq)`` to an inbox that holds ``[inbox_first, inbox_head]``.

    An inbox that holds nothing has ``inbox_first == inbox_head + 1``.
    """
    if epoch != inbox_epoch or seq > inbox_head:
        return Coverage.RESET
    if seq + 1 < inbox_first:
        return Coverage.TOO_LONG
    return Coverage.CURRENT
