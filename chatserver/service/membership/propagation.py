"""Membership propagation: applies a committed change to Redis and delivers it to inboxes.

This is the second half of `chatserver.service.membership.service`, which describes the steps. Every
operation may run twice, in two processes at once, or in another process than the one that started
it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import structlog

from chatserver.domain.companion_ids import is_companion
from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.inboxes import Delivery, MarkResult, Place
from chatserver.domain.membership_changes import ChangedChatHead, MembershipChange
from chatserver.domain.messages import Audience
from chatserver.domain.moderation import format_strictness
from chatserver.errors import ChatError, NotFound, Unavailable
from chatserver.protocol import codec, frames
from chatserver.service.membership.change_records import (
    decode_record,
    find_change,
    find_unstored,
    keep_unstored,
)
from chatserver.warm.chats.records import Chat

log = structlog.get_logger()

LOADS_MAX = 3
ROUNDS_MAX = 5  # repeats for changes that arrive during the delivery
_LISTED = UserId("+")  # not a user: key for notifications about the chat itself


class ChangedDirectory(Protocol):
    """Directory operations that complete a change."""

    async def get_chat(self, chat: str) -> Any: ...

    async def list_first(self, chat: str, limit: int) -> tuple[Any, Sequence[Any]]: ...

    async def fix_joined(self, chat: str, joined: Sequence[tuple[str, int]]) -> None: ...

    async def fix_left(self, chat: str, user: str, mid: str, seq: int) -> None: ...

    async def clear_change(self, chat: str, version: int) -> None: ...

    async def set_joined(self, chat: str, version: int, joined: Mapping[UserId, Seq]) -> bool: ...

    async def put_unstored(self, chat: str, version: int, unstored: str) -> None: ...


class Turn(Protocol):
    """A join, a leave or a large-chat transition; see `chatserver.hot.chats.membership_notices`."""

    @property
    def version(self) -> int: ...
    @property
    def user(self) -> UserId | None: ...
    @property
    def is_in(self) -> bool: ...
    @property
    def seq(self) -> Seq: ...
    @property
    def after(self) -> Seq: ...
    @property
    def is_large(self) -> bool: ...


class HotChanges(Protocol):
    """Changes in Redis."""

    async def apply(self, change: MembershipChange) -> Seq | None: ...

    async def restrict(self, chat: ChatId, version: int, strictness: str) -> bool: ...

    async def forget_turnover(self, chat: ChatId, turns: Sequence[Any]) -> None: ...

    async def find_head(
        self, chat: ChatId, users: Sequence[UserId] = ()
    ) -> ChangedChatHead | None: ...


class Boxes(Protocol):
    """User states and inboxes."""

    async def deliver(self, deliveries: Sequence[Delivery]) -> list[Place]: ...

    async def append_event(
        self, users: Sequence[UserId], chat: ChatId, body: bytes, *, is_listed: bool = False
    ) -> list[Place]: ...

    async def append_marks(
        self, users: Sequence[UserId], chat: ChatId, body: bytes, reader: UserId, level: int
    ) -> list[Place]: ...

    async def mark(self, user: UserId, chat: ChatId, read: Seq, received: Seq) -> MarkResult: ...

    async def turn(
        self,
        chat: ChatId,
        version: int,
        news: Sequence[tuple[UserId, Seq, str, bytes]],
        *,
        is_large: bool,
        epoch: Epoch,
    ) -> list[Place]: ...


class Audiences(Protocol):
    """Members of chats."""

    async def get_turning(self, chat: ChatId) -> tuple[Audience, Sequence[Turn]]: ...

    async def find_members(self, chat: ChatId, users: Sequence[UserId]) -> dict[UserId, Seq]: ...


class Settler(Protocol):
    """Removes chats from the list of unfinished fan-outs, unless they have newer entries."""

    async def settle(self, done: Sequence[tuple[ChatId, Seq]]) -> None: ...


class WatchingGateways(Protocol):
    """Gateways with sessions of a large chat."""

    async def list_gateways(self, chat: ChatId) -> list[GatewayId]: ...


class FormerPeriods(Protocol):
    """Periods of members who left; see `chatserver.service.membership.former_members`."""

    async def fix_periods(
        self, chat: ChatId, changes: Sequence[MembershipChange], head: ChangedChatHead
    ) -> None: ...


class GatewayNotifier(Protocol):
    """Sends notifications to gateways."""

    def nudge(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None: ...

    def nudge_channel(self, chat: ChatId, seq: Seq, gateways: Sequence[GatewayId]) -> None: ...


class MembershipPropagation:
    """Propagates membership changes. `load_chat` loads a chat into Redis."""

    def __init__(
        self,
        directory: ChangedDirectory,
        hot: HotChanges,
        boxes: Boxes,
        audiences: Audiences,
        settler: Settler,
        load_chat: Callable[[ChatId], Awaitable[None]],
        told: GatewayNotifier,
        watchers: WatchingGateways,
        former: FormerPeriods,
    ) -> None:
        self._former = former
        self._directory = directory
        self._hot = hot
        self._boxes = boxes
        self._audiences = audiences
        self._settler = settler
        self._load_chat = load_chat
        self._told = told
        self._watchers = watchers

    async def finish(self, chat: ChatId) -> bool:
        """Complete an interrupted change of a chat; do nothing if all is done.

        Returns False if entries of changes are not stored yet, so that the call has to be repeated.

        Raises:
            NotFound: there is no such chat.
            Unavailable: a tier does not respond; retry later.
        """
        record = await self._directory.get_chat(chat)
        if record.kind != "group":
            await self.restrict(record)  # the only part of such a chat that changes
            if record.ended_ms is not None:
                await self.tell_ended(record)
            return True
        if record.change is not None:
            await self.bring(record)
        await self.tell(record)
        return await self._forget_stored(record)

    async def _forget_stored(self, record: Chat) -> bool:
        """Remove changes with stored entries from the row; return whether none is left.

        Before that, the directory gets the seqs at which members joined and left: they differ if a
        change was applied again.
        """
        changes = find_unstored(record)
        if not changes:
            return True
        chat = ChatId(record.chat)
        users = {user for change in changes for user in change.newcomers}
        head = await self._hot.find_head(chat, list(users))
        if head is None:
            return False
        await self._former.fix_periods(chat, changes, head)
        # Oldest first; see `change_records.add_unstored`.
        kept = next((each.version for each in changes if not head.is_stored(each)), None)
        if not await self._directory.set_joined(chat, record.version, head.joined):
            return False
        if kept != changes[0].version:
            text = keep_unstored(record, kept)
            await self._directory.put_unstored(chat, record.version, text)
        return kept is None

    async def bring(self, record: Chat) -> None:
        """Apply to Redis the change in the chat's row, and store where members joined and left.

        Guarantees:
            When it returns, no commit uses the previous membership (promise P7), and the directory
            has the exact seq at which each member joined or left. When the chat is loaded again,
            new members see nothing older, and rejoining members see nothing in between.

        Raises:
            Unavailable: Redis does not respond, or the chat cannot be loaded.
        """
        if record.change is None:
            return
        chat, noted = ChatId(record.chat), decode_record(record.change)
        change = find_change(record)
        assert change is not None
        for _ in range(LOADS_MAX):
            first = await self._hot.apply(change)
            if first is not None:
                break
            await self._load_chat(chat)
        else:
            raise Unavailable(f"chat {chat}: could not be opened, try again")
        if first > noted.joined and change.newcomers:
            joined = [(user, first + index) for user, index in change.newcomers.items()]
            await self._directory.fix_joined(chat, joined)
        if first not in (0, noted.joined):
            for index, member in enumerate(noted.members):
                if not member.role and not member.is_new:
                    await self._directory.fix_left(chat, member.user, member.mid, first + index)
        if noted.update_mid:
            await self.restrict(record)

    async def restrict(self, record: Chat) -> None:
        """Apply the write policy of the chat's row to Redis, such as a block or slow mode.

        Guarantees:
            When it returns, no commit accepts a message that the policy forbids.

        Raises:
            Unavailable: Redis does not respond, or the chat cannot be loaded.
        """
        chat = ChatId(record.chat)
        strictness = format_strictness(
            record.slow_s,
            record.retention_s,
            is_blocked=bool(record.blockers),
            is_ended=record.ended_ms is not None,
        )
        for _ in range(LOADS_MAX):
            if await self._hot.restrict(chat, record.version, strictness):
                return
            await self._load_chat(chat)
        raise Unavailable(f"chat {chat}: could not be opened, try again")

    async def open(self, chat: ChatId, users: Sequence[UserId] = ()) -> ChangedChatHead:
        """Return the head of a chat and of its last changes; load it into Redis if needed.

        `joined` of the result contains those of `users` who are members.

        Raises:
            Unavailable: Redis does not respond, or the chat cannot be loaded.
        """
        for _ in range(LOADS_MAX):
            head = await self._hot.find_head(chat, users)
            if head is not None:
                return head
            await self._load_chat(chat)
        raise Unavailable(f"chat {chat}: could not be opened, try again")

    async def see_off(self, record: Chat, users: Collection[UserId]) -> None:
        """Deliver pending leaves of those of `users` who left, before they rejoin.

        A later delivery would overtake the entries still due to them and hide those permanently.

        Raises:
            Unavailable: the delivery is incomplete.
        """
        _, turns = await self._audiences.get_turning(ChatId(record.chat))
        if any(turn.user in users and not turn.is_in for turn in turns):
            await self.tell(record)

    async def tell(self, record: Chat) -> None:
        """Deliver the chat's entries to all inboxes, list the chat for new members, and clean up.

        If the chat became large or small, each inbox gets the entries before the transition, then
        the transition, then the later entries. Every device thus switches its source without a gap
        and without a repeat (promise P4).

        Raises:
            Unavailable: the delivery is incomplete.
        """
        chat = ChatId(record.chat)
        for _ in range(ROUNDS_MAX):
            # Read together: no delivery goes beyond a transition that is missing here.
            audience, turns = await self._audiences.get_turning(chat)
            await self._tell_turns(audience, turns, record)
            await self._deliver_upto(audience, audience.top)
            # Before the fan-out counts as done: after that, notices must not be sent again.
            await self._hot.forget_turnover(chat, turns)
            await self._settle(audience)
            if not audience.is_turning:
                break
            # Entries committed meanwhile were left to this process.
        if record.change is not None:
            await self._directory.clear_change(chat, record.version)

    async def _tell_turns(self, audience: Audience, turns: Sequence[Turn], record: Chat) -> None:
        """Deliver the membership notices in order."""
        chat = audience.chat
        newcomers = [turn.user for turn in turns if turn.is_in and turn.user is not None]
        members = await self._audiences.find_members(chat, newcomers)
        came = [turn for turn in turns if turn.is_in and turn.user in members]
        leavers = [turn for turn in turns if turn.user is not None and not turn.is_in]
        for _, made in itertools.groupby(turns, key=lambda turn: turn.version):
            change = list(made)
            users = [turn.user for turn in change if turn in came and not turn.is_large]
            await self._list_for([user for user in users if user], record)
            for turn in change:
                await self._take_turn(audience, turn, leavers)
        for turn in came:
            assert turn.user is not None
            await self._mark_as_read(turn.user, chat, Seq(turn.seq - 1))

    async def _take_turn(self, audience: Audience, turn: Turn, leavers: Sequence[Turn]) -> None:
        """Deliver one membership notice, to one user or to all members."""
        chat = audience.chat
        if turn.user is None:
            await self._deliver_upto(audience, turn.seq)
            # Members who joined later have a notice of their own.
            first_own = max(turn.seq, 1)
            users = [user for user, first in audience.joined.items() if first <= first_own]
            # Members at that time who have left since take the same path up to their last entry.
            for gone in leavers:
                if gone.user is not None and gone.after < turn.seq < gone.seq:
                    await self._deliver_spans(audience, gone.user, gone.after, turn.seq)
                    users.append(gone.user)
            await self._tell_turn(audience, turn, users, turn.seq)
        elif not turn.is_in:
            if turn.is_large or audience.turns:
                # If the chat was large until now, a part was delivered by the channel.
                await self._deliver_spans(audience, turn.user, turn.after, turn.seq)
            else:
                await self._deliver(audience, [(turn.user, turn.after, turn.seq)])
            if turn.is_large:
                # The entry about the leave is the last one, and is delivered by the inbox.
                entry = (turn.user, Seq(turn.seq - 1), chat, b"%d" % turn.seq)
                self._tell_of(
                    await self._boxes.turn(
                        chat, turn.version, [entry], is_large=False, epoch=audience.epoch
                    )
                )
        elif turn.is_large:
            await self._tell_turn(audience, turn, [turn.user], Seq(turn.seq - 1))

    async def _tell_turn(
        self, audience: Audience, turn: Turn, users: Sequence[UserId], since: Seq
    ) -> None:
        info = await self.describe(audience.chat)
        info = msgspec.structs.replace(info, large=turn.is_large, since=since)
        body = codec.chat_event_body(info)
        news = [(user, since, "!", body) for user in users]
        self._tell_of(
            await self._boxes.turn(
                audience.chat, turn.version, news, is_large=turn.is_large, epoch=audience.epoch
            )
        )

    async def _deliver_upto(self, audience: Audience, upto: Seq) -> None:
        """Deliver the due entries to every member's inbox."""
        spans = [
            (user, first, last)
            for user, after in audience.users.items()
            for first, last in audience.inbox_spans(max(after, audience.done), upto)
        ]
        await self._deliver(audience, spans)

    async def _deliver_spans(self, audience: Audience, user: UserId, after: Seq, upto: Seq) -> None:
        """Deliver the entries of ``(after, upto]`` that belong in one inbox."""
        spans = audience.inbox_spans(after, upto)
        await self._deliver(audience, [(user, first, last) for first, last in spans])

    async def _deliver(self, audience: Audience, spans: Sequence[tuple[UserId, Seq, Seq]]) -> None:
        if spans:
            chat, epoch = audience.chat, audience.epoch
            deliveries = [Delivery(user, chat, after, upto, epoch) for user, after, upto in spans]
            self._tell_of(await self._boxes.deliver(deliveries))

    async def _settle(self, audience: Audience) -> None:
        """Record that everything up to the audience's `top` is delivered."""
        chat, head = audience.chat, audience.top
        if audience.is_large:
            self._told.nudge_channel(chat, head, await self._watchers.list_gateways(chat))
        # After the wake-ups: they are sent in this tick, on the same connection.
        await asyncio.sleep(0)
        await self._settler.settle([(chat, head)])

    async def _list_for(self, users: list[UserId], record: Chat) -> None:
        if not users:
            return
        chat = ChatId(record.chat)
        body = codec.chat_event_body(await self.describe(chat))
        places = await self._boxes.append_event(users, chat, body, is_listed=True)
        # Returning members have the chat listed, but must still be notified.
        again = [place.user for place in places if not place.appended]
        if again:
            places += await self._boxes.append_marks(again, chat, body, _LISTED, record.version)
        self._tell_of(places)

    async def tell_ended(self, record: Chat) -> None:
        """Notify a session's user that it has ended; each inbox gets one notification."""
        chat = ChatId(record.chat)
        info = await self.describe(chat)
        users = [UserId(user) for user in info.members if not is_companion(user)]
        body = codec.chat_event_body(info)
        self._tell_of(await self._boxes.append_marks(users, chat, body, _LISTED, record.version))

    def _tell_of(self, places: Sequence[Place]) -> None:
        for place in places:
            if place.appended:
                self._told.nudge(place.user, place.seq, place.gateways)

    async def _mark_as_read(self, user: UserId, chat: ChatId, seq: Seq) -> None:
        """Mark the messages before a user's join as read."""
        if seq > 0:
            try:
                await self._boxes.mark(user, chat, seq, seq)
            except NotFound as exc:
                log.info("membership.not_marked", chat=chat, user=user, why=exc.message)

    async def describe(self, chat: ChatId) -> frames.ChatInfo:
        """Return the current state of a chat. Raises NotFound."""
        record, members = await self._directory.list_first(chat, frames.MEMBERS_SHOWN_MAX)
        return frames.ChatInfo(
            chat=chat,
            kind=record.kind,
            members=[member.user for member in members],
            name=record.name,
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

    async def try_to_tell(self, record: Chat) -> bool:
        """As `tell`, but log a failure, leave the rest to `workers.repair` and return False."""
        try:
            await self.tell(record)
        except ChatError as exc:
            log.warning("membership.left_to_repair", chat=record.chat, error=exc.message)
            return False
        return True
