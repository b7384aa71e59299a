"""Percentiles of histograms, and the busiest chats."""

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
    compute_quantile,
    list_top_chats,
)

BOUNDS = (0.001, 0.01, 0.1, 1.0, math.inf)
VALUES = st.lists(st.floats(0.0, 2.0), max_size=60)


def buckets_of(values: list[float]) -> dict[float, int]:
    """Return the histogram of values with as few empty buckets as possible."""
    found: dict[float, int] = {}
    for value in values:
        at = bisect.bisect_left(BOUNDS, value)
        found[BOUNDS[at]] = found.get(BOUNDS[at], 0) + 1
        if at:
            found.setdefault(BOUNDS[at - 1], 0)
    return found


@given(VALUES, VALUES, st.sampled_from([0.01, 0.5, 0.99, 1.0]))
def test_quantile_of_merged_histograms_is_in_the_correct_bucket(
    first: list[float], others: list[float], share: float
) -> None:
    """A merged histogram contains all values; the error is at most one bucket."""
    whole = buckets_of(first)
    add_buckets(whole, buckets_of(others))
    found = compute_quantile(whole, share)

    values = sorted(first + others)
    if not values:
        assert found is None
        return
    true = values[max(0, math.ceil(share * len(values)) - 1)]
    at = bisect.bisect_left(BOUNDS, true)
    low = BOUNDS[at - 1] if at else 0.0
    assert found is not None
    # Above the last bound, the bound itself is returned.
    assert low - 1e-12 <= found <= (low if math.isinf(BOUNDS[at]) else BOUNDS[at]) + 1e-12


def test_quantile_within_a_bucket_is_interpolated() -> None:
    """Prometheus gives the same result, also if empty buckets are missing."""
    assert compute_quantile({0.1: 0, 0.2: 4}, 0.5) == pytest.approx(0.15)
    assert compute_quantile({0.25: 1, math.inf: 3}, 0.99) == 0.25


def test_busy_chats_are_bounded_and_contain_the_busiest() -> None:
    """At most `CHATS_MAX` chats are returned, and `drain` resets the counts."""
    busy = BusyChats()
    for number in range(5_000):
        busy.add([f"c{number}", "busiest"])

    counts = busy.drain()

    assert len(counts) == CHATS_MAX
    assert 4_900 <= counts["busiest"] <= 5_000  # never too high
    assert busy.drain() == {}
    assert list_top_chats([counts, {"busiest": 1, "new": 3}], 2)[0] == (
        "busiest",
        counts["busiest"] + 1,
    )
