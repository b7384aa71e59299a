"""Chat preferences as devices receive them, and the signals of their changes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from chatserver.protocol.frames import SeqField, ServerFrame

DRAFT_CHARS_MAX = 4000
PINNED_CHATS_MAX = 50


class Draft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text that a user has not sent yet. The higher `version` (time of the last keystroke) wins."""

    text: Annotated[str, Meta(max_length=DRAFT_CHARS_MAX)]
    version: SeqField


class ChatPreferences(msgspec.Struct, frozen=True):
    """A user's own preferences for a chat.

    `rev` increases with each change. `muted_until` is in Unix seconds; 0 means muted indefinitely,
    null not muted. `cleared_upto` is the chat seq up to which the user has cleared the chat.
    """

    chat: str
    rev: int = 0
    archived: bool = False
    muted_until: int | None = None
    marked_unread: bool = False
    draft: Draft | None = None
    cleared_upto: int = 0


class PinnedChats(msgspec.Struct, frozen=True):
    """Chats that the user has pinned to the top of the chat list, in order."""

    chats: list[str]
    rev: int = 0


class ChatPreferencesSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """The user changed their preferences for a chat. Sent to the user's own devices."""

    kind: Literal["chat_preferences"]
    from_: str = msgspec.field(name="from")
    preferences: ChatPreferences


class PinnedChatsSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """The user changed their pinned chats. Sent to the user's own devices."""

    kind: Literal["pinned_chats"]
    from_: str = msgspec.field(name="from")
    pinned: PinnedChats
