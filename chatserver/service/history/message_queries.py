"""Message queries: messages by time, sender, receiver or content type, from the warm tier.

::

    page of rows ──► filter by chats the reader may read ──► items ──► current state for the reader
       ▲  index or table     directory: membership periods      overlay: unapplied changes
       └──────────────── until the page is full ◄──────────────  hidden, deleted, expired: left out

Unlike history, a page is not contiguous: it holds only readable messages and no placeholders.
The most recent messages may not be stored yet; history includes them.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership import Reader
from chatserver.domain.membership_periods import Periods
from chatserver.errors import BadRequest
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.membership import MemberCheck
from chatserver.protocol.entry_rules import is_message
from chatserver.protocol.frames import INT_MAX, Message
from chatserver.service.history.views import View, Views
from chatserver.service.history.warm_and_cold_log import OlderTiers
from chatserver.warm.chats.memberships import Memberships
from chatserver.warm.dynamo.paging import Page, Token
from chatserver.warm.messages.chat_files import ChatFiles
from chatserver.warm.messages.message_queries import MessageIndexes, ReaderView

Place = tuple[str, int]  # chat, and ts within it


@dataclasses.dataclass(frozen=True, slots=True)
class TimeRange:
    """A time range in microseconds, both ends included, and the order of its messages."""

    from_ts: int = 0
    to_ts: int = INT_MAX
    is_newest_first: bool = True

    def __post_init__(self) -> None:
        """Reject an empty range."""
        if self.from_ts > self.to_ts:
            raise BadRequest("from: must not be later than to")

    def __str__(self) -> str:
        return f"{self.from_ts}-{self.to_ts}-{'down' if self.is_newest_first else 'up'}"


class _ChatQuery(Protocol):
    async def __call__(
        self,
        chat: str,
        from_ts: int,
        to_ts: int,
        *,
        limit: int,
        start: Token | None,
        newest_first: bool,
        view: ReaderView,
    ) -> Page[Message]: ...


class MessageQueries:
    """Message query use cases. `reader` None is the host application, which may read all chats.

    `start` is the `next` token of the previous page, None for the first page.
    """

    def __init__(
        self,
        *,
        messages: MessageIndexes,
        files: ChatFiles,
        members: MemberCheck,
        memberships: Memberships,
        log: ChatLog,
        older: OlderTiers,
        views: Views,
        clock: Clock,
    ) -> None:
        self._messages = messages
        self._files = files
        self._members = members
        self._memberships = memberships
        self._log = log
        self._older = older
        self._views = views
        self._clock = clock

    async def list_chat(
        self, reader: UserId | None, chat: ChatId, times: TimeRange, limit: int, start: Token | None
    ) -> Page[Message]:
        """Return messages that were sent to a chat in a time range.

        Guarantees:
            Only messages that the reader may read (promise P7) and did not delete for themselves.
            Each message includes every change that was acked before the call.
            The page is full while more messages exist, within the work limit of
            `chatserver.warm.dynamo.paging`.
            Cost: a Query and two Redis calls. For members who cannot read the chat from its start,
            also a GetItem and a search of up to 15 small reads.

        Raises:
            NotFound: no such chat, or the reader is not a member.
        """
        return await self._query_chat(self._messages.list_chat, reader, chat, times, limit, start)

    async def list_active(
        self, reader: UserId | None, chat: ChatId, times: TimeRange, limit: int, start: Token | None
    ) -> Page[Message]:
        """Return messages of a chat that are not deleted.

        Guarantees and errors are those of `list_chat`. Cost: also a Query of an index and a
        BatchGetItem.
        """
        query = self._messages.list_active
        return await self._query_chat(query, reader, chat, times, limit, start)

    async def list_files(
        self, reader: UserId | None, chat: ChatId, times: TimeRange, limit: int, start: Token | None
    ) -> Page[Message]:
        """Return messages of a chat that have files.

        Guarantees, costs and errors are those of `list_active`. While the index of files is
        incomplete, the cost grows with the length of the chat.
        """
        query = self._files.list_with_files
        return await self._query_chat(query, reader, chat, times, limit, start)

    async def _query_chat(
        self,
        query: _ChatQuery,
        reader: UserId | None,
        chat: ChatId,
        times: TimeRange,
        limit: int,
        start: Token | None,
    ) -> Page[Message]:
        view = await self._open_chat_view(reader, chat)
        from_ts = max(times.from_ts, await self._find_first_ts(chat, view))
        if from_ts > times.to_ts:
            return Page([], None)
        return await query(
            chat,
            from_ts,
            times.to_ts,
            limit=limit,
            start=start,
            newest_first=times.is_newest_first,
            view=view,
        )

    async def list_sent(
        self, reader: UserId | None, user: UserId, times: TimeRange, limit: int, start: Token | None
    ) -> Page[Message]:
        """Return messages that a user sent to any chat that the reader may read.

        Guarantees:
            Those of `list_chat`.
            Cost: a Query of an index, a BatchGetItem per 50 chats and one per 100 messages, and two
            Redis calls for each chat of the page.
        """
        return await self._messages.list_sent(
            user,
            times.from_ts,
            times.to_ts,
            limit=limit,
            start=start,
            newest_first=times.is_newest_first,
            view=self._open_view(reader),
        )

    async def list_received(
        self, reader: UserId | None, user: UserId, times: TimeRange, limit: int, start: Token | None
    ) -> Page[Message]:
        """Return the direct messages that a user received; see `list_sent` for guarantees."""
        return await self._messages.list_received(
            user,
            times.from_ts,
            times.to_ts,
            limit=limit,
            start=start,
            newest_first=times.is_newest_first,
            view=self._open_view(reader),
        )

    def _open_view(self, reader: UserId | None) -> _QueryView:
        return _QueryView(
            reader,
            memberships=self._memberships,
            log=self._log,
            views=self._views,
            messages=self._messages,
            now_s=self._clock.time(),
        )

    async def _open_chat_view(self, reader: UserId | None, chat: ChatId) -> _QueryView:
        view = self._open_view(reader)
        if reader is None:
            await self._memberships.get_chat(chat)
        else:
            span = await self._members.get_reader(chat, reader)
            view.spans[chat] = await self._members.add_periods(chat, reader, span)
        await view.choose([chat])
        return view

    async def _find_first_ts(self, chat: ChatId, view: _QueryView) -> int:
        """Return the ts of the first message that the reader may read; 0 if it is unknown.

        Older messages would be filtered out anyway; this avoids reading them.
        """
        oldest = view.spans[chat].find_period_after(0)
        first = 1 if oldest is None else oldest.first
        if first <= 1:
            return 0
        found = await self._older.list_after(chat, first - 1, 1)
        return found[0].ts if found else 0


class _QueryView:
    """The `ReaderView` of one query: its messages as the reader sees them.

    Caches the reader's access to each chat, for all pages of rows.
    """

    def __init__(
        self,
        reader: UserId | None,
        *,
        memberships: Memberships,
        log: ChatLog,
        views: Views,
        messages: MessageIndexes,
        now_s: float,
    ) -> None:
        self._reader = reader
        self._memberships = memberships
        self._log = log
        self._views = views
        self._messages = messages
        self._now_s = now_s
        self._checked: set[str] = set()
        self._unstored: set[str] = set()  # chats with changes that the warm tier may not have
        self.spans: dict[str, Reader] = {}  # by chat that the reader may read

    async def choose(self, chats: Collection[str]) -> Collection[str]:
        """Return those of `chats` that the reader may read."""
        new = set(chats) - self._checked
        if new:
            self._checked |= new
            self.spans |= await self._find_spans(new - self.spans.keys())
            known = [ChatId(chat) for chat in new if chat in self.spans]
            heads = await asyncio.gather(*(self._log.get_head(chat) for chat in known))
            for chat, head in zip(known, heads, strict=True):
                if head.stored < head.seq:
                    self._unstored.add(chat)
        return [chat for chat in chats if chat in self.spans]

    async def _find_spans(self, chats: Collection[str]) -> dict[str, Reader]:
        if self._reader is None:
            spans: Mapping[str, tuple[int, Periods]] = dict.fromkeys(chats, (1, ()))
        else:
            spans = await self._memberships.find_spans(self._reader, chats) if chats else {}
        return {
            chat: Reader(Seq(first), Seq(INT_MAX), periods=periods)
            for chat, (first, periods) in spans.items()
        }

    async def see(self, messages: Sequence[Message]) -> list[Message | None]:
        """Return messages as the reader sees them now; None for each that is not visible.

        Every change acked before `choose` is included. If the whole chat was stored by then, the
        items have the changes, because they were read later. Otherwise, a change is in the overlay
        until the item has it. Items of such chats are therefore read again after the overlay.
        """
        wanted = [message for message in messages if self._is_for_reader(message)]
        views = await self._open_views(wanted)
        late = [(m.chat, m.ts) for m in wanted if m.chat in self._unstored]
        reread = await self._messages.get_many(late) if late else {}
        shown: dict[Place, Message] = {}
        for message in wanted:
            place = (message.chat, message.ts)
            newest = reread.get(place) if message.chat in self._unstored else message
            if newest is not None:
                current = views[message.chat].render_message(newest, self._now_s)
                if not current.deleted:
                    shown[place] = current
        return [shown.get((message.chat, message.ts)) for message in messages]

    def _is_for_reader(self, message: Message) -> bool:
        span = self.spans[message.chat]
        return is_message(message) and span.is_readable(message.seq)

    async def _open_views(self, messages: Sequence[Message]) -> dict[str, View]:
        seqs: dict[ChatId, list[int]] = {}
        for message in messages:
            seqs.setdefault(ChatId(message.chat), []).append(message.seq)
        opened = await asyncio.gather(*(self._views.open_shared(chat, seqs[chat]) for chat in seqs))
        hidden: Mapping[ChatId, frozenset[int]] = {}
        if self._reader is not None:
            hidden = await self._views.list_hidden(self._reader, list(seqs))
        return {
            chat: dataclasses.replace(view, hidden=hidden.get(chat, frozenset()))
            for chat, view in zip(seqs, opened, strict=True)
        }
