"""The active days of a chat: set operations and encoding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.warm.messages.active_days import (
    ANY_DAY,
    DAYS_MAX,
    DaySet,
    decode_days,
    encode_days,
)
from chatserver.warm.tenant_item_scans import compute_item_bytes

DAYS = st.integers(20_000, 20_400)


@given(days=st.lists(DAYS, min_size=1, max_size=30), queried=DAYS, has_earlier=st.booleans())
def test_active_days_behave_like_a_set(days: list[int], queried: int, has_earlier: bool) -> None:
    """Days before the first one count as active if the chat has earlier messages."""
    first = min(days)
    active = DaySet(first, has_earlier=has_earlier)
    for day in days:
        active = active.add(day)
    known = set(days) | (set(range(19_000, first)) if has_earlier else set())

    assert (queried in active) == (queried in known)
    assert active.find_before(queried) == max(
        (day for day in known if day <= queried), default=None
    )
    assert active.find_after(queried) == min((day for day in known if day >= queried), default=None)
    assert decode_days(encode_days("g-team", active)) == active


def test_earlier_day_moves_the_first_day() -> None:
    """Entries usually arrive in order; if they do not, no day is lost."""
    days = DaySet(10).add(10).add(12).add(7)

    assert [day for day in range(20) if day in days] == [7, 10, 12]


def test_any_day_contains_every_day() -> None:
    """A chat without an item is read, not skipped."""
    assert ANY_DAY.find_before(20_000) == 20_000
    assert ANY_DAY.find_after(20_000) == 20_000
    assert ANY_DAY.find_before(10**9) == DAYS_MAX - 1


def test_unreadable_item_decodes_to_any_day() -> None:
    """The chat is read on every day, so no message is missed."""
    item = encode_days("g-team", DaySet(20_000, 1))

    assert decode_days({**item, "days": {"S": "x"}}) == ANY_DAY
    assert decode_days({**item, "first": {"N": "x"}}) == ANY_DAY
    assert decode_days({**item, "days": {"B": "é"}}) == ANY_DAY


def test_twenty_years_of_days_take_one_write_unit() -> None:
    """There is a message on each day; base64 overestimates the size."""
    days = DaySet(20_000)
    for day in range(20_000, 20_000 + 20 * 365):
        days = days.add(day)

    item = encode_days("g-" + "x" * 32, days)

    assert compute_item_bytes(item) - len(item["days"]["B"]) + 913 < 1024
