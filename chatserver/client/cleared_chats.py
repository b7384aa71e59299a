"""Cleared chats: the seq up to which the user has cleared each chat (docs/chat-preferences.md).

The server stores this seq as `cleared_upto` in the chat preferences, and sends changes as signals.
Signals may be lost, so a client with an `api_url` loads all preferences after each connect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import attrs
import msgspec

from chatserver.client.cache.local_store import LocalStore
from chatserver.client.client_state import CLEARED_MAX, ClientState
from chatserver.client.events import ChatCleared, Event, SignalReceived
from chatserver.client.http.http_calls import PreferencesPage
from chatserver.errors import ChatError
from chatserver.protocol.frames import ChatPreferences

PAGE = 100
RETRY_S = 5.0
SIGNAL = "chat_preferences"  # kind of the signals that announce changed preferences


@attrs.define(eq=False, repr=False)
class ClearedChats:
    """Applies preferences to the chats and the message cache of a client."""

    _state: ClientState
    _local: LocalStore | None
    _push: Callable[[list[Event]], None]

    def apply_preferences(self, preferences: Iterable[ChatPreferences]) -> None:
        """Clear each chat up to its `cleared_upto`."""
        for preference in preferences:
            if self._state.clear_chat(preference.chat, preference.cleared_upto):
                if self._local is not None:
                    self._local.record_cleared(preference.chat, preference.cleared_upto)
                if preference.chat in self._state.chats:
                    self._push([ChatCleared(preference.chat, preference.cleared_upto)])

    def apply_events(self, events: Iterable[Event]) -> None:
        """Apply the preference signals among new events."""
        for event in events:
            if isinstance(event, SignalReceived) and event.kind == SIGNAL:
                self.apply_preferences(
                    [msgspec.convert(event.fields["preferences"], ChatPreferences)]
                )


async def load_cleared_chats(list_page: Callable[..., Awaitable[PreferencesPage]]) -> None:
    """Load the preferences of all chats after a connect."""
    after, count = None, 0
    while count < CLEARED_MAX:
        try:
            page = await list_page(after=after, limit=PAGE)
        except ChatError as exc:
            if not exc.temporary:
                return
            await asyncio.sleep((exc.retry_after_ms or 0) / 1000 + RETRY_S)
            continue
        count += len(page.preferences)
        after = page.next
        if after is None:
            return
