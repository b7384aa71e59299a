"""A chat whose messages are split between two tiers, and readers of its history."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
from hypothesis import strategies as st

from chatserver.domain.ids import ChatId, Epoch, Seq, Ts, UserId
from chatserver.domain.membership_periods import Period, Periods, Reader, add_period
from chatserver.domain.messages import ChatHead, LogEntry
from chatserver.domain.page_limits import WIDEST, PageBounds
from chatserver.errors import ChatError
from chatserver.hot.bus.rpc import HistoryRun
from chatserver.protocol import codec, frames
from chatserver.service.history.history_pages import HistoryPages, TierPage
from tests.unit.service.builders import ALICE, BOB, CHAT

START_TS = 1_795_000_000_000_000
FIRST_EPOCH = Epoch("one")


def ts_of(seq: int) -> int:
    """Return the timestamp of a message."""
    return START_TS + 1000 * seq


@dataclasses.dataclass
class Tiers:
    """A chat of `top` messages: the newest in the hot tier, the oldest in the warm tier.

    The hot tier has the seqs of `hot` except `gaps`; the warm tier has 1 to `warm_top` except
    `warm_gaps`. A warm page has at most `warm_run` messages, as if it were cut. If `has_lost`, the
    warm tier has other messages at the seqs of the hot tier: Redis lost them.
    """

    top: int
    hot: range
    warm_top: int
    warm_run: int = 1000
    gaps: frozenset[int] = frozenset()
    warm_gaps: frozenset[int] = frozenset()
    has_lost: bool = False
    body: str = "text"
    error: ChatError | None = None
    grows_by: int = 0
    warm_calls: int = 0

    epoch: Epoch = FIRST_EPOCH
    next_epoch: Epoch = FIRST_EPOCH  # from the first read of the log on
    is_open: bool = True

    def get_epoch(self, chat: ChatId) -> Epoch:
        return self.epoch

    async def get_head(self, chat: ChatId) -> ChatHead:
        return ChatHead(Seq(self.top), self.is_open)

    def _grow(self) -> None:
        self.epoch = self.next_epoch
        self.top += self.grows_by
        self.hot = range(self.hot.start, self.hot.stop + self.grows_by)

    async def list_before(self, chat: ChatId, before: Seq | None, limit: int) -> list[LogEntry]:
        self._grow()
        held = [seq for seq in self._held() if before is None or seq < before]
        return [self._entry(seq) for seq in held[-limit:]]

    async def list_after(self, chat: ChatId, after: Seq, limit: int) -> list[LogEntry]:
        self._grow()
        return [self._entry(seq) for seq in self._held() if seq > after][:limit]

    def _held(self) -> list[int]:
        return [seq for seq in self.hot if seq not in self.gaps]

    def _entry(self, seq: int) -> LogEntry:
        tail = codec.encode_message_tail(CHAT, f"m{seq}", BOB, f"r{seq}", "text", self.body, None)
        return LogEntry(Seq(seq), Ts(ts_of(seq)), tail)

    async def read_run(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> HistoryRun:
        self.warm_calls += 1
        if self.error is not None:
            raise self.error
        assert 1 <= limit <= frames.PAGE_MAX
        assert ts is None or ts == ts_of(before if before is not None else after or 0)
        limit = min(limit, self.warm_run)
        if after is not None:
            wanted = range(after + 1, after + 1 + limit) if after < self.warm_top else range(0)
        else:
            assert before is not None
            last = before - 1
            wanted = (
                range(max(1, last - limit + 1), last + 1) if last <= self.warm_top else range(0)
            )
        held = [seq for seq in wanted if seq <= self.warm_top and seq not in self.warm_gaps]
        return HistoryRun([self._message(seq) for seq in held], "warm")

    def _message(self, seq: int) -> frames.Message:
        entry = self._entry(seq)
        message = codec.decode_message(codec.join_message(entry.seq, entry.ts, entry.tail))
        is_lost = self.has_lost and seq in self.hot
        return msgspec.structs.replace(message, body="lost") if is_lost else message


@st.composite
def tiers(draw: st.DrawFn) -> Tiers:
    """Generate valid splits of a chat: unpersisted messages are hot, and the tiers may overlap."""
    top = draw(st.integers(0, 60))
    warm_top = draw(st.integers(0, top))
    hot_first = draw(st.integers(1, warm_top + 1))
    return Tiers(top, range(hot_first, top + 1), warm_top, warm_run=draw(st.integers(1, 60)))


def read(
    tier: Tiers, pages: PageBounds = WIDEST, **fields: int | None
) -> tuple[TierPage, list[int]]:
    """Read a page; return it and its seqs."""
    history = HistoryPages(log=tier, older=tier, members=FakeMembership(1, tier.top), pages=pages)
    frame = frames.History(id=1, chat=CHAT, **fields)  # type: ignore[arg-type]  # bounded by the caller
    page = asyncio.run(history.get_page(ALICE, frame))
    messages = [codec.decode_message(message) for message in page.messages]
    assert [message.ts for message in messages] == [ts_of(message.seq) for message in messages]
    return page, [message.seq for message in messages]


def with_hint(seq: int, is_hinted: bool) -> int | None:
    """Return the timestamp hint of a client, which is optional."""
    return ts_of(seq) if is_hinted else None


class FakeMembership:
    """Allows every user to read a range of seqs and earlier periods."""

    def __init__(self, first: int, head: int, periods: Periods = ()) -> None:
        self._reader = Reader(Seq(first), Seq(head))
        self._periods = periods
        self.lookups = 0
        self.error: ChatError | None = None

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader:
        return self._reader

    async def add_periods(self, chat: ChatId, user: UserId, reader: Reader) -> Reader:
        if not reader.lacks_periods:
            return reader
        self.lookups += 1
        if self.error is not None:
            raise self.error
        return reader._replace(periods=self._periods)


def read_as(membership: FakeMembership, tier: Tiers, **fields: int) -> tuple[TierPage, list[int]]:
    """Read a page as a user who may read a part of the chat; return it and its seqs."""
    history = HistoryPages(log=tier, older=tier, members=membership)
    frame = frames.History(id=1, chat=CHAT, **fields)
    page = asyncio.run(history.get_page(ALICE, frame))
    return page, [codec.decode_message(message).seq for message in page.messages]


@st.composite
def spans(draw: st.DrawFn, top: int) -> tuple[FakeMembership, list[int]]:
    """Generate read access with several earlier periods, and its seqs."""
    bounds = sorted(draw(st.sets(st.integers(1, max(1, top)), min_size=1, max_size=7)))
    *ends, first = bounds if len(bounds) % 2 else bounds[1:] or bounds
    periods: Periods = ()
    for begin, end in zip(ends[::2], ends[1::2], strict=True):
        periods = add_period(periods, Period(begin, end))
    seqs = [seq for period in periods for seq in range(period.first, period.last + 1)]
    return FakeMembership(first, top, periods), [*seqs, *range(first, top + 1)]
