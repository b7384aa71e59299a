"""Membership periods: which seqs they hold, and how many of them are kept."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import Seq
from chatserver.domain.membership import Reader
from chatserver.domain.membership_periods import (
    EMPTY,
    PERIODS_MAX,
    FormerMember,
    Period,
    Periods,
    add_period,
    format_periods,
    parse_periods,
)

NOW_S = 1_000.0


def close(former: FormerMember, *, is_confirmed: bool = True) -> FormerMember:
    """A new membership starts with the earlier periods."""
    return former.close(is_confirmed=is_confirmed, now_s=NOW_S)


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(0, 99)), max_size=30))
def test_periods_rise_apart_and_hold_what_was_added(added: list[tuple[int, int]]) -> None:
    """However they come; the oldest are dropped beyond the bound, and text gives them back."""
    periods: Periods = ()
    seqs: set[int] = set()
    for first, last in sorted(added):
        periods = add_period(periods, Period(first, last))
        seqs |= set(range(first, last + 1))

    kept = {seq for first, last in periods for seq in range(first, last + 1)}
    assert len(periods) <= PERIODS_MAX
    assert kept == {seq for seq in seqs if periods and seq >= periods[0].first}
    assert all(a.last + 1 < b.first for a, b in itertools.pairwise(periods))
    assert parse_periods(format_periods(periods)) == periods


def test_oldest_period_is_dropped_beyond_the_bound() -> None:
    """Of many periods, the newest are kept."""
    periods: Periods = ()
    for number in range(PERIODS_MAX + 2):
        periods = add_period(periods, Period(10 * number + 1, 10 * number + 5))

    assert (len(periods), periods[0]) == (PERIODS_MAX, Period(21, 25))


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 40), st.data())
def test_reader_sees_no_seq_out_of_their_periods(
    first: int, head: int, seq: int, data: st.DataObject
) -> None:
    """Neither one by one nor by the period that a page is read from."""
    bounds = sorted(data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=2)))
    periods = (Period(*bounds),)
    reader = Reader(Seq(first), Seq(head), periods=periods)
    theirs = {*range(first, head + 1), *range(bounds[0], min(bounds[1], first - 1) + 1)}

    assert reader.is_readable(seq) == (seq in theirs)
    for period in (reader.find_period_before(seq), reader.find_period_after(seq)):
        assert period is None or set(range(period.first, period.last + 1)) <= theirs


def test_period_whose_end_was_lost_ends_with_what_was_stored() -> None:
    """Its seqs may stand for messages of others since."""
    former = FormerMember(Period(3, 9), "m", stored=6, periods=(Period(1, 1),))

    assert close(former).periods == (Period(1, 1), Period(3, 9))
    assert close(former, is_confirmed=False).periods == (Period(1, 1), Period(3, 6))
    assert close(FormerMember(Period(7, 9), "m", 6), is_confirmed=False).periods == ()


def test_mute_that_is_over_is_not_kept() -> None:
    """One without an end is; nothing else ends."""
    assert close(FormerMember(muted_until=1_000)).muted_until is None
    assert close(FormerMember(muted_until=1_001)).muted_until == 1_001
    assert close(FormerMember(muted_until=0)).muted_until == 0
    kept = FormerMember(hidden=(4,), quiet_until=5)
    assert close(kept) == FormerMember(EMPTY, hidden=(4,), quiet_until=5)
