"""The names with the greatest sums, in a fixed amount of memory."""

from __future__ import annotations

import collections

from hypothesis import given
from hypothesis import strategies as st

from chatserver.telemetry.heavy_hitters import HeavyHitters

ADDED = st.lists(
    st.tuples(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), st.integers(1, 40)), max_size=200
)


@given(ADDED, ADDED)
def test_sum_is_never_too_high_and_too_low_within_an_error_bound(
    first: list[tuple[str, int]], second: list[tuple[str, int]]
) -> None:
    """This holds for one list and for a merged list."""
    exact: collections.Counter[str] = collections.Counter()
    one, other, both = HeavyHitters(3), HeavyHitters(3), HeavyHitters(3)
    for top, added in ((one, first), (other, second)):
        for name, amount in added:
            top.add(name, amount)
            exact[name] += amount
    for top in (one, other):
        for name, amount in top.sums.items():
            both.add(name, amount)

    assert len(one.sums) <= 6
    assert len(both.sums) <= 6
    total = sum(exact.values())
    bound = (total - sum(both.sums.values())) / 4
    for name, wanted in exact.items():
        assert wanted - bound <= both.sums.get(name, 0.0) <= wanted
    assert one.missing + sum(one.sums.values()) == one.total == sum(a for _, a in first)


def test_few_names_have_exact_sums() -> None:
    """Sums are exact for up to twice as many names as the size."""
    top = HeavyHitters(3)
    for name in "aabbbcdef":
        top.add(name, 1.0)

    assert top.sums == {"a": 2.0, "b": 3.0, "c": 1.0, "d": 1.0, "e": 1.0, "f": 1.0}
    assert top.missing == 0.0
