"""Query pages for one chat: newer entries from the warm tier, older entries from the archive.

::

    newest first   warm tier, down to the cached archived position ─► archived position ─► archive
    oldest first   archive ─► warm tier ─► archived position; if it has increased, repeat

The archived position is the ts up to which the chat is archived. It only increases, possibly during
the read, so a cached value may be too low. Entries are archived before they leave the warm tier.
Therefore, the position is read after the warm tier, and entries up to that ts are taken from the
archive. A page token has the ts of the last evaluated entry. That ts is the same in both tiers, so
a token stays valid when entries are archived. The token's `seq` saves a search for the ts in the
archive.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final, Protocol

import attrs

from chatserver.domain.archive_segments import ArchiveTop
from chatserver.domain.ids import ChatId
from chatserver.errors import BadRequest, Unavailable
from chatserver.protocol.frames import INT_MAX, Message
from chatserver.service.history.message_query_filter import QueryFilter
from chatserver.warm.dynamo.paging import QueryPage, Token
from chatserver.warm.messages.message_indexes import ReaderView

ARCHIVED_ENTRIES_MAX: Final = 5_000  # maximum archived entries evaluated per page
_RUN_MIN: Final = 100  # minimum archived entries per read
_RUN_MAX: Final = 1_000
_ATTEMPTS_MAX: Final = 5


@dataclasses.dataclass(frozen=True, slots=True)
class TimeRange:
    """A time range (µs), both ends inclusive, and the order in which to list its messages."""

    from_ts: int = 0
    to_ts: int = INT_MAX
    is_newest_first: bool = True

    def __post_init__(self) -> None:
        """Reject an empty range."""
        if self.from_ts > self.to_ts:
            raise BadRequest("from: must not be later than to")

    def __str__(self) -> str:
        return f"{self.from_ts}-{self.to_ts}-{'down' if self.is_newest_first else 'up'}"


class ChatQuery(Protocol):
    """A query for one chat's messages in the warm tier."""

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
    ) -> QueryPage[Message]: ...


@attrs.define(eq=False, repr=False, kw_only=True)
class ChatQueryPage:
    """Reads one page. Use an instance only once.

    `is_match` selects archived messages; it has the same criteria as `query`, which reads the warm
    tier.
    """

    _query: ChatQuery
    _is_match: Callable[[Message], bool]
    _view: QueryFilter
    _chat: ChatId
    _limit: int
    _is_descending: bool
    _first: int = attrs.field(init=False)  # the first seq that the reader may read
    _items: list[Message] = attrs.field(factory=list, init=False)
    _evaluated: int = attrs.field(default=0, init=False)  # number of archived entries evaluated
    _after: Token | None = attrs.field(default=None, init=False)  # of the last evaluated entry

    def __attrs_post_init__(self) -> None:
        self._first = self._view.get_first_seq(self._chat)

    async def read(self, times: TimeRange, start: Token | None) -> QueryPage[Message]:
        """Return the page that follows `start`.

        Raises:
            BadRequest: `start` is not a token from this query.
            Unavailable: a tier does not respond, and the tiers read before it had no messages.
        """
        from_ts, to_ts, seq = times.from_ts, times.to_ts, None
        if start is not None:
            self._after = start
            ts, seq = _parse_token(start)
            if self._is_descending:
                to_ts = min(to_ts, ts - 1)
            else:
                from_ts = max(from_ts, ts + 1)
        if from_ts > to_ts:
            return QueryPage([], None)
        read = self._read_descending if self._is_descending else self._read_ascending
        try:
            return await read(from_ts, to_ts, seq)
        except Unavailable:
            if not self._items:
                raise
            return QueryPage(self._items, self._after)

    async def _read_descending(
        self, from_ts: int, to_ts: int, seq: int | None
    ) -> QueryPage[Message]:
        top = self._view.sources.older.get_cached_top(self._chat)
        if to_ts > _get_end_ts(top):
            page = await self._read_warm(max(from_ts, _get_end_ts(top) + 1), to_ts, self._limit)
            top = await self._view.sources.older.get_shared_top(self._chat)
            end = _get_end_ts(top)
            if page.next is not None and page.next["ts"] > end:
                return page
            self._items = [item for item in page.items if item.ts > end]
            if to_ts > end:
                self._after, to_ts, seq = {"ts": end + 1}, end, None
        if from_ts <= to_ts and (full := await self._read_cold(top, from_ts, to_ts, seq)):
            return full
        return QueryPage(self._items, None)

    async def _read_ascending(
        self, from_ts: int, to_ts: int, seq: int | None
    ) -> QueryPage[Message]:
        top = self._view.sources.older.get_cached_top(self._chat)
        for _ in range(_ATTEMPTS_MAX):
            if from_ts <= (end := _get_end_ts(top)):
                if full := await self._read_cold(top, from_ts, min(to_ts, end), seq):
                    return full
                self._after, from_ts, seq = {"ts": end}, end + 1, None
                if from_ts > to_ts:
                    return QueryPage(self._items, None)
            page = await self._read_warm(from_ts, to_ts, max(1, self._limit - len(self._items)))
            top = await self._view.sources.older.get_shared_top(self._chat)
            if _get_end_ts(top) < from_ts:
                items = [*self._items, *page.items]
                if len(items) > self._limit:
                    return QueryPage(items[: self._limit], self._after)
                return QueryPage(items, page.next)
        return QueryPage(self._items, self._after)

    async def _read_warm(self, from_ts: int, to_ts: int, limit: int) -> _WarmPage:
        page = await self._query(
            self._chat,
            from_ts,
            to_ts,
            limit=limit,
            start=None,
            newest_first=self._is_descending,
            view=self._view,
        )
        return _WarmPage(page.items, None if page.next is None else {"ts": int(page.next["ts"])})

    async def _read_cold(
        self, top: ArchiveTop, from_ts: int, to_ts: int, seq: int | None
    ) -> QueryPage[Message] | None:
        """Add matching archived messages to the page.

        Returns the page if it is full or `ARCHIVED_ENTRIES_MAX` is reached; None if the archive has
        no more entries in the time range. `seq` is the last evaluated entry's seq, if known.
        """
        seq = (
            await self._find_start(top, from_ts, to_ts) if seq is None else self._find_next_seq(seq)
        )
        size = max(_RUN_MIN, self._limit + 1 - len(self._items))
        while self._first <= seq <= top.seq:
            if self._evaluated >= ARCHIVED_ENTRIES_MAX:
                return QueryPage(self._items, self._after)
            first, last = seq, min(top.seq, seq + size - 1)
            if self._is_descending:
                first, last = max(self._first, seq - size + 1), seq
            run = await self._view.render_archived(self._chat, first, last)
            for entry in run[::-1] if self._is_descending else run:
                if not from_ts <= entry.ts <= to_ts:
                    return None
                if entry.message is not None and self._is_match(entry.message):
                    if len(self._items) == self._limit:
                        return QueryPage(self._items, self._after)
                    self._items.append(entry.message)
                self._after = {"ts": entry.ts, "seq": entry.seq}
            self._evaluated += len(run)
            seq = self._find_next_seq(first if self._is_descending else last)
            size = min(2 * size, _RUN_MAX)
        return None

    def _find_next_seq(self, seq: int) -> int:
        return seq - 1 if self._is_descending else seq + 1

    async def _find_start(self, top: ArchiveTop, from_ts: int, to_ts: int) -> int:
        """Return the seq of the time range's first entry, in the page's direction."""
        cold = self._view.sources.cold
        if self._is_descending:
            return await cold.find_first_at(self._chat, top, to_ts + 1) - 1
        return max(self._first, await cold.find_first_at(self._chat, top, from_ts))


@dataclasses.dataclass(frozen=True, slots=True)
class _WarmPage(QueryPage[Message]):
    """A page from the warm tier; `next` is a token in this module's format."""

    next: dict[str, int] | None


def _get_end_ts(top: ArchiveTop) -> int:
    """Return the ts up to which all entries are archived; -1 if none are."""
    return top.ts if top.seq else -1


def _parse_token(token: Token) -> tuple[int, int | None]:
    """Return the ts and seq in a page token. Raises BadRequest."""
    ts, seq = token.get("ts"), token.get("seq")
    if not isinstance(ts, int) or not (seq is None or isinstance(seq, int)):
        raise BadRequest("page token: belongs to another query; start from the first page")
    return ts, seq
