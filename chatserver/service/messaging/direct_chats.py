"""Adding direct chats to chat lists: both users see the chat from its first message on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.messages import Audience
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.service.messaging.device_delivery import DeviceDelivery


async def list_with_first_message(
    inboxes: Inboxes, audience: Audience, devices: DeviceDelivery
) -> None:
    """Add a direct chat to both users' chat lists before its first message is delivered.

    Guarantees:
        Idempotent: each inbox gets one event.
        Cost: nothing after the first message.
    """
    if audience.kind == "direct" and audience.done == 0 and audience.top > 0:
        users = list(audience.users)
        await list_for_users(inboxes, audience.chat, audience.joined, users, devices)


async def list_for_users(
    inboxes: Inboxes,
    chat: ChatId,
    pair: Collection[UserId],
    users: Sequence[UserId],
    devices: DeviceDelivery,
) -> None:
    """Add the direct chat between the users in `pair` to the chat lists of `users`, if missing."""
    body = codec.encode_chat_event_body(frames.ChatInfo(chat, "direct", sorted(pair)))
    for result in await inboxes.append_event(users, chat, body, is_listed=True):
        if result.appended:
            devices.notify_seq(result.user, result.seq, result.gateways)
