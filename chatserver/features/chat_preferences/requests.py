"""Signals of changed chat preferences."""

from __future__ import annotations

from chatserver.features.chat_preferences.frames import ChatPreferencesSignal, PinnedChatsSignal
from chatserver.requests.operation import ServerPush

chat_preferences_signal = ServerPush(ChatPreferencesSignal)
pinned_chats_signal = ServerPush(PinnedChatsSignal)
