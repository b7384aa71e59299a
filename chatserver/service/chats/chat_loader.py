"""Chat loader: loads chats from the warm tier into the hot tier.

The loader runs in `workers.rpc` on behalf of gateways. It also repairs data loss in Redis: gaps
between messages, unapplied message changes, lost entries about membership changes, and read marks
and hidden messages above the newest entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from chatserver.domain.clock import Clock
from chatserver.domain.ids import DIRECT_PREFIX, ChatId, Seq, UserId
from chatserver.domain.write_restrictions import format_write_policy
from chatserver.errors import NotFound, Unavailable
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.hot.chats.message_changes import HiddenMessages
from chatserver.hot.users.inbox import Inboxes
from chatserver.service.history.newest_messages import NewestMessages
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.service.membership.membership_recovery import MembershipRecovery
from chatserver.service.messaging.message_change_recovery import MessageChangeRecovery
from chatserver.task_groups import map_concurrently
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.directory_items import StoredMember
from chatserver.warm.chats.member_states import MarkUpdate, MemberStates
from chatserver.warm.messages.message_changes import MessageChanges

LOADS_MAX = 3
LOWERED_IN_FLIGHT_MAX = 16


class ChatLoader:
    """Loads chats. `revive` completes an interrupted chat creation; it returns whether it did."""

    def __init__(
        self,
        *,
        directory: Directory,
        messages: WarmAndColdLog,
        changes: MessageChanges,
        hot: HotChatWriter,
        inboxes: Inboxes,
        member_states: MemberStates,
        hidden: HiddenMessages,
        clock: Clock,
        revive: Callable[[ChatId], Awaitable[bool]] | None = None,
    ) -> None:
        self._directory = directory
        self._messages = messages
        self._hot = hot
        self._inboxes = inboxes
        self._member_states = member_states
        self._hidden = hidden
        self._revive = revive
        self._newest = NewestMessages(messages, hot, clock)
        self._unapplied = MessageChangeRecovery(messages, changes)
        self._lost = MembershipRecovery(messages, hot)

    async def load_chat(self, chat: ChatId) -> None:
        """Load a chat into the hot tier.

        Raises:
            NotFound: the chat does not exist.
            Unavailable: the chat keeps changing while it is read.
        """
        for attempt in range(LOADS_MAX):
            try:
                if await self._load_chat(chat):
                    return
            except NotFound:
                if attempt or self._revive is None or not await self._revive(chat):
                    raise
        raise Unavailable(f"chat {chat}: changed while it was loaded; try again")

    async def _load_chat(self, chat: ChatId) -> bool:
        """Try to load a chat; return False if the chat changed while it was read."""
        epoch = self._hot.get_chat_epoch(chat)
        if chat.startswith(DIRECT_PREFIX):
            (record, members), head = await asyncio.gather(
                self._directory.get_chat_with_members(chat), self._messages.find_head(chat)
            )
        else:
            # Read the chat's item before its head (its newest stored entry), so that the head
            # includes changes that are stored between the two reads.
            record, members = await self._directory.get_chat_with_members(chat)
            head = await self._messages.find_head(chat)
        newest = [] if head is None else await self._newest.read(chat, head)
        newest = await self._unapplied.apply(chat, newest, epoch)
        lost = await self._lost.find(record, newest)
        await self._lower_lost_marks(chat, Seq(head.seq if head else 0), members)
        is_loaded = await self._hot.open_chat(
            chat=chat,
            kind=record.kind,
            name=record.name,
            version=record.version,
            members={
                UserId(member.user): (
                    member.role,
                    lost.joined.get(UserId(member.user), member.joined),
                )
                for member in members
            },
            # New seqs follow the newest stored entry, even if that entry has expired.
            head=(head.seq, head.ts) if head else (0, 0),
            newest=newest,
            history=record.history,
            epoch=epoch,
            large=record.large,
            write_policy=format_write_policy(
                record.slow_s,
                record.retention_s,
                is_blocked=bool(record.blockers),
                is_ended=record.ended_ms is not None,
            ),
            muted={
                UserId(member.user): member.muted_until
                for member in members
                if member.muted_until is not None
            },
            changes=lost.changes,
            change_positions=lost.positions,
            picture=record.picture or "",
        )
        if record.change is not None or record.unstored:
            await self._hot.record_unfinished(chat)
        return is_loaded

    async def _lower_lost_marks(
        self, chat: ChatId, head: Seq, members: Sequence[StoredMember]
    ) -> None:
        """Lower the marks of members who have read, or hidden, entries that Redis has lost.

        Until the chat is loaded, none of these can be above its newest entry. `head` is the newest
        stored seq; Redis may have later entries.
        """
        if all(max(m.read, m.received, *m.hidden) <= head for m in members):
            return
        top = Seq(max(head, await self._hot.get_seq(chat)))
        marks = [
            MarkUpdate(chat, member.user, member.read, member.received)
            for member in members
            if max(member.read, member.received) > top
        ]
        hidden = {
            member.user: lost
            for member in members
            if (lost := [seq for seq in member.hidden if seq > top])
        }
        # Redis first, because the next load finds nothing to do once DynamoDB is lowered. Redis
        # again, because a user's state may have been loaded from DynamoDB meanwhile.
        await self._lower_in_redis(chat, top, marks, hidden)
        await self._member_states.lower_marks(marks, top)
        for user, lost in hidden.items():
            await self._member_states.remove_hidden(chat, user, lost)
        await self._lower_in_redis(chat, top, marks, hidden)

    async def _lower_in_redis(
        self,
        chat: ChatId,
        top: Seq,
        marks: Sequence[MarkUpdate],
        hidden: Mapping[str, Sequence[int]],
    ) -> None:
        async def lower(mark: MarkUpdate) -> None:
            await self._inboxes.lower_marks(UserId(mark.user), chat, top, mark.read, mark.received)

        await map_concurrently(lower, marks, in_flight_max=LOWERED_IN_FLIGHT_MAX, name="lower-mark")
        for user, lost in hidden.items():
            await self._hidden.remove_hidden(UserId(user), chat, lost)
