"""Latencies are counted with a bounded error, in any process."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from chatserver.loadtest.histogram import Histogram, top_of

values = st.lists(st.integers(0, 10**10), min_size=1, max_size=200)
SHARES = (0.5, 0.9, 0.99, 0.999)


def counted(of: list[int]) -> Histogram:
    """Return a histogram of values."""
    made = Histogram()
    for value in of:
        made.record(value)
    return made


@given(values)
def test_histogram_quantiles_are_those_of_the_values_within_one_part_in_128(of: list[int]) -> None:
    """A percentile is never below the value of its rank, and hardly above it."""
    ranked = sorted(of)

    found = counted(of).quantiles(SHARES)

    for share, value in zip(SHARES, found, strict=True):
        exact = ranked[max(0, -int(-share * len(ranked) // 1) - 1)]
        assert exact <= value <= exact + exact / 128
    assert counted(of).max == max(of)


@given(values, values)
def test_histogram_merged_is_the_histogram_of_all(some: list[int], others: list[int]) -> None:
    """Counts of two processes, sent as JSON and added, equal those of one process."""
    merged = Histogram()
    for part in (some, others):
        merged.add(Histogram.from_json(json.loads(json.dumps(counted(part).to_json()))))

    assert merged.to_json() == counted(some + others).to_json()
    assert merged.summary_ms() == counted(some + others).summary_ms()


@given(st.integers(0, 2**50))
def test_histogram_buckets_follow_one_another_without_a_gap(value: int) -> None:
    """Each value has one bucket, whose top is not below it and above which the next one begins."""
    (index,) = counted([value]).counts
    top = top_of(index)

    assert value <= top
    assert set(counted([top]).counts) == {index}
    assert set(counted([top + 1]).counts) == {index + 1}


def test_histogram_without_values_has_none() -> None:
    """No values are reported as none, not as 0."""
    assert Histogram().quantile(0.99) is None
    assert Histogram().summary_ms()["p99"] is None
