"""Signals of changed chat preferences."""

from __future__ import annotations

from chatserver.features.chat_preferences.frames import ChatPreferencesSignal, PinnedChatsSignal
from chatserver.requests.operation import Push

chat_preferences_signal = Push(ChatPreferencesSignal)
pinned_chats_signal = Push(PinnedChatsSignal)
