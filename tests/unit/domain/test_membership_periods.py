"""Membership periods: which seqs they contain, and how many periods are kept."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import Seq
from chatserver.domain.membership_periods import (
    EMPTY,
    PERIODS_MAX,
    FormerMember,
    Period,
    Periods,
    Reader,
    add_period,
    correct_newest,
    format_periods,
    parse_periods,
)

NOW_S = 1_000.0


def close(former: FormerMember, *, is_confirmed: bool = True) -> FormerMember:
    """Return a closed membership."""
    return former.close(is_confirmed=is_confirmed, now_s=NOW_S)


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(0, 99)), max_size=30))
def test_periods_are_disjoint_sorted_and_contain_the_added_seqs(
    added: list[tuple[int, int]],
) -> None:
    """The oldest are dropped above the limit, and the text form round-trips."""
    periods: Periods = ()
    seqs: set[int] = set()
    for first, last in sorted(added):
        periods = add_period(periods, Period(first, last))
        seqs |= set(range(first, last + 1))

    kept = {seq for first, last in periods for seq in range(first, last + 1)}
    assert len(periods) <= PERIODS_MAX
    assert kept == {seq for seq in seqs if periods and seq >= periods[0].first}
    assert all(a.last < b.first for a, b in itertools.pairwise(periods))
    assert parse_periods(format_periods(periods)) == periods


def test_oldest_period_is_dropped_above_the_limit() -> None:
    """Of many periods, the newest are kept."""
    periods: Periods = ()
    for number in range(PERIODS_MAX + 2):
        periods = add_period(periods, Period(10 * number + 1, 10 * number + 5))

    assert (len(periods), periods[0]) == (PERIODS_MAX, Period(21, 25))


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 40), st.data())
def test_reader_sees_only_seqs_of_their_periods(
    first: int, head: int, seq: int, data: st.DataObject
) -> None:
    """Single reads and pages are both limited to the periods."""
    bounds = sorted(data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=2)))
    periods = (Period(*bounds),)
    reader = Reader(Seq(first), Seq(head), periods=periods)
    readable = {*range(first, head + 1), *range(bounds[0], min(bounds[1], first - 1) + 1)}

    assert reader.is_readable(seq) == (seq in readable)
    for period in (reader.find_period_before(seq), reader.find_period_after(seq)):
        assert period is None or set(range(period.first, period.last + 1)) <= readable


def test_period_with_a_lost_end_ends_at_the_stored_seq() -> None:
    """The seqs after the stored one may now belong to messages that the user may not read."""
    former = FormerMember(Period(3, 9), "m", stored=6, periods=(Period(1, 1),))

    assert close(former).periods == (Period(1, 1), Period(3, 9))
    assert close(former, is_confirmed=False).periods == (Period(1, 1), Period(3, 6))
    assert close(FormerMember(Period(7, 9), "m", 6), is_confirmed=False).periods == ()


def test_expired_mute_is_not_kept() -> None:
    """A mute without an end is kept, and so is all other data."""
    assert close(FormerMember(muted_until=1_000)).muted_until is None
    assert close(FormerMember(muted_until=1_001)).muted_until == 1_001
    assert close(FormerMember(muted_until=0)).muted_until == 0
    kept = FormerMember(hidden=(4,), quiet_until=5)
    assert close(kept) == FormerMember(EMPTY, hidden=(4,), quiet_until=5)


def test_correction_of_the_newest_period_keeps_an_adjacent_one() -> None:
    """The member left with entry 16 and rejoined with entry 17."""
    periods = add_period((Period(9, 16),), Period(17, 37))

    assert correct_newest(periods, 17, 35) == (Period(9, 16), Period(17, 35))
