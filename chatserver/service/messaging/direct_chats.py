"""Listing of direct chats for the other user, which happens with the first message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId
from chatserver.domain.inboxes import Place
from chatserver.domain.messages import Audience
from chatserver.protocol import codec, frames


class Inboxes(Protocol):
    """Users' inboxes and chat lists."""

    async def append_event(
        self, users: Sequence[UserId], chat: ChatId, body: bytes, *, is_listed: bool = False
    ) -> list[Place]: ...


Nudge = Callable[[UserId, Seq, Sequence[GatewayId]], None]


async def list_with_first_message(inboxes: Inboxes, audience: Audience, nudge: Nudge) -> None:
    """List a direct chat for both users before its first message is delivered.

    Guarantees:
        Idempotent: each inbox gets one event.
        Cost: nothing except for the first message of a direct chat.
    """
    if audience.kind == "direct" and audience.done == 0 and audience.top > 0:
        await list_for_users(inboxes, audience.chat, audience.joined, list(audience.users), nudge)


async def list_for_users(
    inboxes: Inboxes,
    chat: ChatId,
    both: Collection[UserId],
    users: Sequence[UserId],
    nudge: Nudge,
) -> None:
    """List a direct chat of `both` for those of `users` who do not have it in their list."""
    body = codec.chat_event_body(frames.ChatInfo(chat, "direct", sorted(both)))
    for place in await inboxes.append_event(users, chat, body, is_listed=True):
        if place.appended:
            nudge(place.user, place.seq, place.gateways)
