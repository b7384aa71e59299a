"""Reconnects of a client: delays, and close codes that allow a reconnect."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.client.reconnect_policy import (
    WAIT_S_MAX,
    WAIT_S_MIN,
    ReconnectPolicy,
)
from chatserver.errors import ChatError, Conflict, Unauthenticated
from chatserver.protocol.error_codes import Close


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (0, None),
        (1006, None),
        (Close.SHUTDOWN, None),
        (Close.SLOW, None),
        (Close.OVERLOADED, None),
        (Close.NO_PONG, None),
        (3499, None),
        (Close.REPLACED, None),
        (Close.UNAUTHENTICATED, Unauthenticated),
        (Close.BAD_PROTOCOL, ChatError),
        (Close.BANNED, ChatError),
        (3999, ChatError),
    ],
)
def test_close_code_determines_whether_to_reconnect(
    code: int, error: type[ChatError] | None
) -> None:
    """Codes 3000 to 3499 allow a reconnect, 3500 to 3999 do not."""
    policy = ReconnectPolicy(lambda low, high: high)
    expected = contextlib.nullcontext() if error is None else pytest.raises(error)

    with expected:
        policy.handle_close(code, "reason", 0.0, can_renew=False, device="d")


def test_second_replacement_within_a_minute_is_a_conflict() -> None:
    """Two processes with one device do not replace each other forever."""

    def close(policy: ReconnectPolicy, now: float) -> None:
        policy.handle_close(Close.REPLACED, "reason", now, can_renew=False, device="d")

    policy = ReconnectPolicy(lambda low, high: high)
    close(policy, 0.0)
    with pytest.raises(Conflict):
        close(policy, 59.0)

    policy = ReconnectPolicy(lambda low, high: high)
    close(policy, 0.0)
    close(policy, 61.0)


def test_wait_bound_doubles_up_to_ten_seconds() -> None:
    """Full jitter: the upper bound of the random delay doubles."""
    ranges: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        ranges.append((low, high))
        return high

    backoff = ReconnectPolicy(uniform)
    waits = [backoff.next_s() for _ in range(6)]

    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert {low for low, _ in ranges} == {0.0}


@given(st.integers(1, 50), st.floats(0, 1))
def test_wait_is_between_half_a_second_and_ten(attempts: int, share: float) -> None:
    """The client never reconnects at once, and never waits longer than ten seconds."""
    backoff = ReconnectPolicy(lambda low, high: low + share * (high - low))

    waits = [backoff.next_s() for _ in range(attempts)]

    assert all(WAIT_S_MIN <= wait <= WAIT_S_MAX for wait in waits)


@given(st.integers(0, 60_000), st.floats(0, 1))
def test_wait_is_at_least_the_retry_after_of_the_server(retry_after_ms: int, share: float) -> None:
    """A random delay is added to `retry_after_ms`, so that clients do not reconnect together."""
    backoff = ReconnectPolicy(lambda low, high: low + share * (high - low))

    assert (
        retry_after_ms / 1000
        <= backoff.next_s(retry_after_ms)
        <= retry_after_ms / 1000 + WAIT_S_MIN
    )


def test_stable_connection_resets_the_wait() -> None:
    """A connection that breaks at once does not reset it."""
    backoff = ReconnectPolicy(lambda _, high: high)
    for _ in range(4):
        backoff.next_s()

    backoff.record_duration(0.1)
    assert backoff.next_s() == 10.0

    backoff.record_duration(60.0)
    assert backoff.next_s() == 1.0
