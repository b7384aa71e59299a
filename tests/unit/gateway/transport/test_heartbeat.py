"""The wheel pings each connection once per revolution; only silent ones are overdue."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.gateway.transport.connection import Connection
from chatserver.gateway.transport.heartbeat import HeartbeatWheel


class Peer:
    """The part of a connection that the wheel uses."""

    def __init__(self) -> None:
        self.pinged_at: float | None = None


def add_peers(wheel: HeartbeatWheel, count: int) -> list[Any]:
    """Add `count` connections to a wheel."""
    peers = [Peer() for _ in range(count)]
    for peer in peers:
        wheel.add(cast(Connection, peer))
    return peers


def ticks_of(wheel: HeartbeatWheel, interval_s: float) -> int:
    """Return the number of ticks in a revolution."""
    return round(interval_s / wheel.tick_s)


settings = st.tuples(st.floats(0.05, 60), st.floats(0.05, 0.95))


@given(settings, st.integers(1, 40))
def test_wheel_pings_each_connection_once_per_revolution(
    setting: tuple[float, float], count: int
) -> None:
    """At any interval, every connection is pinged exactly once."""
    interval_s, share = setting
    wheel = HeartbeatWheel(interval_s, interval_s * share)
    peers = add_peers(wheel, count)

    pinged: list[Any] = []
    for _ in range(ticks_of(wheel, interval_s)):
        pinged += wheel.advance()[0]

    assert sorted(map(id, pinged)) == sorted(map(id, peers))


@given(settings)
def test_wheel_reports_silent_peers_after_the_timeout(setting: tuple[float, float]) -> None:
    """A peer that does not answer is overdue a timeout after its ping, within a tick and a half."""
    interval_s, share = setting
    timeout_s = interval_s * share
    wheel = HeartbeatWheel(interval_s, timeout_s)
    (peer,) = add_peers(wheel, 1)
    pinged_at = overdue_at = None
    for tick in range(3 * ticks_of(wheel, interval_s)):
        due, overdue = wheel.advance()
        if peer in overdue and overdue_at is None:
            overdue_at = tick
        if peer in due and pinged_at is None:
            pinged_at, peer.pinged_at = tick, 1.0

    assert pinged_at is not None
    assert overdue_at is not None
    waited_s = (overdue_at - pinged_at) * wheel.tick_s
    assert abs(waited_s - timeout_s) <= 1.5 * wheel.tick_s


@given(settings, st.integers(1, 20))
def test_wheel_never_reports_peers_that_answer(setting: tuple[float, float], count: int) -> None:
    """A peer that responds before the next tick stays connected."""
    interval_s, share = setting
    wheel = HeartbeatWheel(interval_s, interval_s * share)
    add_peers(wheel, count)
    for _ in range(3 * ticks_of(wheel, interval_s)):
        due, overdue = wheel.advance()
        assert overdue == []
        for peer in cast(list[Any], due):
            peer.pinged_at = 1.0
            peer.pinged_at = None


def test_wheel_drops_removed_connections() -> None:
    """A removed connection is neither pinged nor overdue; a second removal has no effect."""
    wheel = HeartbeatWheel(25, 10)
    kept, removed = add_peers(wheel, 2)
    removed.pinged_at = 1.0

    wheel.remove(removed)
    wheel.remove(removed)

    seen: list[Any] = []
    for _ in range(25):
        due, overdue = wheel.advance()
        seen += due + overdue
    assert seen == [kept]


@pytest.mark.parametrize(("interval_s", "tick_s"), [(25, 1.0), (4, 1.0), (2, 0.5), (0.8, 0.2)])
def test_wheel_tick_is_at_most_a_second_and_a_quarter_of_the_interval(
    interval_s: float, tick_s: float
) -> None:
    """Short intervals, as in tests, still have several slots."""
    assert HeartbeatWheel(interval_s, interval_s / 2).tick_s == pytest.approx(tick_s)


def test_wheel_spreads_connections_over_its_slots() -> None:
    """Ten thousand sockets are not pinged at once."""
    wheel = HeartbeatWheel(25, 10)
    add_peers(wheel, 2_500)

    sizes = [len(wheel.advance()[0]) for _ in range(25)]

    assert sum(sizes) == 2_500
    assert max(sizes) < 250
