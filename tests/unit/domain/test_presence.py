"""The presence of a user: the most present state of all sessions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.presence import PresenceState, SessionActivity, get_best_state

AWAY_AFTER_S = 300.0


def test_best_state_is_the_most_present_one() -> None:
    """One active device makes a user online; a user without sessions is offline."""
    assert (
        get_best_state(
            [PresenceState.OFFLINE, PresenceState.AWAY, PresenceState.ONLINE, PresenceState.AWAY]
        )
        is PresenceState.ONLINE
    )
    assert get_best_state([PresenceState.OFFLINE, PresenceState.AWAY]) is PresenceState.AWAY
    assert get_best_state([]) is PresenceState.OFFLINE


def test_foreground_session_is_online_until_it_is_idle() -> None:
    """The idle time begins at the last use."""
    activity = SessionActivity(0.0, is_foreground=True)

    activity.update(100.0)

    assert activity.get_state_at(399.9, AWAY_AFTER_S) is PresenceState.ONLINE
    assert activity.get_state_at(400.0, AWAY_AFTER_S) is PresenceState.AWAY


def test_background_session_is_away() -> None:
    """A hidden application is not in use, even right after its start."""
    assert (
        SessionActivity(0.0, is_foreground=False).get_state_at(0.0, AWAY_AFTER_S)
        is PresenceState.AWAY
    )


def test_idle_session_is_online_again_after_a_use() -> None:
    activity = SessionActivity(0.0, is_foreground=True)
    activity.update(0.0)
    assert activity.get_state_at(1000.0, AWAY_AFTER_S) is PresenceState.AWAY

    activity.record_use(1000.0)

    assert activity.get_state_at(1000.0, AWAY_AFTER_S) is PresenceState.ONLINE


@given(st.lists(st.tuples(st.sampled_from(["use", "read"]), st.floats(0, 50)), max_size=30))
def test_session_is_never_idle_too_early(steps: list[tuple[str, float]]) -> None:
    """The state does not become `away` before `away_after_s` without use, even if read often."""
    activity, now, used_at = SessionActivity(0.0, is_foreground=True), 0.0, 0.0
    for step, delay_s in steps:
        now += delay_s
        if step == "read":
            activity.update(now)
        else:
            used_at = now
            if not activity.is_fresh:  # as sessions do, which read no clock while fresh
                activity.record_use(now)
        if now - used_at < 60.0:
            assert activity.get_state_at(now, 60.0) is PresenceState.ONLINE
