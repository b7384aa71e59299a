"""Message retention in chats, and legal holds that preserve messages.

Retention applies to messages sent after it is set. In a group, owners and admins can change it like
any other setting; the host application can change it in every chat. Only the host application sees
and changes holds. While a chat is under a hold, messages are copied before members change or delete
them.
"""

from __future__ import annotations

import attrs

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.domain.text_validation import parse_note
from chatserver.errors import BadRequest, Conflict, NotFound
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.chats.membership import HotMembership
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.service.membership.group_membership import MARKER_TTL_S, GroupMembership
from chatserver.service.membership.membership_propagation import MembershipPropagation
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.legal_holds import Hold, Holds
from chatserver.warm.chats.memberships import Memberships


@attrs.define(eq=False, repr=False, kw_only=True)
class Retention:
    """Sets the retention of chats and manages legal holds, for the host application."""

    _holds: Holds
    _directory: Directory
    _memberships: Memberships
    _hot_membership: HotMembership
    _propagation: MembershipPropagation
    _membership: GroupMembership
    _inboxes: Inboxes
    _devices: RemoteDelivery
    _clock: Clock

    async def set_retention(self, chat: ChatId, retention_s: int, ref: Ref) -> frames.ChatInfo:
        """Set the retention for messages sent to the chat from now on; 0 keeps them forever.

        In a group, the change is made on behalf of an owner or admin, so members see it like any
        other change.

        Guarantees:
            Idempotent. The setting applies to every message sent after the call returns.

        Raises:
            NotFound: the chat does not exist.
            Conflict: the group has neither an owner nor an admin.
            Unavailable: the change may have been made.
        """
        record = await self._directory.get_chat(chat)
        if record.kind == "direct":
            return await self._set_direct(chat, retention_s)
        for user, role in await self._memberships.list_seniority(chat):
            if role in ("owner", "admin"):
                frame = frames.UpdateChat(0, chat, ref, retention_s=retention_s)
                return await self._membership.change(UserId(user), frame)
        raise Conflict("chat: the group has no owner or admin who could change its settings")

    async def _set_direct(self, chat: ChatId, retention_s: int) -> frames.ChatInfo:
        marker = await self._hot_membership.begin(chat, MARKER_TTL_S)
        is_new = await self._memberships.set_retention(chat, retention_s)
        await self._propagation.apply_write_policy(await self._directory.get_chat(chat))
        info = await self._propagation.describe(chat)
        if is_new:
            users = [UserId(user) for user in info.members]
            for result in await self._inboxes.append_event(
                users, chat, codec.encode_chat_event_body(info)
            ):
                if result.appended:
                    self._devices.notify_seq(result.user, result.seq, result.gateways)
        await self._hot_membership.end(marker)
        return info

    async def put_hold(self, chat: ChatId, reason: str, set_by: str) -> Hold:
        """Put a chat under a legal hold, and return the hold; an existing hold is not changed.

        Guarantees:
            Idempotent. After it returns, messages are copied before members change or delete them.

        Raises:
            BadRequest, TooLarge: the reason is empty or too long.
            NotFound: the chat does not exist.
        """
        reason = parse_note(reason, "reason")
        if not reason:
            raise BadRequest("reason: must not be empty")
        await self._directory.get_chat(chat)
        return await self._holds.put(chat, reason, set_by, self._clock.time())

    async def get_hold(self, chat: ChatId) -> Hold:
        """Return the chat's hold. Raises NotFound."""
        return await self._holds.get(chat)

    async def release_hold(self, chat: ChatId) -> None:
        """End the chat's hold. The copies of messages are deleted soon after. Idempotent."""
        try:
            await self._holds.end(chat)
        except NotFound:
            return
