"""Percentiles of histograms, and the busiest chats of a while."""

from __future__ import annotations

import bisect
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.telemetry.process_stats import (
    CHATS_MAX,
    BusyChats,
    add_buckets,
    quantile,
    top_chats,
)

BOUNDS = (0.001, 0.01, 0.1, 1.0, math.inf)
VALUES = st.lists(st.floats(0.0, 2.0), max_size=60)


def buckets_of(values: list[float]) -> dict[float, int]:
    """The histogram of values, with no more empty buckets than it takes."""
    found: dict[float, int] = {}
    for value in values:
        at = bisect.bisect_left(BOUNDS, value)
        found[BOUNDS[at]] = found.get(BOUNDS[at], 0) + 1
        if at:
            found.setdefault(BOUNDS[at - 1], 0)
    return found


@given(VALUES, VALUES, st.sampled_from([0.01, 0.5, 0.99, 1.0]))
def test_quantile_of_two_histograms_is_in_the_bucket_of_the_true_one(
    some: list[float], others: list[float], share: float
) -> None:
    """Poured together they are the histogram of all values, and it errs by a bucket at most."""
    whole = buckets_of(some)
    add_buckets(whole, buckets_of(others))
    found = quantile(whole, share)

    values = sorted(some + others)
    if not values:
        assert found is None
        return
    true = values[max(0, math.ceil(share * len(values)) - 1)]
    at = bisect.bisect_left(BOUNDS, true)
    low = BOUNDS[at - 1] if at else 0.0
    assert found is not None
    # Above the last bound nothing more is known than that.
    assert low - 1e-12 <= found <= (low if math.isinf(BOUNDS[at]) else BOUNDS[at]) + 1e-12


def test_quantile_within_a_bucket_is_spread_evenly() -> None:
    """As Prometheus does it, whichever buckets are missing because they are empty."""
    assert quantile({0.1: 0, 0.2: 4}, 0.5) == pytest.approx(0.15)
    assert quantile({0.25: 1, math.inf: 3}, 0.99) == 0.25


def test_busy_chats_are_few_however_many_chats_there_are() -> None:
    """Bound: twenty of a while; one that has more than its share is among them; then all anew."""
    busy = BusyChats()
    for number in range(5_000):
        busy.add([f"c{number}", "loud"])

    taken = busy.take()

    assert len(taken) == CHATS_MAX
    assert 4_900 <= taken["loud"] <= 5_000  # never too much
    assert busy.take() == {}
    assert top_chats([taken, {"loud": 1, "new": 3}], 2)[0] == ("loud", taken["loud"] + 1)
