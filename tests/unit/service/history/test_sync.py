"""Sync: missed inbox entries with their messages, contiguous or refused."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import ChatId, Seq, Ts, UserId
from chatserver.domain.inboxes import InboxEntry
from chatserver.domain.messages import LogEntry
from chatserver.domain.page_limits import BYTES_MAX, WIDEST, PageBounds
from chatserver.errors import ChatError, Unavailable
from chatserver.hot.bus.rpc import HistoryRun
from chatserver.protocol import codec, frames
from chatserver.service.history.sync import DeviceSync, EventsLost, Missed
from tests.unit.service.builders import ALICE

CHATS = [ChatId("c1"), ChatId("c2"), ChatId("c3")]


@dataclasses.dataclass
class Hot:
    """An inbox with the entries from `first` on, and the logs of its chats."""

    entries: list[InboxEntry]
    first: int = 1
    trimmed: frozenset[tuple[ChatId, int]] = frozenset()
    body: str = "text"

    async def list_after(self, user: UserId, after: Seq, limit: int) -> list[InboxEntry]:
        assert user == ALICE
        held = [entry for entry in self.entries if entry.seq >= self.first and entry.seq > after]
        return held[:limit]

    async def list_range(self, chat: ChatId, first: Seq, last: Seq) -> list[LogEntry]:
        return [
            self._entry(chat, seq)
            for seq in range(first, last + 1)
            if (chat, seq) not in self.trimmed
        ]

    def _entry(self, chat: ChatId, seq: int) -> LogEntry:
        tail = codec.encode_message_tail(chat, "m", "bob", "r", "text", self.body, None)
        return LogEntry(Seq(seq), Ts(1000 + seq), tail)


def inbox_of(kinds: list[int]) -> list[InboxEntry]:
    """Return an inbox with a message of chat n for each n, and another event for each -1."""
    entries, tops = [], dict.fromkeys(CHATS, 0)
    for number, kind in enumerate(kinds, 1):
        if kind < 0:
            body = codec.read_event_body("c1", frames.Marks("bob", number, number))
            entries.append(InboxEntry(Seq(number), None, Seq(0), body))
        else:
            chat = CHATS[kind]
            tops[chat] += 1
            entries.append(InboxEntry(Seq(number), chat, Seq(tops[chat]), None))
    return entries


def list_missed(hot: Hot, after: int, limit: int = 100, pages: PageBounds = WIDEST) -> list[Missed]:
    """Return the events after a cursor."""
    return asyncio.run(
        DeviceSync(inboxes=hot, log=hot, pages=pages).list_missed(ALICE, Seq(after), limit)
    )


def is_event_of(event: Missed, entry: InboxEntry) -> bool:
    """Return whether an event has the content of an inbox entry."""
    frame = msgspec.json.decode(codec.join_event("E1", event.seq, event.body), type=frames.Event)
    if entry.chat is None:
        return frame.kind == "read" and event.body == entry.body
    assert isinstance(frame.message, frames.Message)
    return (frame.chat, frame.cs, frame.message.seq) == (entry.chat, entry.cs, entry.cs)


inboxes = st.lists(st.integers(-1, 2), max_size=40).map(inbox_of)


@given(inboxes, st.integers(0, 45), st.integers(1, 20))
def test_sync_returns_events_after_the_cursor_in_order(
    entries: list[InboxEntry], after: int, limit: int
) -> None:
    """Each event has its position and its message."""
    found = list_missed(Hot(entries), after, limit)

    expected = entries[after : after + limit]
    assert [event.seq for event in found] == [entry.seq for entry in expected]
    assert all(is_event_of(event, entry) for event, entry in zip(found, expected, strict=True))


@given(inboxes.filter(bool), st.integers(0, 45), st.integers(1, 45))
def test_sync_of_trimmed_inbox_is_complete_or_refused(
    entries: list[InboxEntry], after: int, first: int
) -> None:
    """Trimmed entries are never skipped silently (guarantee P5)."""
    hot = Hot(entries, first=first)
    needs_lost = after + 1 < first <= len(entries)

    if needs_lost and after < len(entries):
        with pytest.raises(EventsLost):
            list_missed(hot, after)
    elif first <= len(entries):
        assert [event.seq for event in list_missed(hot, after)] == list(
            range(after + 1, len(entries) + 1)
        )


@given(inboxes.filter(bool), st.data())
def test_sync_stops_before_a_missing_message(
    entries: list[InboxEntry], data: st.DataObject
) -> None:
    """Available entries are returned; at a missing one the device starts from a snapshot."""
    lost = data.draw(st.sampled_from(entries))
    if lost.chat is None:
        return
    hot = Hot(entries, trimmed=frozenset({(lost.chat, int(lost.cs))}))

    if lost.seq > 1:
        assert [event.seq for event in list_missed(hot, 0)] == list(range(1, lost.seq))
    with pytest.raises(EventsLost):
        list_missed(hot, lost.seq - 1)


def test_sync_with_nothing_missed_is_empty() -> None:
    """A device that has everything gets nothing, and no log is read."""
    assert list_missed(Hot(inbox_of([0, 1])), after=2) == []
    assert list_missed(Hot([]), after=0) == []


def test_sync_page_is_bounded_in_bytes_and_has_at_least_one_event() -> None:
    """Large messages make short pages; one that exceeds a page is alone in it."""
    sixteen = list_missed(Hot(inbox_of([0] * 30), body="x" * 16_000), 0)
    alone = list_missed(Hot(inbox_of([0] * 3), body="x" * (BYTES_MAX + 1)), 1)

    assert sum(len(event.body) for event in sixteen) <= BYTES_MAX
    assert len(sixteen) == 16
    assert [event.seq for event in alone] == [2]


def test_sync_page_is_bounded_by_the_settings() -> None:
    """Both the number of events and the bytes are limited."""
    hot = Hot(inbox_of([0] * 30), body="x" * 1_000)

    assert [event.seq for event in list_missed(hot, 4, pages=PageBounds(items_max=3))] == [5, 6, 7]
    assert len(list_missed(hot, 0, pages=PageBounds(bytes_max=6_000))) == 5


@dataclasses.dataclass
class Warm:
    """The warm tier; it has every message of an idle chat."""

    error: ChatError | None = None
    reads: list[tuple[str, int, int]] = dataclasses.field(default_factory=list)

    async def read_run(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> HistoryRun:
        assert before is None
        assert after is not None
        self.reads.append((chat, after, limit))
        if self.error is not None:
            raise self.error
        return HistoryRun(
            [
                frames.Message(seq, 1000 + seq, chat, "m", "bob", "r", "text", "text")
                for seq in range(after + 1, after + 1 + limit)
            ]
        )


def test_messages_not_in_the_hot_tier_are_read_from_the_warm_tier() -> None:
    """An idle chat was evicted; a device that reconnects late still gets what it missed."""
    entries = inbox_of([0, 1, 0, -1, 0])
    hot = Hot(entries, trimmed=frozenset((CHATS[0], seq) for seq in (1, 2)))
    warm = Warm()

    found = asyncio.run(
        DeviceSync(inboxes=hot, log=hot, older=warm).list_missed(ALICE, Seq(0), 100)
    )

    assert [event.seq for event in found] == [1, 2, 3, 4, 5]
    assert all(is_event_of(event, entry) for event, entry in zip(found, entries, strict=True))
    assert warm.reads == [("c1", 0, 3)]


def test_messages_with_the_warm_tier_down_are_not_skipped() -> None:
    """While the warm tier is down, the device waits and keeps its position."""
    hot = Hot(inbox_of([0]), trimmed=frozenset({(CHATS[0], 1)}))
    warm = Warm(error=Unavailable("the warm tier does not answer"))

    with pytest.raises(Unavailable):
        asyncio.run(DeviceSync(inboxes=hot, log=hot, older=warm).list_missed(ALICE, Seq(0), 100))


def test_expired_message_is_returned_as_a_tombstone() -> None:
    """The event keeps its position in the inbox and contains no text."""

    class ExpiringLog(Hot):
        def _entry(self, chat: ChatId, seq: int) -> LogEntry:
            tail = codec.encode_message_tail(chat, "m", "bob", "r", "text", "secret", None, 1)
            return LogEntry(Seq(seq), Ts(1000 + seq), tail)

    (event,) = list_missed(ExpiringLog(inbox_of([0])), 0)

    assert b"secret" not in event.body
    assert b'"deleted":true' in event.body
