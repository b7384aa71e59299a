"""Dependencies of push notifications."""

from __future__ import annotations

from chatserver.container.storage import StorageContainer
from chatserver.features.push.hot import PushState
from chatserver.features.push.model import SUBSCRIPTIONS_MAX
from chatserver.features.push.warm.subscriptions import PushSubscriptions
from chatserver.warm.chats.muted_chats import MutedChats


class PushContainer:
    def __init__(self, core: StorageContainer) -> None:
        client = core.dynamodb.for_feature("push")
        self.state = PushState(core.hot)
        self.subscriptions = PushSubscriptions(client, SUBSCRIPTIONS_MAX)
        self.muted_chats = MutedChats(client)


def push_devices(core: StorageContainer) -> PushSubscriptions:
    return core.get(PushContainer).subscriptions
