"""Reconnects of a client: delays, and close codes that end them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.client.backoff import WAIT_S_MAX, WAIT_S_MIN, Backoff, Verdict, judge_close
from chatserver.protocol.codes import Close


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (0, Verdict.COME_BACK),
        (1006, Verdict.COME_BACK),
        (Close.SHUTDOWN, Verdict.COME_BACK),
        (Close.SLOW, Verdict.COME_BACK),
        (Close.OVERLOADED, Verdict.COME_BACK),
        (Close.NO_PONG, Verdict.COME_BACK),
        (3499, Verdict.COME_BACK),
        (Close.REPLACED, Verdict.REPLACED),
        (Close.UNAUTHENTICATED, Verdict.NEW_TOKEN),
        (Close.BAD_PROTOCOL, Verdict.STOP),
        (Close.BANNED, Verdict.STOP),
        (3999, Verdict.STOP),
    ],
)
def test_close_code_says_whether_to_come_back(code: int, verdict: Verdict) -> None:
    """3000 to 3499 come back, 3500 to 3999 do not as they are."""
    assert judge_close(code) is verdict


def test_wait_bound_doubles_up_to_ten_seconds() -> None:
    """Full jitter: what is drawn from doubles, so that many clients spread."""
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return high

    backoff = Backoff(uniform)
    waits = [backoff.next_s() for _ in range(6)]

    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert {low for low, _ in drawn} == {0.0}


@given(st.integers(1, 50), st.floats(0, 1))
def test_wait_is_between_half_a_second_and_ten(attempts: int, share: float) -> None:
    """Never at once, never for long."""
    backoff = Backoff(lambda low, high: low + share * (high - low))

    waits = [backoff.next_s() for _ in range(attempts)]

    assert all(WAIT_S_MIN <= wait <= WAIT_S_MAX for wait in waits)


@given(st.integers(0, 60_000), st.floats(0, 1))
def test_advice_of_the_server_is_not_undercut(advice_ms: int, share: float) -> None:
    """`retry_after_ms` means not before then; a little is added, so that not all come at once."""
    backoff = Backoff(lambda low, high: low + share * (high - low))

    assert advice_ms / 1000 <= backoff.next_s(advice_ms) <= advice_ms / 1000 + WAIT_S_MIN


def test_steady_connection_starts_the_waits_over() -> None:
    """One that breaks at once does not."""
    backoff = Backoff(lambda _, high: high)
    for _ in range(4):
        backoff.next_s()

    backoff.lasted(0.1)
    assert backoff.next_s() == 10.0

    backoff.lasted(60.0)
    assert backoff.next_s() == 1.0
