"""Helpers of the push tests: users, a notify worker and a stub push service."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

from chatserver import config
from chatserver.config import Warm
from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import GatewayId, Mid, Ref, Seq, UserId
from chatserver.domain.message_change_types import ChangeOutcome, MessageChange
from chatserver.domain.messages import Audience
from chatserver.domain.presence import GatewayPresence, PresenceState
from chatserver.features.push.container import PushContainer
from chatserver.features.push.hot import PushState
from chatserver.features.push.keys import NotificationKeys
from chatserver.features.push.settings import Notify
from chatserver.features.push.worker.push_worker import run_notify
from chatserver.hot.chats.message_changes import MessageChangeCommitter
from chatserver.hot.users.presence_states import PresenceStates
from chatserver.protocol import codec
from tests.integration.workers.support import (
    Gateway,
    make_direct,
    make_group,
    open_container,
    running,
    variables_of,
)
from tests.support.servers.processes import eventually
from tests.support.servers.push_service import Browser, PushService

KEYS = NotificationKeys(1)

LOOPBACK = ["127.0.0.0/8"]


class PushWorld:
    """Three users, a stub push service, and the container of a notify worker."""

    def __init__(self, container: StorageContainer, service: PushService) -> None:
        self.container = container
        self.hot = container.hot
        self.service = service
        self.gateway = Gateway(container.hot)
        suffix = secrets.token_hex(4)
        self.alice, self.bob, self.carol = (
            UserId(f"{name}-{suffix}") for name in ("alice", "bob", "carol")
        )

    # actions

    async def direct(self) -> Audience:
        chat = await make_direct(self.container, self.alice, self.bob)
        await self.container.chat_creator.open_direct(self.bob, self.alice)  # this avoids a fan-out
        return chat

    async def group(self) -> Audience:
        return await make_group(self.container, self.alice, self.bob, self.carol)

    async def send(self, chat: Audience, *texts: str) -> None:
        await self.gateway.send(chat, *texts, sender=self.alice)

    async def edit(self, chat: Audience, seq: int, text: str, kind: str = "edit") -> None:
        """Edit or delete a message of Alice's. This appends an entry that is not a message."""
        ref, mid = Ref(f"{kind}-{seq}"), Mid(f"E{seq}")
        tail = codec.encode_entry_tail(chat.chat, mid, self.alice, ref, kind, text, seq)
        made = MessageChange(chat.chat, self.alice, ref, mid, "dd", kind, Seq(seq), text, tail)
        changed = await MessageChangeCommitter(self.hot, GatewayId("gw")).commit_change(made)
        assert changed.outcome is ChangeOutcome.COMMITTED

    async def subscribe(self, user: UserId, service: PushService | None = None) -> Browser:
        """Register a new browser of a user, as the API does."""
        browser = (service or self.service).new_browser()
        await PushState(self.hot).record_devices(user)
        subscription = browser.subscription_of(user)
        await self.container.get(PushContainer).subscriptions.put(
            subscription, SystemClock().time()
        )
        return browser

    async def set_presence(self, user: UserId, state: PresenceState) -> None:
        """Publish a user's presence from a running gateway."""
        presence = PresenceStates(
            hot=self.hot, gateway=GatewayId("gw1"), online_ttl_s=60, keep_s=600
        )
        await presence.extend_expiry()
        await presence.publish([GatewayPresence(user, state, 0.0)])

    async def read(self, user: UserId, chat: Audience, upto: int) -> None:
        await self.container.user_loader.load_user(user)
        await self.container.inboxes.mark(user, chat.chat, Seq(upto), Seq(upto))

    def variables(self) -> dict[str, str]:
        """Return the environment of a worker process that may call the stub service."""
        notify = {f"CHAT_NOTIFY_{k}".upper(): str(v) for k, v in self.service.settings().items()}
        return {
            **variables_of(self.container),
            **notify,
            "CHAT_OUTBOUND_ALLOW_PRIVATE": json.dumps(LOOPBACK),
        }

    def running_worker(self, owner: str = "n1") -> contextlib.AbstractAsyncContextManager[Any]:
        return running(run_notify(self.container, owner), "notify")

    # conditions

    async def _is_scanned(self) -> bool:
        newest = await self.hot.call("XREVRANGE", self.hot.keys.backlog(0), "+", "-", "COUNT", 1)
        scanned = await self.hot.call("HGET", self.hot.keys.checkpoint(0), "told")
        is_all_scanned = not newest or newest[0][0] == scanned
        return bool(is_all_scanned) and await self.hot.call("ZCARD", KEYS.due(0)) == 0

    async def wait_until_scanned(self) -> None:
        """Wait until the backlog is scanned and no chat is due, so that no more pushes are sent."""
        await eventually(self._is_scanned, what="the backlog is scanned and no chat is due")

    async def wait_until_due(self, chat: Audience) -> None:
        """Wait until a chat is recorded as due."""
        due = KEYS.due(0)
        await eventually(lambda: self.hot.call("ZSCORE", due, chat.chat))

    async def end_delay(self, chat: Audience) -> None:
        await self.hot.call("ZADD", KEYS.due(0), "XX", 1, chat.chat)


@contextlib.asynccontextmanager
async def open_push_world(
    redis_url: str, warm: Warm, service: PushService, **notify: Any
) -> AsyncIterator[PushWorld]:
    """Open the container of a process that may call the stub service."""
    sections = {
        "notify": Notify(**{**service.settings(), **notify}),
        "outbound": config.Outbound(allow_private=LOOPBACK),
        # An ended session is detected after 2.5 s, a half-open one after 3.2 s.
        "gateway": config.Gateway(ping_interval_s=0.5, pong_timeout_s=0.1, online_ttl_s=1.1),
        "presence": config.Presence(offline_grace_s=0.5),
    }
    async with open_container(redis_url, warm, **sections) as container:
        yield PushWorld(container, service)
