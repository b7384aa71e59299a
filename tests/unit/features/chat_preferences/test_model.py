"""Rules of chat preferences: versions of drafts, ends of mutes, and defaults."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest
from chatserver.features.chat_preferences.model import (
    UNMUTED,
    PreferencesChange,
    apply_change,
    check_pinned,
    has_defaults,
    replace_pinned,
    without_ended_mute,
)
from chatserver.features.chat_preferences.warm import decode_preferences, encode_preferences
from chatserver.protocol.frames import ChatPreferences, Draft, PinnedChats

NOW_S = 1_000_000.0
DEFAULTS = ChatPreferences("g-x")

drafts = st.builds(Draft, st.sampled_from(["", "a", "b"]), st.integers(0, 5))
changes = st.builds(
    PreferencesChange,
    is_archived=st.none() | st.booleans(),
    muted_until=st.none() | st.sampled_from([UNMUTED, 0, int(NOW_S) - 1, int(NOW_S) + 9]),
    is_marked_unread=st.none() | st.booleans(),
    draft=st.none() | drafts,
    cleared_upto=st.none() | st.integers(0, 9),
)


def apply_all(*changes: PreferencesChange) -> ChatPreferences:
    """Return the preferences after changes, from the defaults."""
    current = DEFAULTS
    for each in changes:
        current = apply_change(current, each, NOW_S)
    return current


def test_draft_with_a_lower_version_is_ignored_even_after_a_deletion() -> None:
    """An offline device does not restore a draft that another device has sent."""
    deleted = apply_all(
        PreferencesChange(draft=Draft("Hello", 5)), PreferencesChange(draft=Draft("", 8))
    )

    late = apply_change(deleted, PreferencesChange(draft=Draft("Hel", 7)), NOW_S)

    assert late is deleted
    assert has_defaults(deleted)
    assert deleted.draft == Draft("", 8)


def test_mute_ends_at_its_time_or_never() -> None:
    """A mute that has ended is removed."""
    until = int(NOW_S) + 10
    muted = apply_all(PreferencesChange(muted_until=until))

    assert without_ended_mute(muted, NOW_S).muted_until == until
    assert without_ended_mute(muted, until).muted_until is None
    assert apply_all(PreferencesChange(muted_until=int(NOW_S))) == DEFAULTS
    assert without_ended_mute(apply_all(PreferencesChange(muted_until=0)), 9e9).muted_until == 0


@given(st.lists(changes, max_size=5))
def test_changes_only_increase_versions_and_round_trip(sequence: list[PreferencesChange]) -> None:
    """`rev`, the draft's version and `cleared_upto` only increase; a repeat does nothing."""
    current = DEFAULTS
    for each in sequence:
        after = apply_change(current, each, NOW_S)
        assert after is current or after.rev > current.rev
        assert after.cleared_upto >= current.cleared_upto
        assert (after.draft.version if after.draft else -1) >= (
            current.draft.version if current.draft else -1
        )
        assert apply_change(after, each, NOW_S) is after
        current = after
    assert decode_preferences(encode_preferences(UserId("alice"), current)) == (
        current if sequence and current.rev else msgspec.structs.replace(current, rev=0)
    )


@pytest.mark.parametrize("field", [each.name for each in dataclasses.fields(PreferencesChange)])
def test_each_preference_alone_differs_from_the_defaults(field: str) -> None:
    """No preference is missing from the comparison."""
    value = Draft("x", 1) if field == "draft" else 1

    assert not has_defaults(apply_all(PreferencesChange(**{field: value if value != 1 else 10**9})))


def test_pinned_chats_are_unique_and_their_rev_increases() -> None:
    """The revision also increases if the clock goes back."""
    with pytest.raises(BadRequest, match="chats"):
        check_pinned(["a", "b", "a"])

    later = replace_pinned(PinnedChats(["a"], 2**50), ["b", "a"], NOW_S)

    assert later == PinnedChats(["b", "a"], 2**50 + 1)
