"""Chat preference rules. No I/O.

The values are frames (`ChatPreferences`, `Draft`, `PinnedChats`), because devices receive them in
signals. `rev` increases with each change, so a device can ignore a signal that arrives late.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import msgspec

from chatserver.errors import BadRequest
from chatserver.protocol.frames import ChatPreferences, Draft, PinnedChats

PINNED_CHATS_MAX: Final = 50

# How long the version of a deleted draft is kept, so that an older draft is ignored if it arrives
# late.
DEFAULTS_KEPT_S: Final = 7 * 86_400


@dataclasses.dataclass(frozen=True, slots=True)
class PreferencesChange:
    """Preferences to change. None: no change. `muted_until`: -1 unmutes, 0 mutes forever."""

    is_archived: bool | None = None
    muted_until: int | None = None
    is_marked_unread: bool | None = None
    draft: Draft | None = None
    cleared_upto: int | None = None


UNMUTED: Final = -1


def apply_change(
    before: ChatPreferences, change: PreferencesChange, now_s: float
) -> ChatPreferences:
    """Return the preferences after a change, or `before` itself if nothing changes.

    A draft replaces only a draft with a lower version. `cleared_upto` never decreases.
    """
    after = msgspec.structs.replace(
        before,
        archived=before.archived if change.is_archived is None else change.is_archived,
        muted_until=_apply_mute(before, change, now_s),
        marked_unread=(
            before.marked_unread if change.is_marked_unread is None else change.is_marked_unread
        ),
        draft=_choose_newer_draft(before.draft, change.draft),
        cleared_upto=max(before.cleared_upto, change.cleared_upto or 0),
    )
    if after == before:
        return before
    return msgspec.structs.replace(after, rev=next_rev(before.rev, now_s))


def next_rev(before: int, now_s: float) -> int:
    """Return the next `rev`. It is higher than any earlier one, even of a deleted item."""
    return max(before + 1, int(now_s * 1000))


def without_ended_mute(preferences: ChatPreferences, now_s: float) -> ChatPreferences:
    if preferences.muted_until and preferences.muted_until <= now_s:
        return msgspec.structs.replace(preferences, muted_until=None)
    return preferences


def has_defaults(preferences: ChatPreferences) -> bool:
    """Return whether all preferences have their defaults. An empty draft counts as no draft."""
    empty = ChatPreferences(preferences.chat, preferences.rev)
    draft = preferences.draft
    own_draft = None if draft is not None and not draft.text else draft
    return msgspec.structs.replace(preferences, draft=own_draft) == empty


def check_pinned(chats: Sequence[str]) -> None:
    """Check a list of pinned chats. Raises BadRequest."""
    if len(set(chats)) != len(chats):
        raise BadRequest("chats: must not contain a chat twice")


def replace_pinned(before: PinnedChats, chats: Sequence[str], now_s: float) -> PinnedChats:
    """Return the new list of pinned chats, with a higher `rev` than `before`."""
    return PinnedChats(list(chats), next_rev(before.rev, now_s))


def _apply_mute(before: ChatPreferences, change: PreferencesChange, now_s: float) -> int | None:
    until = change.muted_until
    if until is None:
        return before.muted_until
    return until if until == 0 or until > now_s else None


def _choose_newer_draft(before: Draft | None, draft: Draft | None) -> Draft | None:
    if draft is None or (before is not None and draft.version <= before.version):
        return before
    return draft
