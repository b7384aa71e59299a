"""Message queries: rows with pending changes, and rows that a reader may not see."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from chatserver.domain.archive_segments import NOTHING_ARCHIVED, ArchiveTop
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership_periods import Period, Periods, Reader
from chatserver.domain.message_change_types import HiddenSeqs
from chatserver.domain.messages import ChatHead
from chatserver.errors import BadRequest, NotFound
from chatserver.protocol import codec
from chatserver.protocol.frames import INT_MAX, Message
from chatserver.service.history.chat_query_pages import TimeRange
from chatserver.service.history.message_queries import MessageQueries
from chatserver.service.history.message_query_filter import QuerySources
from chatserver.service.history.reader_views import ReaderViews
from chatserver.warm.dynamo.paging import QueryPage
from tests.unit.service.builders import ALICE, BOB

CHAT, OTHER = ChatId("c-1"), ChatId("c-2")
NOW_S = 2_000.0


def message(seq: int, chat: str = CHAT, **changes: Any) -> Message:
    """Return a message that bob sent."""
    original = Message(seq, 1000 + seq, chat, f"m{seq}", BOB, f"r{seq}", "text", f"text {seq}")
    return msgspec.structs.replace(original, **changes)


@dataclasses.dataclass
class World:
    """All tiers as fakes. `firsts` has the first readable seq of each chat of the reader."""

    stored: list[Message]
    firsts: dict[str, int] = dataclasses.field(default_factory=lambda: {CHAT: 1})
    heads: dict[str, ChatHead] = dataclasses.field(default_factory=dict)
    overlay: dict[int, bytes] = dataclasses.field(default_factory=dict)
    hidden: frozenset[int] = frozenset()
    persisted_meanwhile: list[Message] = dataclasses.field(default_factory=list)
    periods: Periods = ()
    archived_ts: int | None = None
    calls: list[str] = dataclasses.field(default_factory=list)

    def queries(self) -> MessageQueries:
        """Return the use cases on these fakes."""
        sources = QuerySources(
            messages=self,
            memberships=self,
            log=self,
            older=self,
            cold=self,
            views=ReaderViews(self, self),
            clock=self,
        )
        return MessageQueries(sources=sources, members=self, users=self)

    def time(self) -> float:
        return NOW_S

    def monotonic(self) -> float:
        return NOW_S

    # the warm tier

    async def _list(self, view: Any, newest_first: bool) -> QueryPage[Message]:
        rows = sorted(self.stored, key=lambda m: m.ts, reverse=newest_first)
        chosen = await view.select_chats({row.chat for row in rows})
        self.calls.append("items")
        found = await view.filter_messages([row for row in rows if row.chat in chosen])
        return QueryPage([each for each in found if each is not None], None)

    async def list_sent(
        self, user: str, from_ts: int, to_ts: int, **options: Any
    ) -> QueryPage[Message]:
        return await self._list(options["view"], options["newest_first"])

    list_received = list_sent

    async def list_chat(
        self, chat: str, from_ts: int, to_ts: int, **options: Any
    ) -> QueryPage[Message]:
        self.calls.append(f"chat {from_ts}-{to_ts}")
        return await self._list(options["view"], options["newest_first"])

    list_active = list_with_files = list_chat

    async def get_many(
        self, places: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], Message]:
        self.calls.append("items again")
        return {(m.chat, m.ts): m for m in self.stored if (m.chat, m.ts) in places}

    async def find_spans(
        self, user: str, chats: Collection[str]
    ) -> Mapping[str, tuple[int, Periods]]:
        self.calls.append("firsts")
        return {chat: (first, self.periods) for chat, first in self.firsts.items() if chat in chats}

    async def get_chat(self, chat: str) -> Any:
        if chat not in self.firsts:
            raise NotFound("chat")
        return None

    async def list_after(self, chat: ChatId, after: int, limit: int) -> list[Message]:
        return [m for m in self.stored if m.seq > after][:limit]

    # the archive

    def get_cached_top(self, chat: str) -> ArchiveTop:
        return NOTHING_ARCHIVED

    async def get_shared_top(self, chat: str) -> ArchiveTop:
        return NOTHING_ARCHIVED

    async def find(self, direction: str, user: str) -> int | None:
        self.calls.append("position")
        return self.archived_ts

    # the hot tier

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader:
        if chat not in self.firsts:
            raise NotFound("chat")
        return Reader(Seq(self.firsts[chat]), Seq(4))

    async def add_periods(self, chat: ChatId, user: UserId, reader: Reader) -> Reader:
        return reader._replace(periods=self.periods)

    async def get_head(self, chat: ChatId) -> ChatHead:
        self.calls.append("head")
        return self.heads.get(chat, ChatHead(Seq(9), is_open=True, stored=9))

    async def list_overlay(self, chat: ChatId, seqs: Sequence[int]) -> dict[int, bytes]:
        self.calls.append("overlay")
        # From now on the change is in the warm tier and no longer in the overlay.
        self.stored = self.persisted_meanwhile or self.stored
        return {seq: value for seq, value in self.overlay.items() if seq in seqs}

    async def list_hidden(self, user: UserId, chats: Sequence[ChatId]) -> dict[ChatId, HiddenSeqs]:
        return {CHAT: HiddenSeqs(self.hidden)}


def seqs(page: QueryPage[Message]) -> list[int]:
    """Return the seqs of a page."""
    return [each.seq for each in page.items]


async def sent(world: World, reader: UserId | None = BOB) -> QueryPage[Message]:
    """List the messages of bob."""
    return (await world.queries().list_sent(reader, BOB, TimeRange(), 10, None)).page


async def test_unpersisted_edits_and_deletions_are_applied() -> None:
    """The overlay has changes that the warm tier does not have yet."""
    edited = message(1, body="edited", rev=5, edited_ts=9, edited_seq=5)
    world = World([message(1), message(2)])
    world.overlay = {1: codec.encode(edited), 2: b"6"}

    page = await sent(world)

    assert page.items == [edited]


async def test_change_persisted_during_the_read_is_shown() -> None:
    """The change is in neither result of the two reads, so the items are read again."""
    deleted = message(1, body="", deleted=True, rev=5)
    world = World([message(1), message(2)], persisted_meanwhile=[deleted, message(2)])
    world.heads = {CHAT: ChatHead(Seq(9), is_open=True, stored=4)}

    page = await sent(world)

    assert seqs(page) == [2]
    assert world.calls == ["firsts", "head", "items", "overlay", "items again", "position"]


async def test_chat_without_unpersisted_changes_is_read_once() -> None:
    """Changes acked before the call were applied before the items were read."""
    world = World([message(1)])

    assert seqs(await sent(world)) == [1]
    assert world.calls == ["firsts", "head", "items", "overlay", "position"]


async def test_messages_outside_the_membership_are_omitted() -> None:
    """The reader has left the chat, or joined it after the message was sent."""
    world = World([message(1), message(2), message(3, OTHER)], firsts={CHAT: 2})

    assert seqs(await sent(world)) == [2]
    assert seqs(await sent(world, reader=None)) == [3, 2, 1]


async def test_hidden_expired_and_non_message_entries_are_omitted() -> None:
    """A hidden message is omitted only for the reader who hid it."""
    world = World(
        [
            message(1),
            message(2, kind="edit", target=1),
            message(3, expires_at=int(NOW_S)),
            message(4),
        ],
        hidden=frozenset({4}),
    )

    assert seqs(await sent(world)) == [1]
    assert seqs(await sent(world, reader=None)) == [4, 1]


async def test_earlier_periods_are_included_and_gaps_are_omitted() -> None:
    """This holds for lists of one chat and of all chats."""
    world = World([message(seq) for seq in range(1, 5)], firsts={CHAT: 4})
    world.periods = (Period(1, 2),)

    page = await world.queries().list_chat(ALICE, CHAT, TimeRange(), 10, None)

    assert seqs(page) == seqs(await sent(world)) == [4, 2, 1]


async def test_chat_list_is_limited_to_the_membership() -> None:
    """Neither earlier messages nor those after the membership are read."""
    world = World([message(seq) for seq in range(1, 7)], firsts={CHAT: 3})

    page = await world.queries().list_chat(ALICE, CHAT, TimeRange(to_ts=5000), 10, None)
    before = await world.queries().list_chat(ALICE, CHAT, TimeRange(to_ts=1002), 10, None)

    active = await world.queries().list_active(ALICE, CHAT, TimeRange(), 10, None)

    assert seqs(page) == seqs(active) == [4, 3]
    assert seqs(before) == []
    ranges = [call for call in world.calls if call.startswith("chat")]
    assert ranges == ["chat 1003-5000", f"chat 1003-{INT_MAX}"]


@pytest.mark.parametrize(
    ("archived_ts", "from_ts", "expected"),
    [(None, 0, None), (1500, 0, 1501), (1500, 1500, 1501), (1500, 1501, None)],
)
async def test_lists_of_a_user_report_archived_messages(
    archived_ts: int | None, from_ts: int, expected: int | None
) -> None:
    """Nothing is reported if no message of the time range can be archived."""
    world = World([message(1)], archived_ts=archived_ts)

    sent = await world.queries().list_sent(BOB, BOB, TimeRange(from_ts), 10, None)
    received = await world.queries().list_received(BOB, BOB, TimeRange(from_ts), 10, None)

    assert sent.archived_before == received.archived_before == expected


@pytest.mark.parametrize("reader", [ALICE, None])
async def test_unknown_chat_is_not_found(reader: UserId | None) -> None:
    """This holds for users and for the host application."""
    queries = World([]).queries()

    with pytest.raises(NotFound):
        await queries.list_chat(reader, OTHER, TimeRange(), 10, None)
    with pytest.raises(NotFound):
        await queries.list_active(reader, OTHER, TimeRange(), 10, None)


def test_time_range_in_the_wrong_order_is_refused() -> None:
    """Such a range could contain nothing."""
    with pytest.raises(BadRequest, match="from: must not be later"):
        TimeRange(2, 1)
