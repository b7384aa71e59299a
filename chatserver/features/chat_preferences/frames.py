"""Signals of changed chat preferences."""

from __future__ import annotations

from typing import Literal

import msgspec

from chatserver.protocol.frames import ChatPreferences, PinnedChats, ServerFrame


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
