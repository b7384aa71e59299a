"""Capacity units of partitions: rate, burst and debt."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chatserver.dev.aws_limits import capacity
from chatserver.dev.aws_limits.capacity import PartitionLimits, split_units
from tests.support.fake_clocks import FakeClock

HOT = ("t", "hot")


def test_partition_allows_its_burst_and_then_its_rate() -> None:
    """1,000 units at once, then 1,000 per second; other partitions are not affected."""
    clock = FakeClock()
    limits = PartitionLimits(1000, 3000, 1.0, clock.time)

    allowed = 0
    for _ in range(300):  # three seconds
        for _ in range(50):
            if limits.has_room("write", HOT):
                limits.charge("write", HOT, 1)
                allowed += 1
        clock.now += 0.01

    assert allowed == pytest.approx(1000 + 3000, abs=15)
    assert limits.has_room("read", HOT)
    assert limits.has_room("write", ("t", "cold"))
    assert limits.has_room("write", ("t/index", "hot"))


def test_request_above_the_limit_delays_later_ones() -> None:
    """The units of a request are known only afterward."""
    clock = FakeClock()
    limits = PartitionLimits(1000, 3000, 1.0, clock.time)

    limits.charge("read", HOT, 6000)
    clock.now += 0.9
    assert not limits.has_room("read", HOT)
    clock.now += 0.2
    assert limits.has_room("read", HOT)


def test_burst_does_not_grow_while_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle partition has at most its burst; unused partitions are removed from memory."""
    monkeypatch.setattr(capacity, "PARTITIONS_MAX", 10)
    clock = FakeClock()
    limits = PartitionLimits(1000, 3000, 0.5, clock.time)
    limits.charge("write", HOT, 10_000)

    for number in range(100):
        assert limits.has_room("write", ("t", str(number)))

    assert len(limits._buckets) <= 11
    assert not limits.has_room("write", HOT)
    clock.now += 3600
    limits.charge("write", HOT, 500)
    assert not limits.has_room("write", HOT)


@given(
    st.floats(0, 1e6),
    st.lists(st.one_of(st.none(), st.integers(1, 400).map(float)), min_size=1, max_size=100),
)
def test_units_are_divided_completely(total: float, known: list[float | None]) -> None:
    """Actions of unknown size share the remaining units."""
    shares = split_units(total, known)

    assert len(shares) == len(known) and all(share >= 0 for share in shares)
    if all(units is not None for units in known) or total >= sum(units or 0 for units in known):
        assert sum(shares) == pytest.approx(total)
