"""Messages by when, who and what, instead of one after the other: the warm tier's access patterns.

::

    page of rows ──► which chats may the reader read? ──► items ──► as they are now, for the reader
       ▲  index or table     directory: member, since when      overlay: changes on their way
       └──────────────── until the page is full ◄──────────────  hidden, deleted, expired: left out

Unlike history a page here is not contiguous: it holds what can be read, and nothing in the place of
what cannot. What was sent in the last moments may not be stored yet; history has it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypedDict, Unpack

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership import Reader
from chatserver.domain.messages import ChatHead
from chatserver.domain.periods import Periods
from chatserver.errors import BadRequest
from chatserver.protocol.entries import is_message
from chatserver.protocol.frames import INT_MAX, Message
from chatserver.service.views import View, Views

# Where a page ends and the next begins. Opaque here; whoever hands it to a client seals it.
Start = Mapping[str, str | int]
Place = tuple[str, int]  # chat, and ts within it


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time, both ends included, and how to go through it. In microseconds."""

    from_ts: int = 0
    to_ts: int = INT_MAX
    is_newest_first: bool = True

    def __post_init__(self) -> None:
        """Refuse one that holds nothing."""
        if self.from_ts > self.to_ts:
            raise BadRequest("from, to: must be in this order")

    def __str__(self) -> str:
        return f"{self.from_ts}-{self.to_ts}-{'down' if self.is_newest_first else 'up'}"


class How(TypedDict):
    """How to page through a pattern."""

    limit: int
    start: Start | None
    newest_first: bool
    sight: Any


class Patterns(Protocol):
    """The warm tier's messages. Of its pages, `items` and `next` are used."""

    async def list_chat(self, chat: str, from_ts: int, to_ts: int, **how: Unpack[How]) -> Any: ...

    async def list_sent(self, user: str, from_ts: int, to_ts: int, **how: Unpack[How]) -> Any: ...

    async def list_received(
        self, user: str, from_ts: int, to_ts: int, **how: Unpack[How]
    ) -> Any: ...

    async def list_active(self, chat: str, from_ts: int, to_ts: int, **how: Unpack[How]) -> Any: ...

    async def get_many(self, places: Collection[Place]) -> Mapping[Place, Message]: ...


class MessagesWithFiles(Protocol):
    """The warm tier's messages that have files."""

    async def list_with_files(
        self, chat: str, from_ts: int, to_ts: int, **how: Unpack[How]
    ) -> Any: ...


class MemberCheck(Protocol):
    """Says who may read a chat."""

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader: ...

    async def add_periods(self, chat: ChatId, user: UserId, reader: Reader) -> Reader: ...


class Memberships(Protocol):
    """The directory: which chats there are, and which of many a user may read."""

    async def get_chat(self, chat: str) -> Any: ...

    async def find_spans(
        self, user: str, chats: Collection[str]
    ) -> Mapping[str, tuple[int, Periods]]: ...


class Heads(Protocol):
    """The hot tier's chats."""

    async def get_head(self, chat: ChatId) -> ChatHead: ...


class WarmLog(Protocol):
    """The warm tier's messages by seq."""

    async def read_history(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> list[Message]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """Messages, and where the next page starts; None: nothing is there."""

    items: list[Message]
    next: Start | None


class Finding:
    """The use cases. `reader` is who looks; None is the host application, which may read all."""

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
        """Return messages that were sent to a chat in a stretch of time.

        Guarantees:
            Nothing beyond what the reader may read (promise P7), and nothing that he deleted for
            himself. Each message as it is now: it has every change that was acked before the call.
            The page is full while more exists, but for the bound on its work
            (`chatserver.warm.paging`).
            Cost: a Query and two Redis calls. Members who may not read from the start cost a
            GetItem and a search of up to 15 small reads more.

        Raises:
            NotFound: no such chat, or the reader is not a member.
        """
        return await self._list_of_chat(self._patterns.list_chat, reader, chat, span, limit, start)

    async def list_active(
        self, reader: UserId | None, chat: ChatId, span: Span, limit: int, start: Start | None
    ) -> Page:
        """Return messages of a chat that are not deleted. Guarantees and raises as `list_chat`.

        A page costs a Query of an index and a BatchGetItem, and what `list_chat` costs besides.
        """
        read = self._patterns.list_active
        return await self._list_of_chat(read, reader, chat, span, limit, start)

    async def list_files(
        self, reader: UserId | None, chat: ChatId, span: Span, limit: int, start: Start | None
    ) -> Page:
        """Return messages of a chat that have files. Guarantees, costs and raises as `list_active`.

        Where the index of files is not complete yet, it costs what the chat is long.
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
        """Return what a user sent, to any chat that the reader may read. Guarantees as `list_chat`.

        Guarantees:
            Cost: a Query of an index, a BatchGetItem for 50 chats and one for 100 messages, and
            two Redis calls for each chat of the page.
        """
        how = _how(span, limit, start, self._look(reader))
        return _page(await self._patterns.list_sent(user, span.from_ts, span.to_ts, **how))

    async def list_received(
        self, reader: UserId | None, user: UserId, span: Span, limit: int, start: Start | None
    ) -> Page:
        """Return what a user was sent in direct chats. Guarantees and costs as `list_sent`."""
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
        """Return the ts below which the reader may read nothing, as far as that is easily told.

        What is below would be left out anyway; this saves going through it.
        """
        oldest = sight.spans[chat].find_period_after(0)
        first = 1 if oldest is None else oldest.first
        if first <= 1:
            return 0
        run = await self._log.read_history(chat, None, first - 1, 1, None)
        return run[0].ts if run else 0


class _Sight:
    """One look of a reader; knows what it found out for all pages' worth of rows of it."""

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
        self._unsettled: set[str] = set()  # the warm tier may not know every change of it
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
        """Return messages as the reader sees them now, None for what he does not.

        A change that was acked before `choose` is in the item, as it was read after that, where
        the chat was stored as a whole then. Elsewhere it is in the overlay, or left the overlay
        because it is in the item: of such chats the items are read again behind the overlay.
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


def _how(span: Span, limit: int, start: Start | None, sight: _Sight) -> How:
    return {
        "limit": limit,
        "start": start,
        "newest_first": span.is_newest_first,
        "sight": sight,
    }


def _page(page: Any) -> Page:
    return Page(page.items, page.next)
