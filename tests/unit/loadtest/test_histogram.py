"""Latency histograms: bounded error, and exact merging of several processes."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from chatserver.loadtest.histogram import Histogram, get_bucket_max

values = st.lists(st.integers(0, 10**10), min_size=1, max_size=200)
SHARES = (0.5, 0.9, 0.99, 0.999)


def histogram_of(samples: list[int]) -> Histogram:
    """Return a histogram of samples."""
    histogram = Histogram()
    for value in samples:
        histogram.record(value)
    return histogram


@given(values)
def test_histogram_quantiles_are_exact_within_one_part_in_128(samples: list[int]) -> None:
    """A percentile is never below the value of its rank and at most 1/128 above it."""
    ranked = sorted(samples)

    found = histogram_of(samples).get_quantiles(SHARES)

    for share, value in zip(SHARES, found, strict=True):
        exact = ranked[max(0, -int(-share * len(ranked) // 1) - 1)]
        assert exact <= value <= exact + exact / 128
    assert histogram_of(samples).max == max(samples)


@given(values, values)
def test_histogram_merged_equals_the_histogram_of_all_values(
    first: list[int], others: list[int]
) -> None:
    """Two histograms, sent as JSON and added, equal one histogram of all values."""
    merged = Histogram()
    for part in (first, others):
        merged.add(Histogram.from_json(json.loads(json.dumps(histogram_of(part).to_json()))))

    assert merged.to_json() == histogram_of(first + others).to_json()
    assert merged.summarize_ms() == histogram_of(first + others).summarize_ms()


@given(st.integers(0, 2**50))
def test_histogram_buckets_are_contiguous(value: int) -> None:
    """Each value is in one bucket, and the next bucket begins after its upper bound."""
    (index,) = histogram_of([value]).counts
    top = get_bucket_max(index)

    assert value <= top
    assert set(histogram_of([top]).counts) == {index}
    assert set(histogram_of([top + 1]).counts) == {index + 1}


def test_histogram_without_values_has_no_quantiles() -> None:
    """Missing values are None, not 0."""
    assert Histogram().get_quantile(0.99) is None
    assert Histogram().summarize_ms()["p99"] is None
