"""Search for a message by seq in a table sorted by timestamp. No I/O: the caller reads.

An index on seq would cost another write per message, and clients normally know the ts of the
message that they scroll from. Within a chat, ts increases with seq (guarantee P3), so a search can
find the ts of a seq. Each probe is one short Query in one of two directions::

    oldest first   the first items at or after a ts
    newest first   the last items at or before a ts

There are three kinds of probes, used in turn:

1. An oldest-first probe at the ts that linear interpolation yields. It suits a steady message rate.
2. If that returns a later seq, a newest-first probe just before its ts. It skips an idle period.
3. A newest-first probe in the middle of the remaining range. It limits the cost if the message rate
   varies in other ways.

Once the target is within `WINDOW` seqs of a message whose ts is known, one read from there finds
the target or proves that it is not stored.

Invariant: if the target is stored, its ts is in ``[_left, _right]``. It is between `_low` and
`_high`, the nearest messages whose ts is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from chatserver.errors import CorruptData

TS_MAX = 2**53 - 1
WINDOW = 64
# Maximum number of probes: one at each end of the chat, one near the target, and three for each bit
# of a 53-bit ts, because every third probe halves the remaining range.
PROBES_MAX = 3 + 3 * 53


Phase = Literal["ends", "line", "edge", "half"]


class SeqPosition(NamedTuple):
    """Seq and ts of a stored message."""

    seq: int
    ts: int


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """A read of the seq and ts of at most `count` messages, starting at `ts` (inclusive)."""

    ts: int
    is_newest_first: bool
    count: int = 1


class SeqSearch:
    """Search for one seq.

    Call `next_probe`, read, and call `record_result`, until `next_probe` returns None.
    """

    def __init__(self, target: int, positions: Iterable[SeqPosition] = ()) -> None:
        """`positions` are messages whose ts is known, in any order; they save Queries."""
        self.target = target
        self.found: SeqPosition | None = None
        self._low = SeqPosition(0, -1)  # seq 0 precedes every message
        self._high: SeqPosition | None = None
        self._left, self._right = 0, TS_MAX
        self._is_over = target < 1
        self._phase: Phase = "ends"
        for position in positions:
            self._record_position(position)

    def next_probe(self) -> Probe | None:
        """Return the next Query to make, or None when the search is finished."""
        low, high = self._low, self._high
        if self._is_done():
            return None
        if self.target - low.seq <= WINDOW:
            return Probe(low.ts + 1, is_newest_first=False, count=self.target - low.seq)
        if high is None:
            return Probe(TS_MAX, is_newest_first=True)
        if high.seq - self.target <= WINDOW:
            return Probe(high.ts - 1, is_newest_first=True, count=high.seq - self.target)
        if low.ts < 0:
            return Probe(0, is_newest_first=False)
        if self._phase == "ends":
            self._phase = "line"
        if self._phase == "line":
            slope = (self.target - low.seq) / (high.seq - low.seq)
            guess = low.ts + int((high.ts - low.ts) * slope)
            return Probe(min(max(guess, self._left), self._right), is_newest_first=False)
        if self._phase == "edge":
            return Probe(self._right, is_newest_first=True)
        return Probe((self._left + self._right) // 2, is_newest_first=True)

    def record_result(self, probe: Probe, positions: Sequence[SeqPosition]) -> None:
        """Process the result of Query `probe`, in the order in which it returned the messages.

        Raises:
            CorruptData: ts does not increase with seq.
        """
        for position in positions:
            self._record_position(position)
        nearest = positions[0].seq if positions else None
        if probe.is_newest_first:
            if nearest is None or nearest < self.target:
                self._left = max(self._left, probe.ts + 1)
            is_late = False
        else:
            is_late = nearest is None or nearest > self.target
            if is_late:
                self._right = min(self._right, probe.ts - 1)
        match self._phase:
            case "line":
                self._phase = "edge" if is_late else "half"
            case "edge":
                self._phase = "half"
            case "half":
                self._phase = "line"
            case "ends":
                pass
        if probe.count > 1:
            # The Query began at most `count` seqs from the target, so it has read the target if the
            # target is stored.
            self._is_over = True

    def _is_done(self) -> bool:
        if self.found is not None or self._is_over or self._left > self._right:
            return True
        return self._high is not None and self._high.seq - self._low.seq <= 1

    def _record_position(self, position: SeqPosition) -> None:
        low, high = self._low, self._high
        is_after_low = position.ts > low.ts
        is_before_high = high is None or position.ts < high.ts
        if (is_after_low and position.seq <= low.seq) or (
            high is not None and is_before_high and position.seq >= high.seq
        ):
            raise CorruptData(
                f"message {position.seq} at ts {position.ts} is out of order: ts must increase "
                f"with seq from {low} to {high}"
            )
        if position.seq == self.target:
            self.found = position
        elif position.seq < self.target and is_after_low:
            self._low = position
            self._left = max(self._left, position.ts + 1)
        elif position.seq > self.target and is_before_high:
            self._high = position
            self._right = min(self._right, position.ts - 1)
