"""A user's chats: open, create and list them, with unread counts and the newest messages."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import attrs
import msgspec

from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import ChatId, Ref, Seq, UserId
from chatserver.domain.inboxes import InboxState, UserChat
from chatserver.domain.membership_rules import ChatKind
from chatserver.domain.message_change_types import NOTHING_HIDDEN
from chatserver.domain.messages import Audience, ChatHead, LogEntry
from chatserver.domain.page_limits import WIDEST, PageBounds
from chatserver.domain.text_validation import parse_name
from chatserver.errors import BadRequest, ChatError, NotFound, Unavailable
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.unread_counts import UnreadCounts
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.protocol.message_change_effects import is_message
from chatserver.protocol.redis_memory_costs import (
    NEW_INBOX_BYTES,
    Charge,
    charge_nobody,
)
from chatserver.service.chats.read_marks import get_marks
from chatserver.service.history.history_pages import WarmHistory
from chatserver.service.history.reader_views import NO_CHANGES, ReaderViews, View
from chatserver.service.messaging.device_delivery import DeviceDelivery

SNAPSHOT_CHATS = 50
MEMBERS_SHOWN_MAX = 20
# Newest entries to search for the message shown in the chat list: most chats need no more than the
# first ones.
PREVIEW_DEPTHS = (3, 20)
OLDER_PREVIEW_DEPTH = 5  # entries to search in older tiers, if Redis has no more
HEAD_TRIES_MAX = 3
SUMMARIES_AT_ONCE = 16  # chats of a page whose summaries are created together


class ChatDirectory(Protocol):
    """Creates chats, in this process or through an rpc worker."""

    async def open_direct(
        self, user: UserId, other: UserId, *, is_host: bool = False
    ) -> frames.ChatInfo:
        """Return the direct chat between two users; create and load it if needed. Idempotent."""

    async def create_chat(
        self,
        user: UserId,
        ref: Ref,
        members: Sequence[UserId],
        name: str | None,
        *,
        is_host: bool = False,
    ) -> frames.ChatInfo:
        """Create and load a group; the same creator and `ref` return the same group."""


@attrs.define(eq=False, repr=False, kw_only=True)
class UserChats:
    """Opens, creates and lists the chats of users."""

    _inboxes: Inboxes
    _audiences: Audiences
    _log: ChatLog
    _unread_counts: UnreadCounts
    _older: WarmHistory
    _directory: ChatDirectory
    _load_user: Callable[[UserId], Awaitable[None]]
    _devices: DeviceDelivery
    _clock: Clock = attrs.field(factory=SystemClock)
    _views: ReaderViews | None = None
    _pages: PageBounds = WIDEST
    _charge: Charge = charge_nobody

    async def open_direct(
        self, user: UserId, other: UserId, *, is_host: bool = False
    ) -> frames.ChatInfo:
        """Return the direct chat between two users; create it if needed.

        `is_host`: the caller has an API key, so limits on new chats do not apply.

        Guarantees:
            Idempotent: both users always get the same chat.
            The other user sees the chat in their list from the first message on.

        Raises:
            BadRequest: both ids are the same, or the user has reached the limit on direct chats.
            RateLimited: the user has reached the daily limit on new chats with strangers.
            NotFound: the other user does not exist.
            Forbidden: one user has blocked the other, and there is no chat yet.
        """
        if user == other:
            raise BadRequest("user: must be another user")
        info = await self._directory.open_direct(user, other, is_host=is_host)
        await self._append_chat(info, [user], user)
        return info

    async def create_chat(
        self, user: UserId, frame: frames.CreateChat, *, is_host: bool = False
    ) -> frames.ChatInfo:
        """Create a group with the user and `frame.members`; the same `ref` returns the same group.

        Raises:
            BadRequest: a member is listed twice, or there is no other member.
            NotFound: a member does not exist.
        """
        members = [UserId(member) for member in frame.members]
        if len(set(members)) != len(members):
            raise BadRequest("members: a user is listed twice")
        name = None if frame.name is None else parse_name(frame.name)
        others = [member for member in members if member != user]
        if not others:
            raise BadRequest("members: must include another user")
        info = await self._directory.create_chat(
            user, Ref(frame.ref), others, name, is_host=is_host
        )
        # The members of a large chat are notified by the process that created it.
        if not info.large:
            await self._append_chat(info, [UserId(member) for member in info.members], user)
        return info

    async def _append_chat(
        self, info: frames.ChatInfo, users: Sequence[UserId], creator: UserId
    ) -> None:
        body = codec.encode_chat_event_body(info)
        for result in await self._inboxes.append_event(
            users, ChatId(info.chat), body, is_listed=True
        ):
            if result.seq == 1 and result.appended:
                self._charge(creator, NEW_INBOX_BYTES)
            if result.appended:
                self._devices.notify_seq(result.user, result.seq, result.gateways)

    async def list_page(
        self, user: UserId, after: str | None, limit: int, bytes_max: int | None = None
    ) -> tuple[list[frames.ChatSummary], str | None]:
        """Return `(chats, next)`: a page of the user's chats, newest activity first.

        `next` is the `after` for the next page, or None.

        Guarantees:
            Complete: if Redis has lost data, the chats are loaded first.
            Bounded: a page ends early when its messages have `bytes_max` bytes, by default the
                maximum of a page.
            Cost: that of `list_all`, and about ten Redis calls per chat on the page, pipelined. One
                warm-tier read per chat if none of its newest entries in Redis is a message.

        Raises:
            Unavailable: the user's chats are not loaded, and the warm tier does not respond.
        """
        chats = await self.list_all(user)
        if after is not None:
            order_text, _, name = after.partition("-")
            position = (-int(order_text), name)
            chats = [chat for chat in chats if (-chat.order, chat.chat) > position]
        limit = min(limit, self._pages.items_max)
        bytes_max = self._pages.bytes_max if bytes_max is None else bytes_max
        summaries: list[frames.ChatSummary] = []
        done = size_bytes = 0
        while done < min(limit, len(chats)) and size_bytes < bytes_max:
            batch = chats[done : min(done + SUMMARIES_AT_ONCE, limit)]
            found = await asyncio.gather(*(self._summarize(user, chat) for chat in batch))
            new = [summary for summary in found if summary is not None]
            size_bytes += sum(len((each.last.body or "").encode()) for each in new if each.last)
            summaries += new
            done += len(batch)
        last = chats[done - 1] if 0 < done < len(chats) else None
        return summaries, f"{last.order}-{last.chat}" if last else None

    async def list_ids(self, user: UserId) -> list[ChatId]:
        """Return the ids of all of the user's chats, newest activity first.

        Raises:
            Unavailable: the user's chats are not loaded, and the warm tier does not respond.
        """
        return [listed.chat for listed in await self.list_all(user)]

    async def get_summary(self, user: UserId, chat: ChatId) -> frames.ChatSummary | None:
        """Return a chat's summary; None if the chat is not in the user's list.

        Raises:
            Unavailable: the user's chats are not loaded, and the warm tier does not respond.
        """
        for listed in await self.list_all(user):
            if listed.chat == chat:
                return await self._summarize(user, listed)
        return None

    async def list_all(self, user: UserId) -> list[UserChat]:
        """Return all of the user's chats, newest activity first.

        Guarantees:
            Complete: if Redis has lost data, the chats are loaded first.
            Cost: one Redis call, and one per chat, pipelined.

        Raises:
            Unavailable: the user's chats are not loaded, and the warm tier does not respond.
        """
        chats = await self._inboxes.find_all_chats(user)
        if chats is None:
            await self._load_user(user)
            chats = await self._inboxes.find_all_chats(user)
        if chats is None:
            raise Unavailable("your chats are not loaded yet; try again")
        return chats

    async def _summarize(self, user: UserId, listed: UserChat) -> frames.ChatSummary | None:
        try:
            audience = await self._audiences.get_for_member(listed.chat, user)
        except NotFound:
            return None
        head = await self._get_open_head(listed.chat)
        peer = audience.receiver_of.get(user)
        names: list[str] = [] if audience.is_large else list(audience.joined)
        read = listed.read
        if listed.top != head.seq:  # the chat was loaded after `listed` had been read
            read = Seq((await self._get_marks(user, listed.chat)).read)
        return frames.ChatSummary(
            chat=listed.chat,
            kind=parse_kind(audience.kind),
            top=head.seq,
            read=read,
            unread=await self._count_unread(user, listed.chat, read, head.seq),
            members=names if len(names) <= MEMBERS_SHOWN_MAX else [],
            name=audience.name or None,
            picture=audience.picture or None,
            ended=audience.is_ended,
            last=await self._find_last(user, audience, head.seq),
            peer=(
                None
                if peer is None or audience.is_blocked
                else await self._get_marks(peer, listed.chat)
            ),
        )

    async def _get_open_head(self, chat: ChatId) -> ChatHead:
        """Return the head of a chat. If the chat was evicted from Redis, it is loaded first."""
        for _ in range(HEAD_TRIES_MAX):
            head = await self._log.get_head(chat)
            if head.is_open:
                return head
            await self._audiences.get(chat)
        raise Unavailable(f"chat {chat}: Redis lost it while it was read; try again")

    async def _get_marks(self, user: UserId, chat: ChatId) -> frames.Marks:
        return await get_marks(self._inboxes, self._audiences, user, chat)

    async def _count_unread(self, user: UserId, chat: ChatId, read: Seq, top: Seq) -> int:
        if top <= read:
            return 0
        hidden = (await self._views.list_hidden(user, [chat])) if self._views else {}
        now_s = self._clock.time()
        return await self._unread_counts.count(
            chat, read, top, now_s, hidden.get(chat, NOTHING_HIDDEN)
        )

    async def _find_last(self, user: UserId, audience: Audience, top: Seq) -> frames.Message | None:
        """Return the newest message that the user can see; None if the newest entries have none."""
        if top == 0:
            return None
        chat = audience.chat
        entries: list[LogEntry] = []
        for depth in PREVIEW_DEPTHS:
            entries = await self._log.list_before(chat, None, depth)
            messages = [entry for entry in entries if _is_message_entry(entry)]
            view = await self._open_view(user, chat, [entry.seq for entry in messages])
            now_s = self._clock.time()
            for entry in reversed(messages):
                if entry.seq not in view.hidden:
                    tail = view.render_entry(entry, now_s)
                    message = codec.decode_message(codec.join_message(entry.seq, entry.ts, tail))
                    return message if await self._is_readable(user, audience, entry.seq) else None
            if len(entries) < depth:
                break
        first = entries[0].seq if entries else top + 1
        if first <= 1 or len(entries) >= PREVIEW_DEPTHS[-1]:
            return None
        return await self._find_last_below(user, audience, Seq(first))

    async def _find_last_below(
        self, user: UserId, audience: Audience, before: Seq
    ) -> frames.Message | None:
        chat = audience.chat
        depth = range(max(1, before - OLDER_PREVIEW_DEPTH), before)
        view = await self._open_view(user, chat, depth)
        try:
            run = await self._older.read_run(chat, before, None, len(depth), None)
        except ChatError:
            return None  # a missing preview must not fail the chat list
        for message in reversed(run.messages):
            if is_message(message) and message.seq not in view.hidden:
                if not await self._is_readable(user, audience, Seq(message.seq)):
                    return None
                return view.render_message(message, self._clock.time())
        return None

    async def _is_readable(self, user: UserId, audience: Audience, seq: Seq) -> bool:
        """Return whether the user may read the message at `seq`.

        A message from before the user joined is readable if new members can read the history, or if
        the user was a member then.
        """
        chat = audience.chat
        if seq >= audience.joined[user] or await self._log.is_earlier_history_readable(chat):
            return True
        return self._views is not None and await self._views.is_readable(user, chat, seq)

    async def _open_view(self, user: UserId, chat: ChatId, seqs: Sequence[int]) -> View:
        return await self._views.open(user, chat, seqs) if self._views and seqs else NO_CHANGES

    async def get_snapshot(
        self, user: UserId, state: InboxState
    ) -> tuple[frames.Cursor, list[frames.ChatSummary]]:
        """Return a snapshot for a device: a cursor at the end of the inbox, and the newest chats.

        Each chat lists the messages that the user has deleted for themselves.
        """
        chats, _ = await self.list_page(user, None, SNAPSHOT_CHATS, sys.maxsize)
        ids = [ChatId(summary.chat) for summary in chats]
        hidden = await self._views.list_hidden(user, ids) if self._views else {}
        for index, chat in enumerate(ids):
            if seqs := hidden.get(chat):
                chats[index] = msgspec.structs.replace(chats[index], hidden=sorted(seqs.single))
        return frames.Cursor(state.epoch, state.head), chats


def parse_kind(text: str) -> ChatKind:
    match text:
        case "direct" | "companion":
            return text
        case _:
            return "group"


def _is_message_entry(entry: LogEntry) -> bool:
    return codec.get_kind(entry.tail) not in frames.ENTRY_KINDS
