"""Blocks, reports, and the list of users banned from a chat.

Mutes, bans and slow mode are group changes: see `chatserver.service.membership.group_membership`. A
block changes a direct chat without adding an entry to it::

    marker ─► directory: block, chat item (version+1) ─► Redis: write policy ─► delete marker

The marker in Redis records an unfinished change. If the process dies after writing to the
`directory` table, worker `repair` finds the marker and applies the write policy. From then on, no
commit accepts messages in the direct chat.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq, UserId, direct_chat_id
from chatserver.domain.membership_rules import NOT_A_MEMBER, Group
from chatserver.domain.text_validation import parse_note
from chatserver.domain.write_restrictions import BLOCKS_MAX
from chatserver.errors import BadRequest, NotFound, TooLarge
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.chats.membership import HotMembership, MemberCheck
from chatserver.hot.users.blocks import HotBlocks
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.protocol.webhook_messages import HookEvent
from chatserver.service.membership.group_membership import MARKER_TTL_S
from chatserver.service.membership.invitations import FollowGraph
from chatserver.service.membership.membership_propagation import MembershipPropagation
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.memberships import Memberships
from chatserver.warm.chats.moderation import Ban, MessageReport
from chatserver.warm.chats.moderation import Moderation as ModerationRows

NO_MESSAGE = "seq: the chat has no such message"

PublishEvent = Callable[[UserId, HookEvent], Awaitable[None]]


@attrs.define(eq=False, repr=False, kw_only=True)
class BlocksAndReports:
    """Use cases: block users, report messages, list a chat's banned users."""

    _rows: ModerationRows
    _directory: Directory
    _memberships: Memberships
    _hot_membership: HotMembership
    _propagation: MembershipPropagation
    _blocks: HotBlocks
    _members: MemberCheck
    _inboxes: Inboxes
    _devices: RemoteDelivery
    _publish_event: PublishEvent
    _clock: Clock
    _follows: FollowGraph

    # blocks

    async def block(self, user: UserId, other: UserId) -> None:
        """Block a user. Neither user can send the other direct messages or invitations.

        Guarantees:
            Idempotent.
            After it returns, no message from either user is committed in their direct chat, and
                neither follows the other.

        Raises:
            BadRequest: both ids are the same.
            NotFound: the other user does not exist.
            TooLarge: the user has reached the limit on blocks.
            Unavailable: the user may or may not be blocked; repeat the call.
        """
        if user == other:
            raise BadRequest("user: you cannot block yourself")
        try:
            await self._directory.get_user(other)
        except NotFound:
            raise NotFound(f"{other}: there is no such user") from None
        if len(await self._rows.list_blocks(user, None, BLOCKS_MAX)) >= BLOCKS_MAX:
            raise TooLarge(f"user: you can block at most {BLOCKS_MAX:,} users")
        await self._rows.put_block(user, other, self._clock.time())
        await self._blocks.add(user, other)
        await self._follows.remove_between(user, other)
        await self._mark_direct_chat(user, other, is_blocked=True)
        await self._publish_block("user.blocked", user, other)

    async def unblock(self, user: UserId, other: UserId) -> None:
        """Remove the user's own block; a block by the other user remains. Idempotent."""
        if user == other:
            raise BadRequest("user: you cannot unblock yourself")
        await self._rows.delete_block(user, other)
        if not await self._rows.find_blocked(user, [other]):
            await self._blocks.remove(user, other)
        await self._mark_direct_chat(user, other, is_blocked=False)
        await self._publish_block("user.unblocked", user, other)

    async def _mark_direct_chat(self, user: UserId, other: UserId, *, is_blocked: bool) -> None:
        chat = direct_chat_id(user, other)
        marker = await self._hot_membership.begin(chat, MARKER_TTL_S)
        is_new = await self._rows.mark_chat(chat, user, is_blocked=is_blocked)
        try:
            record = await self._directory.get_chat(chat)
        except NotFound:
            pass  # when the chat is created, `BlockPolicy.mark_new_chat` applies the block
        else:
            await self._propagation.apply_write_policy(record)
            if is_new:
                await self._notify_devices(user, chat, is_blocked=is_blocked)
        await self._hot_membership.end(marker)

    async def _notify_devices(self, user: UserId, chat: ChatId, *, is_blocked: bool) -> None:
        """Send the chat's new state to the blocking user's devices only: blocks are private."""
        info = await self._propagation.describe(chat)
        if info.blocked == is_blocked:
            body = codec.encode_chat_event_body(info)
            for result in await self._inboxes.append_event([user], chat, body):
                if result.appended:
                    self._devices.notify_seq(result.user, result.seq, result.gateways)

    async def _publish_block(self, name: str, user: UserId, other: UserId) -> None:
        now = self._clock.time()
        event_id = f"{name}.{user}.{other}.{int(now * 1000)}"
        data: dict[str, str | int] = {"user": user, "other": other}
        await self._publish_event(user, HookEvent(event_id, name, int(now * 1e6), data=data))

    async def list_blocks(
        self, user: UserId, after: str | None, limit: int
    ) -> tuple[list[frames.BlockedUser], str | None]:
        """Return `(users, next)`: a page of the users that `user` has blocked, sorted by id.

        `next` is the `after` for the next page, or None.
        """
        blocks = await self._rows.list_blocks(user, after, limit + 1)
        page = [frames.BlockedUser(block.user, block.since) for block in blocks[:limit]]
        return page, page[-1].user if len(blocks) > limit else None

    # reports

    async def report(self, user: UserId, chat: ChatId, seq: Seq, reason: str) -> None:
        """Store a user's report of a message. If the user has already reported it, nothing changes.

        Raises:
            NotFound: the chat or message does not exist, or the user may not read it.
        """
        reason = parse_note(reason, "reason")
        reader = await self._members.get_reader(chat, user)
        if seq < reader.first:
            reader = await self._members.add_periods(chat, user, reader)
        if not reader.is_readable(seq):
            raise NotFound(NO_MESSAGE)
        now = self._clock.time()
        if await self._rows.put_report(chat, seq, user, reason, now):
            data: dict[str, str | int] = {
                "chat": chat,
                "seq": seq,
                "reporter": user,
                "reason": reason,
            }
            event_id = f"report.{chat}.{seq}.{user}"
            event = HookEvent(event_id, "report", int(now * 1e6), data=data)
            await self._publish_event(user, event)

    async def list_open_reports(
        self, after: str | None, limit: int, *, is_newest_first: bool = False
    ) -> tuple[list[MessageReport], str | None]:
        """Return `(reports, next)`: a page of open reports from all chats, by time.

        `next` is the `after` for the next page, or None.
        """
        return await self._rows.list_open_reports(after, limit, is_newest_first=is_newest_first)

    async def list_reports(
        self, actor: UserId | None, chat: ChatId, after: str | None, limit: int
    ) -> tuple[list[MessageReport], str | None]:
        """Return `(reports, next)`: a page of a chat's reports, in seq order.

        `actor` is None for the host application. `next` is the `after` for the next page, or None.

        Raises:
            NotFound: the chat does not exist, or the actor is not a member.
            Forbidden: the actor is neither an owner nor an admin.
        """
        await self._require_manager(actor, chat)
        found = await self._rows.list_reports(chat, after, limit + 1)
        reports, has_more = found[:limit], len(found) > limit
        return reports, f"{reports[-1].seq:020d}#{reports[-1].reporter}" if has_more else None

    async def resolve(
        self, actor: UserId | None, resolver: str, chat: ChatId, seq: Seq, reporter: UserId
    ) -> None:
        """Mark a report as resolved. Idempotent.

        Raises:
            NotFound: the report or chat does not exist, or the actor is not a member.
            Forbidden: the actor is neither an owner nor an admin.
        """
        await self._require_manager(actor, chat)
        report = await self._rows.get_report(chat, seq, reporter)
        await self._rows.resolve(report, resolver, self._clock.time())

    async def list_bans(
        self, actor: UserId | None, chat: ChatId, after: str | None, limit: int
    ) -> tuple[list[Ban], str | None]:
        """Return `(bans, next)`: a page of the users banned from a chat, like `list_reports`."""
        await self._require_manager(actor, chat)
        found = await self._rows.list_bans(chat, after, limit + 1)
        bans, has_more = found[:limit], len(found) > limit
        return bans, bans[-1].user if has_more else None

    async def _require_manager(self, actor: UserId | None, chat: ChatId) -> None:
        try:
            record, members = await self._memberships.read(chat, [actor] if actor else [])
        except NotFound:
            raise NotFound(NOT_A_MEMBER) from None
        if actor is not None:
            roles = {UserId(user): member.role for user, member in members.items()}
            Group(record.kind, record.joining, record.count or 0, 0, roles).require_manager(actor)
