"""Presence that others see: the best state of all sessions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.presence import SessionActivity, State, best_of

AWAY_AFTER_S = 300.0


def test_best_of_states_is_the_most_present_one() -> None:
    """One device in use makes a user online, whatever the others do; none at all: offline."""
    assert best_of([State.OFFLINE, State.AWAY, State.ONLINE, State.AWAY]) is State.ONLINE
    assert best_of([State.OFFLINE, State.AWAY]) is State.AWAY
    assert best_of([]) is State.OFFLINE


def test_attention_in_foreground_and_used_is_online_until_it_was_idle_long_enough() -> None:
    """The time counts from the last use."""
    attention = SessionActivity(0.0, is_foreground=True)

    attention.update(100.0)

    assert attention.state_at(399.9, AWAY_AFTER_S) is State.ONLINE
    assert attention.state_at(400.0, AWAY_AFTER_S) is State.AWAY


def test_attention_in_background_is_away_however_fresh() -> None:
    """A hidden application is not looked at."""
    assert SessionActivity(0.0, is_foreground=False).state_at(0.0, AWAY_AFTER_S) is State.AWAY


def test_attention_used_again_is_online_again() -> None:
    """A user who was idle becomes online again with the next use."""
    attention = SessionActivity(0.0, is_foreground=True)
    attention.update(0.0)
    assert attention.state_at(1000.0, AWAY_AFTER_S) is State.AWAY

    attention.use(1000.0)

    assert attention.state_at(1000.0, AWAY_AFTER_S) is State.ONLINE


@given(st.lists(st.tuples(st.sampled_from(["use", "look"]), st.floats(0, 50)), max_size=30))
def test_attention_never_counts_as_idle_too_early(steps: list[tuple[str, float]]) -> None:
    """No user is away until `away_after_s` after the last use, whenever the state is read."""
    attention, now, used_at = SessionActivity(0.0, is_foreground=True), 0.0, 0.0
    for step, wait_s in steps:
        now += wait_s
        if step == "look":
            attention.update(now)
        else:
            used_at = now
            if not attention.is_fresh:  # as sessions do: a fresh one needs no clock
                attention.use(now)
        if now - used_at < 60.0:
            assert attention.state_at(now, 60.0) is State.ONLINE
