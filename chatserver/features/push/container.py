"""Dependencies of push notifications."""

from __future__ import annotations

from functools import cached_property

from chatserver.container.storage import StorageContainer
from chatserver.features.push.hot import PushState
from chatserver.features.push.model import SUBSCRIPTIONS_MAX
from chatserver.features.push.warm.muted_chats import MutedChats
from chatserver.features.push.warm.subscriptions import PushSubscriptions


class PushContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        self._client = core.dynamodb.for_feature("push")

    @cached_property
    def state(self) -> PushState:
        return PushState(self._core.hot)

    @cached_property
    def subscriptions(self) -> PushSubscriptions:
        return PushSubscriptions(self._client, self._core.settings.warm, SUBSCRIPTIONS_MAX)

    @cached_property
    def muted_chats(self) -> MutedChats:
        return MutedChats(self._client, self._core.settings.warm)


def push_devices(core: StorageContainer) -> PushSubscriptions:
    return core.get(PushContainer).subscriptions
