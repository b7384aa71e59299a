"""Message queries by time, sender and content type: the access patterns of the warm tier.

::

    page of rows ──► filter by chats the reader may read ──► items ──► current state for the reader
       ▲  index or table     directory: member, since when      overlay: unapplied changes
       └──────────────── until the page is full ◄──────────────  hidden, deleted, expired: left out

Unlike history, a page is not contiguous: it holds only readable messages and no placeholders.
Messages of the last moments may not be stored yet; history includes them.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypedDict, Unpack

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership import Reader
from chatserver.domain.membership_periods import Periods
from chatserver.domain.messages import ChatHead
from chatserver.errors import BadRequest
from chatserver.protocol.entry_rules import is_message
from chatserver.protocol.frames import INT_MAX, Message
from chatserver.service.history.views import View, Views

# Where a page ends and the next one begins. Opaque here; it is sealed before clients get it.
Start = Mapping[str, str | int]
Place = tuple[str, int]  # chat, and ts within it


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A time range in microseconds, both ends included, and the order of traversal."""

    from_ts: int = 0
    to_ts: int = INT_MAX
    is_newest_first: bool = True

    def __post_init__(self) -> None:
        """Reject an empty range."""
        if self.from_ts > self.to_ts:
            raise BadRequest("from, to: must be in this order")

    def __str__(self) -> str:
        return f"{self.from_ts}-{self.to_ts}-{'down' if self.is_newest_first else 'up'}"


class QueryPage(TypedDict):
    """Paging parameters of a query."""

    limit: int
    start: Start | None
    newest_first: bool
    sight: Any


class Patterns(Protocol):
    """Warm-tier messages. Only `items` and `next` of its pages are used."""

    async def list_chat(
        self, chat: str, from_ts: int, to_ts: int, **how: Unpack[QueryPage]
    ) -> Any: ...

    async def list_sent(
        self, user: str, from_ts: int, to_ts: int, **how: Unpack[QueryPage]
    ) -> Any: ...

    async def list_received(
        self, user: str, from_ts: int, to_ts: int, **how: Unpack[QueryPage]
    ) -> Any: ...

    async def list_active(
        self, chat: str, from_ts: int, to_ts: int, **how: Unpack[QueryPage]
    ) -> Any: ...

    async def get_many(self, places: Collection[Place]) -> Mapping[Place, Message]: ...


class MessagesWithFiles(Protocol):
    """Warm-tier messages that have attachments."""

    async def list_with_files(
        self, chat: str, from_ts: int, to_ts: int, **how: Unpack[QueryPage]
    ) -> Any: ...


class MemberCheck(Protocol):
    """Read access of members."""

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader: ...

    async def add_periods(self, chat: ChatId, user: UserId, reader: Reader) -> Reader: ...


class Memberships(Protocol):
    """Chats and memberships in the directory."""

    async def get_chat(self, chat: str) -> Any: ...

    async def find_spans(
        self, user: str, chats: Collection[str]
    ) -> Mapping[str, tuple[int, Periods]]: ...


class Heads(Protocol):
    """Chat heads in the hot tier."""

    async def get_head(self, chat: ChatId) -> ChatHead: ...


class WarmLog(Protocol):
    """Warm-tier messages by seq."""

    async def read_history(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> list[Message]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """Messages, and where the next page starts; None: this was the last page."""

    items: list[Message]
    next: Start | None


class MessageQueries:
    """Message query use cases. `reader` None is the host application, which may read all chats."""

    def __init__(
        self,
        patterns: Patterns,
        members: MemberCheck,
        memberships: Memberships,
        heads: Heads,
        views: Views,
        log: WarmLog,
        clock: Clock,
        files: MessagesWithFiles,
    ) -> None:
        self._files = files
        self._patterns = patterns
        self._members = members
        self._memberships = memberships
        self._heads = heads
        self._views = views
        self._log = log
        self._clock = clock

    async def list_chat(
        self, reader: UserId | None, chat: ChatId, span: Span, limit: int, start: Start | None
    ) -> Page:
        """Return messages that were sent to a chat in a time range.

        Guarantees:
            Only messages that the reader may read (promise P7) and did not delete for themselves.
            Each message includes every change that was acked before the call.
            The page is full while more messages exist, within the work limit of
            `chatserver.warm.dynamo.paging`.
            Cost: a Query and two Redis calls. For members who may not read from the start, also a
            GetItem and a search of up to 15 small reads.

        Raises:
            NotFound: no such chat, or the reader is not a member.
        """
        return await self._list_of_chat(self._patterns.list_chat, reader, chat, span, limit, start)

    async def list_active(
        self, reader: UserId | None, chat: ChatId, span: Span, limit: int, start: Start | None
    ) -> Page:
        """Return messages of a chat that are not deleted. Guarantees and raises as `list_chat`.

        Cost: a Query of an index and a BatchGetItem, in addition to the cost of `list_chat`.
        """
        read = self._patterns.list_active
        return await self._list_of_chat(read, reader, chat, span, limit, start)

    async def list_files(
        self, reader: UserId | None, chat: ChatId, span: Span, limit: int, start: Start | None
    ) -> Page:
        """Return messages of a chat that have files. Guarantees, costs and raises as `list_active`.

        While the index of files is incomplete, the cost grows with the length of the chat.
        """
        read = self._files.list_with_files
        return await self._list_of_chat(read, reader, chat, span, limit, start)

    async def _list_of_chat(
        self,
        read: Callable[..., Awaitable[Any]],
        reader: UserId | None,
        chat: ChatId,
        span: Span,
        limit: int,
        start: Start | None,
    ) -> Page:
        sight = await self._look_into(reader, chat)
        from_ts = max(span.from_ts, await self._find_floor(chat, sight))
        if from_ts > span.to_ts:
            return Page([], None)
        return _page(await read(chat, from_ts, span.to_ts, **_how(span, limit, start, sight)))

    async def list_sent(
        self, reader: UserId | None, user: UserId, span: Span, limit: int, start: Start | None
    ) -> Page:
        """Return messages that a user sent to any chat that the reader may read.

        Guarantees:
            As `list_chat`.
            Cost: a Query of an index, a BatchGetItem per 50 chats and one per 100 messages, and two
            Redis calls for each chat of the page.
        """
        how = _how(span, limit, start, self._look(reader))
        return _page(await self._patterns.list_sent(user, span.from_ts, span.to_ts, **how))

    async def list_received(
        self, reader: UserId | None, user: UserId, span: Span, limit: int, start: Start | None
    ) -> Page:
        """Return the direct messages that a user received. Guarantees and costs as `list_sent`."""
        how = _how(span, limit, start, self._look(reader))
        return _page(await self._patterns.list_received(user, span.from_ts, span.to_ts, **how))

    def _look(self, reader: UserId | None) -> _Sight:
        return _Sight(
            reader, self._memberships, self._heads, self._views, self._patterns, self._clock.time()
        )

    async def _look_into(self, reader: UserId | None, chat: ChatId) -> _Sight:
        sight = self._look(reader)
        if reader is None:
            await self._memberships.get_chat(chat)
        else:
            span = await self._members.get_reader(chat, reader)
            sight.spans[chat] = await self._members.add_periods(chat, reader, span)
        await sight.choose([chat])
        return sight

    async def _find_floor(self, chat: ChatId, sight: _Sight) -> int:
        """Return a ts below which the reader may read nothing, if it is cheap to find.

        Older messages would be filtered out anyway; this avoids reading them.
        """
        oldest = sight.spans[chat].find_period_after(0)
        first = 1 if oldest is None else oldest.first
        if first <= 1:
            return 0
        run = await self._log.read_history(chat, None, first - 1, 1, None)
        return run[0].ts if run else 0


class _Sight:
    """The read access of one query. Caches what it found about chats, for all pages of rows."""

    def __init__(
        self,
        reader: UserId | None,
        memberships: Memberships,
        heads: Heads,
        views: Views,
        patterns: Patterns,
        now_s: float,
    ) -> None:
        self._reader = reader
        self._memberships = memberships
        self._heads = heads
        self._views = views
        self._patterns = patterns
        self._now_s = now_s
        self._asked: set[str] = set()
        self._unsettled: set[str] = set()  # chats with changes that the warm tier may not have
        self.spans: dict[str, Reader] = {}  # of the chats that may be read

    async def choose(self, chats: Collection[str]) -> Collection[str]:
        """Return those of `chats` that the reader may read."""
        new = set(chats) - self._asked
        if new:
            self._asked |= new
            self.spans |= await self._find_spans(new - self.spans.keys())
            known = [ChatId(chat) for chat in new if chat in self.spans]
            heads = await asyncio.gather(*(self._heads.get_head(chat) for chat in known))
            for chat, head in zip(known, heads, strict=True):
                if head.stored < head.seq:
                    self._unsettled.add(chat)
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
        """Return messages as the reader sees them now, None for those that are not visible.

        Changes acked before `choose` must be included. If the whole chat was stored by then, the
        items have them: they were read afterward. Otherwise a change is in the overlay, or has left
        it because the item has it: items of such chats are read again after the overlay.
        """
        wanted = [message for message in messages if self._is_for_reader(message)]
        views = await self._open_views(wanted)
        late = [(m.chat, m.ts) for m in wanted if m.chat in self._unsettled]
        again = await self._patterns.get_many(late) if late else {}
        shown: dict[Place, Message] = {}
        for message in wanted:
            place = (message.chat, message.ts)
            newest = again.get(place) if message.chat in self._unsettled else message
            if newest is not None:
                seen = views[message.chat].see_message(newest, self._now_s)
                if not seen.deleted:
                    shown[place] = seen
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


def _how(span: Span, limit: int, start: Start | None, sight: _Sight) -> QueryPage:
    return {
        "limit": limit,
        "start": start,
        "newest_first": span.is_newest_first,
        "sight": sight,
    }


def _page(page: Any) -> Page:
    return Page(page.items, page.next)
