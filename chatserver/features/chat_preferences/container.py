"""Dependencies of chat preferences."""

from __future__ import annotations

from functools import cached_property

from chatserver.container.storage import StorageContainer
from chatserver.features.chat_preferences.service import Preferences
from chatserver.features.chat_preferences.warm import PreferenceRows
from chatserver.warm.chats.muted_chats import MutedChats


class PreferencesContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        client = core.dynamodb.for_feature("directory")
        self.muted_chats = MutedChats(client)
        self.rows = PreferenceRows(client)

    @cached_property
    def preferences(self) -> Preferences:
        return Preferences(
            rows=self.rows,
            members=self._core.members,
            directory=self._core.directory,
            chat_log=self._core.chat_log,
            hidden=self._core.hidden_messages,
            inboxes=self._core.inboxes,
            devices=self._core.device_delivery,
            clock=self._core.clock,
        )
