"""Read marks: how far each member of a chat has read and received its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import attrs

from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.inboxes import UserMarks
from chatserver.errors import NotFound
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.users.blocks import HotBlocks
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.protocol.redis_memory_costs import MARK_BYTES, Charge, charge_nobody
from chatserver.service.messaging.device_delivery import DeviceDelivery

READ_MARKS_MEMBERS_MAX = 32  # members of larger chats do not see read marks of others


async def get_marks(
    inboxes: Inboxes, audiences: Audiences, user: UserId, chat: ChatId
) -> frames.Marks:
    """Return a member's read and received marks in a chat.

    Guarantees:
        Cost: two Redis calls. If the chat was evicted from Redis, it is loaded first.

    Raises:
        NotFound: the chat does not exist.
        Unavailable: Redis does not have the chat, and the warm tier does not respond.
    """
    marks = await inboxes.get_marks(user, chat)
    if not marks.is_open:
        await audiences.get(chat)
        marks = await inboxes.get_marks(user, chat)
    return frames.Marks(user, marks.read, marks.received)


@attrs.define(eq=False, repr=False, kw_only=True)
class ReadMarks:
    """Moves and lists the read and received marks of users."""

    _inboxes: Inboxes
    _audiences: Audiences
    _load_user: Callable[[UserId], Awaitable[None]]
    _devices: DeviceDelivery
    _blocks: HotBlocks | None = None
    _charge: Charge = charge_nobody

    async def list_marks(self, user: UserId, chat: ChatId) -> list[frames.Marks]:
        """Return the members' read marks; none if the chat is large or has over 32 members.

        Members who have blocked the user, or whom the user has blocked, are left out.

        Guarantees:
            Cost: one Redis call, and two per member, pipelined.

        Raises:
            NotFound: the chat does not exist, or the user is not a member.
        """
        audience = await self._audiences.get_for_member(chat, user)
        if audience.is_large or len(audience.users) > READ_MARKS_MEMBERS_MAX:
            return []
        blocked = await self._list_blocked(user)
        visible = [member for member in audience.users if member not in blocked]
        return list(
            await asyncio.gather(
                *(get_marks(self._inboxes, self._audiences, member, chat) for member in visible)
            )
        )

    async def move(self, user: UserId, frame: frames.Mark) -> None:
        """Move the user's read and received marks; notify other members and the user's devices.

        Guarantees:
            Idempotent: a repeat appends the event only to inboxes that an earlier call missed, for
            example because it got no reply. It notifies all devices again.

        Raises:
            NotFound: the user is not a member of the chat.
            Unavailable: the user's chats are not loaded, and the warm tier does not respond.
        """
        chat = ChatId(frame.chat)
        result = await self._move_marks(user, frame)
        audience = await self._audiences.get_for_member(chat, user)
        is_shared = not audience.is_large and len(audience.users) <= READ_MARKS_MEMBERS_MAX
        users = list(audience.users) if is_shared else [user]
        if len(users) > 1 and (blocked := await self._list_blocked(user)):
            users = [member for member in users if member not in blocked]
        body = codec.read_event_body(chat, frames.Marks(user, result.read, result.received))
        # Marks never decrease, so of two updates, the one with the higher sum is newer.
        level = result.read + result.received
        results = await self._inboxes.append_marks(users, chat, body, user, level)
        # The frame was charged for the user's own inbox.
        others = sum(each.appended for each in results if each.user != user)
        self._charge(user, MARK_BYTES * others)
        for each in results:
            self._devices.notify_seq(each.user, each.seq, each.gateways)

    async def _move_marks(self, user: UserId, frame: frames.Mark) -> UserMarks:
        marks = (ChatId(frame.chat), Seq(frame.read or 0), Seq(frame.received or 0))
        try:
            result = await self._inboxes.mark(user, *marks)
        except NotFound:
            if await self._inboxes.is_known(user):
                raise
            # Redis may have lost the user state, so load it and try again.
            await self._load_user(user)
            result = await self._inboxes.mark(user, *marks)
        if not result.is_open:  # the chat was evicted from Redis
            await self._audiences.get_for_member(marks[0], user)
            result = await self._inboxes.mark(user, *marks)
        return result

    async def _list_blocked(self, user: UserId) -> set[UserId]:
        return set() if self._blocks is None else await self._blocks.list_blocked(user)
