"""Membership periods: the ranges of seqs that a user may read, one range per membership.

The current period begins at the member's `joined` seq and is open-ended. Earlier periods are stored
with the membership, in ascending order; they never overlap. Adjacent ones are kept apart, because
the bounds of the newest may still be corrected. Only the newest `PERIODS_MAX` periods are kept.
"""

from __future__ import annotations

import dataclasses
from typing import Final, NamedTuple

from chatserver.domain.ids import Seq

PERIODS_MAX: Final = 20


class Period(NamedTuple):
    """A membership period: a range of chat seqs, both ends included."""

    first: int
    last: int


Periods = tuple[Period, ...]
EMPTY: Final = Period(1, 0)


def add_period(periods: Periods, period: Period) -> Periods:
    """Append the newest membership period, unless it is empty; merge it with an overlapping one."""
    if period.first > period.last:
        return periods
    if periods and period.first <= periods[-1].last:
        newest = periods[-1]
        period = Period(min(newest.first, period.first), max(newest.last, period.last))
        periods = periods[:-1]
    return (*periods, period)[-PERIODS_MAX:]


def correct_newest(periods: Periods, first: int | None, last: int) -> Periods:
    """Return periods in which the newest has other bounds; `first` None keeps its start.

    Nothing changes if an earlier period has the seq `last`: the bounds are of that period.
    """
    if not periods:
        return periods
    *earlier, newest = periods
    if any(period.first <= last <= period.last for period in earlier):
        return periods
    return add_period(tuple(earlier), Period(newest.first if first is None else first, last))


def format_periods(periods: Periods) -> str:
    """Return membership periods as text: ``3-10,20-31``."""
    return ",".join(f"{first}-{last}" for first, last in periods)


def parse_periods(text: str) -> Periods:
    """Parse membership periods such as ``3-10,20-31``. Raises ValueError."""
    pairs = (pair.partition("-") for pair in text.split(",") if pair)
    return tuple(Period(int(first), int(last)) for first, _, last in pairs)


class Reader(NamedTuple):
    """A member's read access: seqs `first` to `head`, and earlier membership periods.

    The warm tier has the entries up to seq `stored`. `periods` (the seq ranges of earlier
    memberships) is None until it is loaded.
    """

    first: Seq
    head: Seq
    stored: Seq = Seq(0)
    periods: Periods | None = None

    @property
    def lacks_periods(self) -> bool:
        """True if the seq ranges of the member's earlier memberships must still be loaded."""
        return self.first > 1 and self.periods is None

    def is_readable(self, seq: int) -> bool:
        """Return whether the member may read an entry.

        Earlier memberships count only if `periods` is loaded.
        """
        return any(period.first <= seq <= period.last for period in self._list_periods())

    def find_period_before(self, seq: int) -> Period | None:
        """Return the newest readable range that begins before `seq`."""
        periods = [period for period in self._list_periods() if period.first < seq]
        return periods[-1] if periods else None

    def find_period_after(self, seq: int) -> Period | None:
        """Return the oldest readable range that ends after `seq`."""
        return next((period for period in self._list_periods() if period.last > seq), None)

    def _list_periods(self) -> Periods:
        # If the group has `history: all`, `first` is 1, so earlier periods are skipped.
        earlier = (
            Period(first, min(last, self.first - 1))
            for first, last in self.periods or ()
            if first < self.first
        )
        return (*earlier, Period(self.first, self.head))


@dataclasses.dataclass(frozen=True, slots=True)
class FormerMember:
    """A membership that ended, kept in case the user rejoins.

    Entry `mid` ended the membership; membership period `last` ends at its seq. If Redis has lost
    this entry, a later entry can have the same seq. In this case, `close` ends the period at seq
    `stored`: the entries up to there are older than entry `mid`.
    """

    last: Period = EMPTY
    mid: str = ""
    stored: int = 0
    periods: Periods = ()  # membership periods before `last`
    hidden: tuple[int, ...] = ()  # seqs of messages that the user deleted for themselves
    quiet_until: int | None = None  # push notifications are muted until then, ms since 1970
    muted_until: int | None = None  # the user may not write until then (s since 1970); 0: forever

    def close(self, *, is_confirmed: bool, now_s: float) -> FormerMember:
        """Return the data for a new membership, with `last` in `periods` and without an ended mute.

        `is_confirmed`: the chat still has entry `mid` at the end of membership period `last`.
        """
        last = self.last
        if not is_confirmed:
            last = Period(last.first, min(last.last, self.stored))
        is_muted = self.muted_until is not None and not 0 < self.muted_until <= now_s
        return dataclasses.replace(
            self,
            last=EMPTY,
            periods=add_period(self.periods, last),
            muted_until=self.muted_until if is_muted else None,
        )
