"""All messages that a user has sent and received, sorted by time: a merge of the user's chats.

::

    the user's chats ─► active days of each ─► chats that may have the next message ─► merge
    Redis               directory, cached      hot log, warm tier, archive

Nothing is stored per recipient. Each chat is a stream
(`chatserver.service.history.chat_message_iterator`). A stream knows its next message, or a bound
for that message's ts: the newest ts in Redis, or the nearest active day (a day on which the chat
has messages). Only streams whose bound precedes all known messages are read. A page token has the
ts and chat of the last message, so it stays valid while messages arrive, are stored or are
archived. A token of another list has, in `passed`, the chats with a returned message at its ts
(`chatserver.service.history.sent_and_received`).

The list covers the user's current chats, for the periods in which the user was a member. It
includes messages in Redis and in the archive. It omits messages from before the user joined, even
if the chat's history shows them.
"""

from __future__ import annotations

import collections
import heapq
from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal, NamedTuple

import attrs

from chatserver.domain.ids import DIRECT_PREFIX, UserId
from chatserver.domain.inboxes import UserChat
from chatserver.errors import BadRequest, Unavailable
from chatserver.protocol.frames import Message
from chatserver.service.chats.user_chats import UserChats
from chatserver.service.history.chat_message_iterator import ChatMessageIterator
from chatserver.service.history.chat_query_pages import TimeRange
from chatserver.service.history.message_query_filter import QueryFilter, QuerySources
from chatserver.task_groups import open_task_group
from chatserver.warm.dynamo.paging import QueryPage, Token, check_limit
from chatserver.warm.messages.active_days import ANY_DAY, ActiveDays, DaySet

Direction = Literal["sent", "received"]
PASSED: Final = "passed"  # in a page token: chat ids, separated by spaces

# Maximum chat reads per page; exceeded if the page would otherwise make no progress.
READS_MAX: Final = 256
ENTRIES_MAX: Final = 2_000  # maximum entries read per page; exceeded like `READS_MAX`
_WAVE_MIN: Final = 4  # number of chats in a page's first parallel read; doubles with each read
_WAVE_MAX: Final = 16
DAYS_CACHED_MAX: Final = 20_000  # maximum chats whose active days (days with messages) are cached
DAYS_CACHED_S: Final = 600.0


class _Position(NamedTuple):
    """A position in the merged list. Messages with the same ts are sorted by chat id.

    With `passed`, it is after the messages of these chats at `ts` instead.
    """

    ts: int
    chat: str
    passed: Collection[str] | None = None

    def has_passed(self, chat: str, *, is_descending: bool) -> bool:
        """Return whether the position is after a chat's message at `ts`."""
        if self.passed is not None:
            return chat in self.passed
        return chat >= self.chat if is_descending else chat <= self.chat


# Heap item: `bound` (negated if newest first), chat, stream.
_Entry = tuple[int, str, ChatMessageIterator]


class _CachedDays(NamedTuple):
    days: DaySet
    top: int  # the chat's newest seq when `days` was read; later messages may add days
    read_at_s: float


@attrs.define(eq=False, repr=False, kw_only=True)
class MessagesOfAllChats:
    """Lists a user's messages across all chats."""

    _chats: UserChats
    _days: ActiveDays
    _sources: QuerySources
    _cached: collections.OrderedDict[str, _CachedDays] = attrs.field(
        factory=collections.OrderedDict, init=False
    )

    async def list_page(
        self,
        reader: UserId | None,
        user: UserId,
        direction: Direction | None,
        times: TimeRange,
        limit: int,
        start: Token | None,
        *,
        is_direct: bool = False,
    ) -> QueryPage[Message]:
        """Return a page of the messages that `user` sent and received in a time range.

        `reader` is the user, or None for the host application, which also sees the messages that
        the user has deleted for themselves. `start` is the previous page's `next`. With
        `is_direct`, only direct chats are read.

        Guarantees:
            Only messages that the user may read now (guarantee P7), in their current version.
            Includes every message acked before the call, in all tiers. Exception: if Redis has lost
                a chat, messages that had not been stored are missing until the chat is reloaded.
            A message sent during the call may be missing from this page and later pages.
            A page that is not full is the last one, unless `READS_MAX` or `ENTRIES_MAX` was
                reached; it then has a `next`.
            Cost: per chat, a read unit per 4 KB of its list of active days, unless cached; per chat
                that is read, two Queries, a GetItem for membership and chat, and two Redis calls.

        Raises:
            BadRequest: the token belongs to another list.
            Unavailable: the tier with the next message does not respond.
        """
        check_limit(limit)
        position = None if start is None else _parse_position(start)
        is_match = _build_filter(user, direction)
        chats = await self._chats.list_all(user)
        if is_direct:
            chats = [each for each in chats if each.chat.startswith(DIRECT_PREFIX)]
        streams = await self._make_streams(chats, times, position, is_match)
        view = QueryFilter(self._sources, reader, member=user)
        return await _Merge(streams, view, limit, is_descending=times.is_newest_first).read()

    async def _make_streams(
        self,
        chats: Collection[UserChat],
        times: TimeRange,
        position: _Position | None,
        is_match: Callable[[Message], bool],
    ) -> list[ChatMessageIterator]:
        days = await self._find_days(chats)
        streams = []
        for chat in chats:
            remaining = _get_remaining_range(times, position, chat.chat)
            if remaining is None:
                continue
            stream = ChatMessageIterator(
                chat=chat.chat,
                times=remaining,
                days=days.get(chat.chat),
                newest_ts=chat.order if chat.top else None,
                is_match=is_match,
            )
            if stream.bound is not None:
                streams.append(stream)
        return streams

    async def _find_days(self, chats: Collection[UserChat]) -> dict[str, DaySet]:
        """Return the days with messages, for each chat whose entries are all in the warm tier."""
        days: dict[str, DaySet] = {}
        unknown: dict[str, int] = {}
        oldest_s = self._sources.clock.monotonic() - DAYS_CACHED_S
        for chat in chats:
            if chat.stored < chat.top:
                continue  # the days of unstored messages are not recorded yet
            cached = self._cached.get(chat.chat)
            if cached is not None and cached.top == chat.top and cached.read_at_s > oldest_s:
                days[chat.chat] = cached.days
            else:
                unknown[chat.chat] = chat.top
        if unknown:
            stored = await self._days.find_many(unknown)
            now_s = self._sources.clock.monotonic()
            for name, top in unknown.items():
                days[name] = stored.get(name, ANY_DAY)
                self._cached[name] = _CachedDays(days[name], top, now_s)
                self._cached.move_to_end(name)
            while len(self._cached) > DAYS_CACHED_MAX:
                self._cached.popitem(last=False)
        return days


class _Merge:
    """Merges streams into one page. Use an instance only once."""

    def __init__(
        self,
        streams: Sequence[ChatMessageIterator],
        view: QueryFilter,
        limit: int,
        *,
        is_descending: bool,
    ) -> None:
        self._view = view
        self._limit = limit
        self._is_descending = is_descending
        # Two heaps, ordered by `ChatMessageIterator.bound`: streams to be read (`_waiting`), and
        # streams whose next message is known (`_ready`). If a known message and a waiting stream's
        # bound have the same ts, the waiting stream is read first.
        self._waiting: list[_Entry] = [
            (self._key(stream.bound), stream.chat, stream) for stream in streams
        ]
        heapq.heapify(self._waiting)
        self._ready: list[_Entry] = []
        self._items: list[Message] = []
        self._first = self._waiting[0][0] if self._waiting else 0
        self._reads = self._entries = 0

    def _key(self, ts: int | None) -> int:
        assert ts is not None
        return -ts if self._is_descending else ts

    async def read(self) -> QueryPage[Message]:
        wave = _WAVE_MIN
        while self._waiting or self._ready:
            if self._has_next():
                if len(self._items) == self._limit:
                    return QueryPage(self._items, _build_token_after(self._items[-1]))
                self._append_next()
                continue
            key = self._waiting[0][0]
            is_spent = self._reads >= READS_MAX or self._entries >= ENTRIES_MAX
            if is_spent and (self._items or key > self._first):
                return QueryPage(self._items, self._build_token_at(key))
            try:
                await self._read_wave(wave)
            except Unavailable:
                if not self._items:
                    raise
                return QueryPage(self._items, _build_token_after(self._items[-1]))
            wave = min(2 * wave, _WAVE_MAX)
        return QueryPage(self._items, None)

    def _has_next(self) -> bool:
        if not self._ready:
            return False
        return not self._waiting or self._ready[0][0] < self._waiting[0][0]

    def _append_next(self) -> None:
        key = self._ready[0][0]
        # Messages with the same ts are sorted by chat id, in the direction of the merge.
        same = [item for item in self._ready if item[0] == key]
        bound_entry = max(same) if self._is_descending else min(same)
        self._ready.remove(bound_entry)
        heapq.heapify(self._ready)
        stream = bound_entry[2]
        self._items.append(stream.pop())
        self._put(stream)

    def _put(self, stream: ChatMessageIterator) -> None:
        if stream.bound is not None:
            heap = self._ready if stream.is_exact else self._waiting
            heapq.heappush(heap, (self._key(stream.bound), stream.chat, stream))

    async def _read_wave(self, size: int) -> None:
        """Read about `size` of the streams that may have the next message.

        Streams with the same `bound` as the first are read together, because all must be read
        anyway.
        """
        wave: list[ChatMessageIterator] = []
        first = self._waiting[0][0]
        while self._waiting and not (wave and self._has_next()):
            if len(wave) >= (_WAVE_MAX if self._waiting[0][0] == first else size):
                break
            wave.append(heapq.heappop(self._waiting)[2])
        readable = set(await self._view.select_chats([stream.chat for stream in wave]))
        wave = [chat_stream for chat_stream in wave if chat_stream.chat in readable]
        count = -(-(self._limit + 1 - len(self._items)) // max(1, len(wave)))
        async with open_task_group() as group:
            reads = [
                group.create_task(stream.read(self._view, count), name="read-chat")
                for stream in wave
            ]
        self._entries += sum(read.result() for read in reads)
        self._reads += len(wave)
        for stream in wave:
            self._put(stream)

    def _build_token_at(self, key: int) -> Token:
        """Return the token for a page that begins at ts `key`, which is negated if newest first."""
        ts = -key if self._is_descending else key
        return {"ts": ts + 1 if self._is_descending else ts, "chat": ""}


def _build_token_after(message: Message) -> Token:
    return {"ts": message.ts, "chat": message.chat}


def _parse_position(token: Token) -> _Position:
    ts, chat, passed = token.get("ts"), token.get("chat"), token.get(PASSED)
    if not isinstance(ts, int) or not isinstance(chat, str) or isinstance(passed, int):
        raise BadRequest("page token: belongs to another list; start from the first page")
    return _Position(ts, chat, None if passed is None else passed.split())


def _get_remaining_range(
    times: TimeRange, position: _Position | None, chat: str
) -> TimeRange | None:
    """Return the part of the time range after a position, for one chat; None if it is empty."""
    low, high = times.from_ts, times.to_ts
    if position is not None:
        has_passed = position.has_passed(chat, is_descending=times.is_newest_first)
        if times.is_newest_first:
            high = min(high, position.ts - has_passed)
        else:
            low = max(low, position.ts + has_passed)
    return TimeRange(low, high, times.is_newest_first) if low <= high else None


def _build_filter(user: UserId, direction: Direction | None) -> Callable[[Message], bool]:
    if direction is None:
        return lambda _message: True
    is_sent = direction == "sent"
    return lambda message: (message.sender == user) == is_sent
