"""The days of a chat are a set, whatever is asked of it; its item keeps them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.warm.messages.active_days import (
    ANY_DAY,
    DAYS_MAX,
    ActiveDays,
    decode_days,
    encode_days,
)
from chatserver.warm.schema.migrations.cost_estimate import size_of

DAYS = st.integers(20_000, 20_400)


@given(days=st.lists(DAYS, min_size=1, max_size=30), asked=DAYS, has_earlier=st.booleans())
def test_days_answer_as_a_set_does(days: list[int], asked: int, has_earlier: bool) -> None:
    """Also days before the first one, which are unknown for a chat with earlier messages."""
    first = min(days)
    active = ActiveDays(first, has_earlier=has_earlier)
    for day in days:
        active = active.add(day)
    known = set(days) | (set(range(19_000, first)) if has_earlier else set())

    assert (asked in active) == (asked in known)
    assert active.find_before(asked) == max((day for day in known if day <= asked), default=None)
    assert active.find_after(asked) == min((day for day in known if day >= asked), default=None)
    assert decode_days(encode_days("g-team", active)) == active


def test_earlier_day_moves_the_beginning() -> None:
    """Entries of one chat come in order; if they do not, no day is lost."""
    days = ActiveDays(10).add(10).add(12).add(7)

    assert [day for day in range(20) if day in days] == [7, 10, 12]


def test_chat_without_an_item_may_have_messages_on_any_day() -> None:
    """It is read instead of skipped."""
    assert ANY_DAY.find_before(20_000) == 20_000
    assert ANY_DAY.find_after(20_000) == 20_000
    assert ANY_DAY.find_before(10**9) == DAYS_MAX - 1


def test_unreadable_item_costs_reads_and_no_message() -> None:
    """Its days are unknown."""
    item = encode_days("g-team", ActiveDays(20_000, 1))

    assert decode_days({**item, "days": {"S": "x"}}) == ANY_DAY
    assert decode_days({**item, "first": {"N": "x"}}) == ANY_DAY
    assert decode_days({**item, "days": {"B": "é"}}) == ANY_DAY


def test_twenty_years_take_one_write_unit() -> None:
    """Although there is a message on each day; the size is counted as base64, which is more."""
    days = ActiveDays(20_000)
    for day in range(20_000, 20_000 + 20 * 365):
        days = days.add(day)

    item = encode_days("g-" + "x" * 32, days)

    assert size_of(item) - len(item["days"]["B"]) + 913 < 1024
