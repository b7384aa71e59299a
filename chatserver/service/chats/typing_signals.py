"""Typing signals to the other members of a chat. Clients hide an indicator after a few seconds."""

from __future__ import annotations

import attrs

from chatserver.domain.ids import ChatId, UserId
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions
from chatserver.hot.users.blocks import HotBlocks
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.service.messaging.device_delivery import DeviceDelivery


@attrs.define(eq=False, repr=False, kw_only=True)
class TypingSignals:
    """Sends typing signals to the devices of other members."""

    _inboxes: Inboxes
    _audiences: Audiences
    _devices: DeviceDelivery
    _large_chats: LargeChatSubscriptions
    _blocks: HotBlocks

    async def send(self, user: UserId, frame: frames.Typing) -> None:
        """Send a typing signal to the other members; best effort.

        A user who has blocked the sender, or whom the sender has blocked, gets no signal, except in
        a large chat.

        Raises:
            NotFound: the chat does not exist, or the user is not a member.
        """
        chat = ChatId(frame.chat)
        audience = await self._audiences.get_for_member(chat, user)
        signal = codec.encode(frames.Signal("typing", chat, user, frame.on))
        if audience.is_large:
            self._devices.send_channel_signal(
                chat, user, signal, await self._large_chats.list_gateways(chat)
            )
            return
        blocked = await self._blocks.list_blocked(user)
        others = [m for m in audience.users if m != user and m not in blocked]
        if audience.kind == "direct" and audience.top == 0:
            # Users get no signals from a chat that has not appeared in their list yet.
            others = [other for other in others if await self._inboxes.is_listed(other, chat)]
        if not others:
            return
        gateways = await self._inboxes.list_gateways(others)
        for member, own_gateways in zip(others, gateways, strict=True):
            self._devices.send_signal(member, signal, own_gateways)
