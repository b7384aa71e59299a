"""Membership propagation: applies a committed change to Redis and delivers it to inboxes.

These are steps 3 to 5 in `chatserver.service.membership.group_membership`. All operations are safe
to repeat, to run concurrently in two processes, and to run in a process that did not commit the
change.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

import attrs
import msgspec
import structlog

from chatserver.domain.companion_ids import is_companion
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.inboxes import AppendResult, Delivery
from chatserver.domain.membership_change_types import ChangedChatHead, MembershipChange
from chatserver.domain.messages import Audience
from chatserver.domain.write_restrictions import format_write_policy
from chatserver.errors import ChatError, NotFound, Unavailable
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.fan_out_completion import UndeliveredChats
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions
from chatserver.hot.chats.membership import HotMembership
from chatserver.hot.chats.membership_notices import MembershipNotice
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.service.membership.former_members import FormerMembers
from chatserver.service.membership.unstored_membership_changes import (
    UnstoredChange,
    decode_record,
    find_change,
    find_unstored,
    list_unstored_from,
)
from chatserver.warm.chats.directory_items import StoredChat
from chatserver.warm.chats.memberships import Memberships

log = structlog.get_logger()

LOADS_MAX = 3
ROUNDS_MAX = 5  # maximum rounds of `deliver` while a chat becomes large or small
_CHAT_KEY: Final = UserId("+")  # used instead of a user id in events about the chat itself


@attrs.define(eq=False, repr=False, kw_only=True)
class MembershipPropagation:
    """Propagates membership changes. `load_chat` loads a chat into Redis."""

    _memberships: Memberships
    _hot_membership: HotMembership
    _inboxes: Inboxes
    _audiences: Audiences
    _undelivered: UndeliveredChats
    _load_chat: Callable[[ChatId], Awaitable[None]]
    _devices: RemoteDelivery
    _large_chats: LargeChatSubscriptions
    _former_members: FormerMembers

    async def finish(self, chat: ChatId) -> bool:
        """Complete a chat's interrupted change, if there is one.

        Return False if the chat's item still has changes; the caller must call again later.

        Raises:
            NotFound: the chat does not exist.
            Unavailable: a tier does not respond; retry later.
        """
        record = await self._memberships.get_chat(chat)
        if record.kind != "group":
            # In a chat that is not a group, only the write policy changes.
            await self.apply_write_policy(record)
            if record.ended_ms is not None:
                await self._notify_ended(record)
            return True
        await self.apply(record)
        await self.deliver(record)
        return await self._drop_stored(record)

    async def _drop_stored(self, record: StoredChat) -> bool:
        """Remove the changes whose entries are in DynamoDB; return True if none is left.

        If Redis lost a change and it was applied again, its seqs have changed. In this case, the
        seqs at which members joined and left are first corrected in the `directory` table.
        """
        changes = find_unstored(record)
        if not changes:
            return True
        chat = ChatId(record.chat)
        joined_users = {user for change in changes for user in change.newcomers}
        head = await self._hot_membership.find_head(chat, list(joined_users))
        if head is None:
            return False
        await self._former_members.correct_periods(chat, record.version, changes, head)
        # Keep the oldest change whose entries are not stored, and all later changes; see
        # `unstored_membership_changes.add_unstored`.
        first_unstored = next(
            (change.version for change in changes if not head.is_stored(change)), None
        )
        if not await self._memberships.set_joined(chat, record.version, head.joined):
            return False
        if first_unstored != changes[0].version:
            unstored = list_unstored_from(record, first_unstored)
            await self._memberships.put_unstored(chat, record.version, unstored)
        return first_unstored is None

    # Membership and write policy in Redis

    async def apply(self, record: StoredChat) -> None:
        """Apply the change in the chat's item, if any, to Redis; store its join and leave seqs.

        Guarantees:
            After it returns, no commit uses the previous membership (guarantee P7), and the
                `directory` table has the exact seq at which each member joined or left.

        Raises:
            Unavailable: Redis does not respond, or the chat cannot be loaded.
        """
        if record.change is None:
            return
        change = find_change(record)
        assert change is not None
        first = await self._apply_to_redis(change)
        written = decode_record(record.change)
        await self._correct_seqs(change, written, first)
        if written.update_mid:
            await self.apply_write_policy(record)

    async def _apply_to_redis(self, change: MembershipChange) -> Seq:
        """Apply a change to Redis; return its first seq, or 0 if Redis has a later change."""
        for _ in range(LOADS_MAX):
            first = await self._hot_membership.apply(change)
            if first is not None:
                return first
            await self._load_chat(change.chat)
        raise _make_load_error(change.chat)

    async def _correct_seqs(
        self, change: MembershipChange, written: UnstoredChange, first: Seq
    ) -> None:
        """Correct the join and leave seqs in `directory`, unless `first` is 0 or as expected."""
        chat = change.chat
        joined = {user: Seq(first + index) for user, index in change.newcomers.items()}
        if first > written.joined:
            await self._memberships.record_join_seqs(chat, list(joined.items()))
        elif 0 < first < written.joined:
            # Redis lost entries after the change was planned. If the chat has a newer version, its
            # process has applied this change too, and corrected the seqs.
            await self._memberships.set_joined(chat, change.version, joined)
        if first not in (0, written.joined):
            for index, member in enumerate(written.members):
                if not member.role and not member.is_new:
                    await self._memberships.record_leave_seq(
                        chat, member.user, member.mid, first + index
                    )

    async def apply_write_policy(self, record: StoredChat) -> None:
        """Apply the write policy in the chat's item (such as a block or slow mode) to Redis.

        Guarantees:
            After it returns, no commit accepts a message that the policy forbids.

        Raises:
            Unavailable: Redis does not respond, or the chat cannot be loaded.
        """
        chat = ChatId(record.chat)
        write_policy = format_write_policy(
            record.slow_s,
            record.retention_s,
            is_blocked=bool(record.blockers),
            is_ended=record.ended_ms is not None,
        )
        for _ in range(LOADS_MAX):
            if await self._hot_membership.set_write_policy(chat, record.version, write_policy):
                return
            await self._load_chat(chat)
        raise _make_load_error(chat)

    async def get_head(self, chat: ChatId, users: Sequence[UserId] = ()) -> ChangedChatHead:
        """Return the chat's newest seq and latest membership changes. Loads the chat if needed.

        The result's `joined` has only members among `users`.

        Raises:
            Unavailable: Redis does not respond, or the chat cannot be loaded.
        """
        for _ in range(LOADS_MAX):
            head = await self._hot_membership.find_head(chat, users)
            if head is not None:
                return head
            await self._load_chat(chat)
        raise _make_load_error(chat)

    # inboxes

    async def deliver_leaves(self, record: StoredChat, users: Collection[UserId]) -> None:
        """Complete the deliveries to those of `users` who have left and are about to rejoin.

        After they rejoin, the entries up to their leave entry would not be delivered anymore.

        Raises:
            Unavailable: the delivery is incomplete.
        """
        _, notices = await self._audiences.get_with_notices(ChatId(record.chat))
        if any(notice.user in users and not notice.is_in for notice in notices):
            await self.deliver(record)

    async def try_deliver(self, record: StoredChat) -> bool:
        """Call `deliver`. On failure, log the error and return False; worker `repair` retries."""
        try:
            await self.deliver(record)
        except ChatError as exc:
            log.warning("membership.deferred_to_repair", chat=record.chat, error=exc.message)
            return False
        return True

    async def deliver(self, record: StoredChat) -> None:
        """Deliver the chat's entries to all inboxes, and list the chat for new members.

        If the chat has become large or small, each inbox gets the earlier entries, an event about
        the new size, and the later entries, in this order. Every device thus switches between
        inbox and log without a gap or a duplicate (guarantee P4).

        Raises:
            Unavailable: the delivery is incomplete.
        """
        chat = ChatId(record.chat)
        for _ in range(ROUNDS_MAX):
            # Read the members (`audience`) together with the pending notices: joins, leaves, and
            # that the chat became large or small. Otherwise, inboxes could get the entries after
            # such a change before its notice.
            audience, notices = await self._audiences.get_with_notices(chat)
            await self._deliver_notices(audience, notices, record)
            await self._deliver_upto(audience, audience.top)
            # Delete the notices before the fan-out is marked as done, so that they are not sent
            # again.
            await self._hot_membership.delete_notices(chat, notices)
            await self._mark_delivered(audience)
            if not audience.is_in_transition:
                break
            # While a chat becomes large or small, fan-outs leave its new entries to this loop.
        if record.change is not None:
            await self._memberships.clear_change(chat, record.version)

    async def _deliver_notices(
        self, audience: Audience, notices: Sequence[MembershipNotice], record: StoredChat
    ) -> None:
        chat = audience.chat
        joined = [notice.user for notice in notices if notice.is_in and notice.user]
        members = await self._audiences.find_members(chat, joined)
        joins = [notice for notice in notices if notice.is_in and notice.user in members]
        leaves = [notice for notice in notices if notice.user and not notice.is_in]
        for _, group in itertools.groupby(notices, key=lambda notice: notice.version):
            change = list(group)
            users = [join.user for join in joins if join in change and not join.is_large]
            await self._list_chat([user for user in users if user], record)
            for notice in change:
                await self._deliver_notice(audience, notice, leaves)
        for join in joins:
            assert join.user is not None
            await self._mark_as_read(join.user, chat, Seq(join.seq - 1))

    async def _deliver_notice(
        self, audience: Audience, notice: MembershipNotice, leaves: Sequence[MembershipNotice]
    ) -> None:
        if notice.user is None:
            await self._deliver_transition(audience, notice, leaves)
        elif not notice.is_in:
            await self._deliver_leave(audience, notice, notice.user)
        elif notice.is_large:
            await self._notify_size(audience, notice, [notice.user], Seq(notice.seq - 1))

    async def _deliver_transition(
        self, audience: Audience, notice: MembershipNotice, leaves: Sequence[MembershipNotice]
    ) -> None:
        """Deliver the entries before the chat became large or small, then notify its members."""
        await self._deliver_upto(audience, notice.seq)
        # Leave out members who joined after the chat became large or small: the delivery of their
        # join covers them.
        first_own = max(notice.seq, 1)
        users = [user for user, first in audience.joined.items() if first <= first_own]
        # Members who left after the chat became large or small get the same entries and event.
        for leave in leaves:
            if leave.user is not None and leave.after < notice.seq < leave.seq:
                await self._deliver_spans(audience, leave.user, leave.after, notice.seq)
                users.append(leave.user)
        await self._notify_size(audience, notice, users, notice.seq)

    async def _deliver_leave(
        self, audience: Audience, notice: MembershipNotice, user: UserId
    ) -> None:
        if not notice.is_large and not audience.transitions:
            await self._deliver_ranges(audience, [(user, notice.after, notice.seq)])
            return
        # While the chat was large, its entries were not delivered through inboxes.
        await self._deliver_spans(audience, user, notice.after, notice.seq)
        if notice.is_large:
            # The user's last entry, about the leave itself, is delivered through the inbox.
            entry = (user, Seq(notice.seq - 1), audience.chat, b"%d" % notice.seq)
            await self._append_size_events(audience, notice.version, [entry], is_large=False)

    async def _notify_size(
        self, audience: Audience, notice: MembershipNotice, users: Sequence[UserId], since: Seq
    ) -> None:
        info = await self.describe(audience.chat)
        info = msgspec.structs.replace(info, large=notice.is_large, since=since)
        body = codec.encode_chat_event_body(info)
        events = [(user, since, "!", body) for user in users]
        await self._append_size_events(audience, notice.version, events, is_large=notice.is_large)

    async def _append_size_events(
        self,
        audience: Audience,
        version: int,
        events: Sequence[tuple[UserId, Seq, str, bytes]],
        *,
        is_large: bool,
    ) -> None:
        chat, epoch = audience.chat, audience.epoch
        self._notify_seq(
            await self._inboxes.append_transition(
                chat, version, events, is_large=is_large, epoch=epoch
            )
        )

    async def _deliver_upto(self, audience: Audience, upto: Seq) -> None:
        await self._deliver_ranges(
            audience,
            [
                (user, first, last)
                for user, after in audience.users.items()
                for first, last in audience.inbox_spans(max(after, audience.done), upto)
            ],
        )

    async def _deliver_spans(self, audience: Audience, user: UserId, after: Seq, upto: Seq) -> None:
        """Deliver ``(after, upto]`` to one inbox, except entries sent while the chat was large."""
        spans = audience.inbox_spans(after, upto)
        await self._deliver_ranges(audience, [(user, first, last) for first, last in spans])

    async def _deliver_ranges(
        self, audience: Audience, ranges: Sequence[tuple[UserId, Seq, Seq]]
    ) -> None:
        if ranges:
            chat, epoch = audience.chat, audience.epoch
            deliveries = [Delivery(user, chat, after, upto, epoch) for user, after, upto in ranges]
            self._notify_seq(await self._inboxes.deliver(deliveries))

    async def _mark_delivered(self, audience: Audience) -> None:
        chat, head = audience.chat, audience.top
        if audience.is_large:
            gateways = await self._large_chats.list_gateways(chat)
            self._devices.notify_channel_seq(chat, head, gateways)
        # Let the event loop send the notifications before the chat is marked as delivered.
        await asyncio.sleep(0)
        await self._undelivered.finish([(chat, head)])

    async def _list_chat(self, users: list[UserId], record: StoredChat) -> None:
        if not users:
            return
        chat = ChatId(record.chat)
        body = codec.encode_chat_event_body(await self.describe(chat))
        results = await self._inboxes.append_event(users, chat, body, is_listed=True)
        # Members who rejoin may still have the chat in their chat list. Notify them anyway.
        returning = [result.user for result in results if not result.appended]
        if returning:
            results += await self._inboxes.append_marks(
                returning, chat, body, _CHAT_KEY, record.version
            )
        self._notify_seq(results)

    async def _notify_ended(self, record: StoredChat) -> None:
        """Notify the user once that their companion session has ended."""
        chat = ChatId(record.chat)
        info = await self.describe(chat)
        users = [UserId(user) for user in info.members if not is_companion(user)]
        body = codec.encode_chat_event_body(info)
        self._notify_seq(
            await self._inboxes.append_marks(users, chat, body, _CHAT_KEY, record.version)
        )

    def _notify_seq(self, results: Sequence[AppendResult]) -> None:
        for result in results:
            if result.appended:
                self._devices.notify_seq(result.user, result.seq, result.gateways)

    async def _mark_as_read(self, user: UserId, chat: ChatId, seq: Seq) -> None:
        if seq > 0:
            try:
                await self._inboxes.mark(user, chat, seq, seq)
            except NotFound as exc:
                log.info("membership.mark_failed", chat=chat, user=user, error=exc.message)

    async def describe(self, chat: ChatId) -> frames.ChatInfo:
        """Return the chat's current state. Raises NotFound."""
        record, members = await self._memberships.list_first(chat, frames.MEMBERS_SHOWN_MAX)
        return frames.ChatInfo(
            chat=chat,
            kind=record.kind,
            members=[member.user for member in members],
            name=record.name,
            topic=record.topic,
            picture=record.picture,
            count=record.count if record.count is not None else len(members),
            roles={member.user: member.role for member in members if member.role != "member"},
            joining=record.joining,
            history=record.history,
            large=record.large > 0,
            slow_s=record.slow_s,
            retention_s=record.retention_s,
            muted={
                member.user: member.muted_until
                for member in members
                if member.muted_until is not None
            },
            blocked=bool(record.blockers),
            ended=record.ended_ms is not None,
        )


def _make_load_error(chat: ChatId) -> Unavailable:
    return Unavailable(f"chat {chat}: could not be loaded; try again")
