"""History: pages of a chat's messages from the hot, warm and cold tiers.

A page is contiguous in seq. `HistoryPages` checks this, and does not return entries beyond a gap.
`chatserver.service.history.warm_and_cold_log` reads the warm and the cold tier. `reader_views`
hides what the reader may not see; expired messages are tombstones (`protocol.expired_messages`).

A reader who left and rejoined has several membership periods. A page covers only one of them; the
next page continues with the adjacent one.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeVar

import attrs

from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership_periods import Reader
from chatserver.domain.messages import LogEntry
from chatserver.domain.page_limits import WIDEST, PageBounds
from chatserver.errors import BadRequest, Unavailable
from chatserver.hot.bus.rpc import HistoryRun
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.membership import MemberCheck
from chatserver.protocol import codec, frames
from chatserver.service.history.reader_views import NO_CHANGES, ReaderViews, View
from chatserver.telemetry import metrics

Tier = Literal["hot", "warm", "cold"]
E = TypeVar("E", LogEntry, frames.Message)


class WarmHistory(Protocol):
    """The warm and cold parts of chat histories, read in this process or by an rpc worker."""

    async def read_run(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> HistoryRun:
        """Return up to `limit` entries just after seq `after`, or just before `before`.

        `ts` is the probable ts of the entry at `after` or `before`, which saves a search if
        correct.

        Guarantees:
            Contiguous and adjacent to `after` or `before`, or empty.
            Entries that are archived during the read are returned exactly once.

        Raises:
            Unavailable: the tier with the first of these entries does not respond.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class TierPage:
    """Messages as JSON, in order of seq."""

    messages: list[bytes]
    tier: Tier
    has_more: bool
    stored: int = 0  # seq up to which the warm tier has the chat
    # Seqs of messages whose edits or reactions were returned without text.
    withheld: frozenset[int] = frozenset()


_NO_PAGE = TierPage([], "hot", has_more=False)


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    seq: int
    ts: int
    json: bytes


@attrs.define(eq=False, repr=False, kw_only=True)
class HistoryPages:
    """Reads pages of a chat's history."""

    _log: ChatLog
    _older: WarmHistory
    _members: MemberCheck
    _clock: Clock = attrs.field(factory=SystemClock)
    _views: ReaderViews | None = None
    _pages: PageBounds = WIDEST

    async def get_page(self, reader: UserId, frame: frames.History) -> TierPage:
        """Return a page of the chat before or after a seq, or its newest page.

        Guarantees:
            Contiguous: no gaps and no duplicates, within a page and between pages, except for
                periods in which the reader was not a member.
            Readable: only entries from periods in which the reader was a member (P7), unless the
                chat shows its full history. This holds even if the reader leaves during the read.
            Current: includes every change that was acked before the call (guarantee P10).
            One epoch: a page never mixes entries that Redis has lost with entries that reuse their
                seqs.
            Cost: two to four Redis calls, and one read of the older tiers if the page reaches them.
                A page that reaches the seq at which the reader joined also costs
                `MemberCheck.add_periods`.

        Raises:
            BadRequest: both `before` and `after` are given.
            NotFound: the chat does not exist, or the reader is not a member.
            Unavailable: a required tier does not respond, or Redis lost the chat during the read.
        """
        if frame.before is not None and frame.after is not None:
            raise BadRequest("before, after: only one of them is allowed")
        chat = ChatId(frame.chat)
        span = await self._members.get_reader(chat, reader)
        epoch = self._log.get_epoch(chat)
        read = self._read_after if frame.after is not None else self._read_before
        page = await read(reader, frame, span)
        if page.withheld and span.lacks_periods:
            with contextlib.suppress(Unavailable):
                span = await self._members.add_periods(chat, reader, span)
            if any(span.is_readable(seq) for seq in page.withheld):
                page = await read(reader, frame, span)
        head = await self._log.get_head(chat)
        if not head.is_open or self._log.get_epoch(chat) != epoch:
            raise Unavailable("Redis lost the chat while it was read; try again")
        return dataclasses.replace(page, stored=head.stored)

    async def _read_after(self, reader: UserId, frame: frames.History, span: Reader) -> TierPage:
        chat = ChatId(frame.chat)
        assert frame.after is not None
        if frame.after < span.first - 1:
            span = await self._members.add_periods(chat, reader, span)
        period = span.find_period_after(frame.after)
        if period is None:
            return _NO_PAGE
        after = max(frame.after, period.first - 1)
        limit = min(frame.limit, self._pages.items_max, period.last - after)
        if limit <= 0:
            return _NO_PAGE
        ts = frame.ts if after == frame.after else None  # `frame.ts` is for `frame.after` only
        return await self._page_after(
            reader=reader, chat=chat, after=after, limit=limit, ts=ts, span=span
        )

    async def _read_before(self, reader: UserId, frame: frames.History, span: Reader) -> TierPage:
        chat = ChatId(frame.chat)
        end = span.head + 1
        requested = end if frame.before is None else min(frame.before, end)
        limit = min(frame.limit, self._pages.items_max)
        has_periods = True
        if requested - limit <= span.first:
            try:
                span = await self._members.add_periods(chat, reader, span)
            except Unavailable:
                if requested <= span.first:
                    raise
                has_periods = False  # only the next page needs earlier membership periods
        period = span.find_period_before(requested)
        if period is None:
            return _NO_PAGE
        before = min(requested, period.last + 1)
        limit = min(limit, before - period.first)
        ts = frame.ts if before == frame.before else None
        page = await self._page_before(
            reader=reader, chat=chat, before=before, limit=limit, ts=ts, span=span
        )
        return page if has_periods else dataclasses.replace(page, has_more=bool(page.messages))

    async def _open_view(
        self, reader: UserId, chat: ChatId, first: int, limit: int, span: Reader
    ) -> View:
        if self._views is None:
            return NO_CHANGES
        return await self._views.open(reader, chat, range(max(1, first), first + limit), span)

    async def _page_before(
        self, reader: UserId, chat: ChatId, before: int, limit: int, ts: int | None, span: Reader
    ) -> TierPage:
        entries = await self._log.list_before(chat, Seq(before), limit)
        top = before - 1
        view = await self._open_view(reader, chat, top - limit + 1, limit, span)
        taken = _Rows(self._pages.bytes_max)
        hot = _select_contiguous_down(top, entries)
        taken.add(self._render(reversed(hot), view))
        tier: Tier = "hot"
        first = taken.rows[-1].seq if taken.rows else top + 1
        if not taken.is_full and len(taken.rows) < limit and first > 1:
            hint = taken.rows[-1].ts if taken.rows else ts
            run = await self._older.read_run(chat, first, None, limit - len(taken.rows), hint)
            older = _select_contiguous_down(first - 1, run.messages)
            if not older:
                raise _report_gap(first - 1)
            taken.add(self._render(reversed(older), view))
            tier = run.tier
        rows = taken.rows[::-1]
        has_more = bool(rows) and span.find_period_before(rows[0].seq) is not None
        return _page(rows, tier, has_more, view)

    async def _page_after(
        self, reader: UserId, chat: ChatId, after: int, limit: int, ts: int | None, span: Reader
    ) -> TierPage:
        entries = await self._log.list_after(chat, Seq(after), limit)
        view = await self._open_view(reader, chat, after + 1, limit, span)
        taken = _Rows(self._pages.bytes_max)
        hot = _select_contiguous_up(after + 1, entries)
        taken.add(self._render(hot, view))
        rows = taken.rows
        tier: Tier = "hot"
        last = after + len(rows)
        # Read the entries that Redis no longer has from the older tiers.
        if not taken.is_full and len(rows) < limit and last < span.head:
            hint = rows[-1].ts if rows else ts
            run = await self._older.read_run(chat, None, last, limit - len(rows), hint)
            appended = _select_contiguous_up(last + 1, run.messages)
            if not rows and not appended:
                raise _report_gap(after + 1)
            # If Redis lost entries whose seqs it then assigned again, the older tiers may still
            # have the lost ones.
            held: dict[int, LogEntry] = {entry.seq: entry for entry in entries}
            taken.add(self._render((held.get(m.seq, m) for m in appended), view))
            tier = run.tier if appended else tier
            if appended and not taken.is_full and len(rows) < limit:
                last = rows[-1].seq
                newer = await self._log.list_after(chat, Seq(last), limit - len(rows))
                taken.add(self._render(_select_contiguous_up(last + 1, newer), view))
        return _page(rows, tier, rows[-1].seq < span.head, view)

    def _render(self, entries: Iterable[LogEntry | frames.Message], view: View) -> Iterator[_Row]:
        now_s = self._clock.time()
        for entry in entries:
            if isinstance(entry, LogEntry):
                tail = view.render_entry(entry, now_s)
                yield _Row(entry.seq, entry.ts, codec.join_message(entry.seq, entry.ts, tail))
            else:
                yield _Row(entry.seq, entry.ts, codec.encode(view.render_message(entry, now_s)))


class _Rows:
    """The rows of a page that together fit into `bytes_max`, at least one.

    Rows are rendered one by one until the page is full: 200 long messages take 30 ms.
    """

    def __init__(self, bytes_max: int) -> None:
        self.rows: list[_Row] = []
        self.is_full = False
        self._left = bytes_max

    def add(self, rows: Iterable[_Row]) -> None:
        for row in rows:
            self._left -= len(row.json)
            if self.rows and self._left < 0:
                self.is_full = True
                return
            self.rows.append(row)


def _page(rows: list[_Row], tier: Tier, has_more: bool, view: View) -> TierPage:
    withheld = frozenset(view.withheld)
    return TierPage([row.json for row in rows], tier, has_more, withheld=withheld)


def _report_gap(seq: int) -> Unavailable:
    metrics.HISTORY_GAPS.labels("page").inc()
    return Unavailable(f"message {seq} cannot be read now; try again")


def _select_contiguous_down(top: int, entries: Sequence[E]) -> Sequence[E]:
    """Return the longest run of `entries` without gaps that ends with seq `top`."""
    start, expected = len(entries), top
    while start > 0 and entries[start - 1].seq == expected:
        start -= 1
        expected -= 1
    return entries[start:]


def _select_contiguous_up(first: int, entries: Sequence[E]) -> Sequence[E]:
    """Return the longest run of `entries` without gaps that starts with seq `first`."""
    count = 0
    while count < len(entries) and entries[count].seq == first + count:
        count += 1
    return entries[:count]
