"""Queries of a chat read DynamoDB and the archive together while entries are archived."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
import pytest

from chatserver.cold.segment_objects import SegmentObjects
from chatserver.domain.ids import ChatId, Seq, UserId, direct_chat_id
from chatserver.errors import Unavailable
from chatserver.hot.chats.message_changes import HiddenMessages
from chatserver.protocol.frames import Attachment, Message
from chatserver.protocol.message_change_effects import build_tombstone
from chatserver.service.history import chat_query_pages
from chatserver.service.history.chat_query_pages import TimeRange
from chatserver.service.history.cold_log import ColdLog
from chatserver.service.history.message_queries import MessageQueries
from chatserver.service.history.message_query_filter import QuerySources
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.dynamo.paging import QueryPage, Token
from chatserver.warm.messages.message_indexes import MessageIndexes
from chatserver.warm.messages.messages import PersistItem
from tests.integration.workers.archive.support import World
from tests.support.fake_clocks import FakeClock
from workers.archive.archiver import US, Archiver

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

COUNT = 60
Kind = Literal["chat", "active", "files"]
FILE = Attachment("f1", "plan.pdf", "application/pdf", 10)


@dataclasses.dataclass
class Tiers:
    """A direct chat of two users; `move` archives a random number of its oldest entries."""

    world: World
    random: random.Random
    a: UserId
    b: UserId
    entries: list[Message]

    async def archive_upto(self, seq: int) -> None:
        """Archive the chat up to an entry."""
        clock = FakeClock(self.entries[seq - 1].ts / US + 1.0001)  # when it is archivable
        archive = self.world.container.settings.archive.model_copy(
            update={"segment_entries_max": self.random.choice([3, 7, 20])}
        )
        archivable = ArchivableEntries(self.world.client, clock)
        core = self.world.container
        archiver = Archiver(
            manifests=core.manifests,
            objects=SegmentObjects(self.world.store, archive),
            archivable=archivable,
            settings=archive,
            clock=clock,
            restored=core.restored,
            users=core.user_positions,
        )
        await archiver.archive_chat(self.world.chat)

    async def move(self) -> None:
        """Archive more of the chat, or nothing, at random."""
        top = (await self.world.container.manifests.get_top(self.world.chat)).seq
        last = min(top + 10, len(self.entries) - 3)
        if top < last and self.random.random() < 0.3:
            await self.archive_upto(self.random.randint(top + 1, last))

    def queries(self, older: WarmAndColdLog | None = None, **changes: Any) -> MessageQueries:
        """Return the use cases; entries are archived before and after each read of DynamoDB."""
        core = self.world.container
        client = self.world.client
        parts: dict[str, Any] = {
            "messages": ArchivingQueries(MessageIndexes(client, core.clock), self.move),
            "memberships": core.memberships,
            "log": core.chat_log,
            "older": older or self.world.reader(),
            "cold": core.cold_log,
            "views": core.views,
            "clock": core.clock,
        }
        sources = QuerySources(**parts | changes)
        return MessageQueries(sources=sources, members=core.members, users=core.user_positions)

    def expected(self, kind: Kind, times: TimeRange) -> list[int]:
        """Return the expected seqs of a query."""
        found = [
            each.seq
            for each in self.entries
            if times.from_ts <= each.ts <= times.to_ts
            and not (each.deleted or each.expires_at or each.kind == "edit")
            and (kind != "files" or each.attachments)
        ]
        return found[::-1] if times.is_newest_first else found


class ArchivingQueries:
    """Queries of DynamoDB; entries are archived before and after each of them."""

    def __init__(self, queries: Any, move: Callable[[], Awaitable[None]]) -> None:
        self._queries = queries
        self._move = move

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._queries, name)
        if not name.startswith("list_"):
            return found

        async def read(*args: Any, **how: Any) -> Any:
            await self._move()
            page = await found(*args, **how)
            await self._move()
            return page

        return read


async def make_tiers(world: World, seed: int) -> Tiers:
    """Write messages of both users, some deleted, expired, edited or with files."""
    rng, mark = random.Random(seed), secrets.token_hex(4)
    a, b = UserId(f"a-{mark}"), UserId(f"b-{mark}")
    for user in (a, b):
        await world.container.directory.put_user_if_absent(user, None, 1.0)
    world.chat = direct_chat_id(a, b)
    await world.container.directory.create_direct(world.chat, a, b, 1.0)
    entries = []
    for seq in range(1, COUNT + 1):
        entry = world.old(seq, sender=rng.choice([a, b]))
        match rng.randrange(8):
            case 0:
                entry = build_tombstone(entry, 1)
            case 1:
                entry = msgspec.structs.replace(entry, expires_at=entry.ts // US + 60)
            case 2 if seq > 1:
                entry = msgspec.structs.replace(entry, kind="edit", target=seq - 1)
            case 3 | 4:
                entry = msgspec.structs.replace(entry, attachments=(FILE,))
        entries.append(entry)
    items = [PersistItem(each, b if each.sender == a else a) for each in entries]
    await world.container.messages.put_batch(items, 20)
    return Tiers(world, rng, a, b, entries)


async def read_pages(
    tiers: Tiers, reader: UserId | None, kind: Kind, times: TimeRange, limit: int | None = None
) -> list[int]:
    """Read all pages of a list, each by the same or another process; return the seqs."""
    found: list[int] = []
    start: Token | None = None
    shared = tiers.world.reader()
    while True:
        queries = tiers.queries(tiers.random.choice([shared, None]))
        read = {
            "chat": queries.list_chat,
            "active": queries.list_active,
            "files": queries.list_files,
        }[kind]
        size = limit or tiers.random.randint(1, 9)
        page: QueryPage[Message] = await read(reader, ChatId(tiers.world.chat), times, size, start)
        found += [each.seq for each in page.items]
        if page.next is None:
            return found
        assert len(page.items) == size, "a page before the last one is not full"
        start = page.next
        await tiers.move()


@pytest.mark.parametrize("seed", range(12))
async def test_pages_during_archiving_lose_and_repeat_nothing(world: World, seed: int) -> None:
    """Tested with random queries, page sizes, ranges, directions and readers."""
    tiers = await make_tiers(world, seed)
    for _ in range(5):
        ends = sorted(tiers.random.choices([each.ts for each in tiers.entries], k=2))
        times = tiers.random.choice([TimeRange(), TimeRange(*ends), TimeRange(ends[0])])
        is_down = tiers.random.random() < 0.5
        times = dataclasses.replace(times, is_newest_first=is_down)
        kind: Kind = tiers.random.choice(["chat", "active", "files"])
        reader = tiers.random.choice([tiers.a, tiers.b, None])

        found = await read_pages(tiers, reader, kind, times)

        assert found == tiers.expected(kind, times), (kind, times)


async def test_queries_return_archived_messages_as_history_does(world: World) -> None:
    """A page across both tiers has the same messages as history."""
    tiers = await make_tiers(world, 99)
    await tiers.archive_upto(COUNT // 2)

    page = await tiers.queries().list_chat(tiers.a, world.chat, TimeRange(), 200, None)

    expected = tiers.expected("chat", TimeRange())
    by_seq = {each.seq: each for each in await world.read_backward()}
    assert page.items == [by_seq[seq] for seq in expected]
    assert page.next is None


async def test_changes_of_archived_messages_are_included(world: World) -> None:
    """Tested are an edit, a deletion, and a message that one of the users has hidden."""
    tiers = await make_tiers(world, 7)
    await tiers.archive_upto(COUNT - 3)
    core = world.container
    visible = tiers.expected("chat", TimeRange(is_newest_first=False))
    edited, deleted, hidden = visible[:3]
    entry = tiers.entries[edited - 1]
    await world.put(msgspec.structs.replace(entry, body="edited", rev=COUNT + 1))
    await world.put(build_tombstone(tiers.entries[deleted - 1], COUNT + 2))
    await core.chat_loader.load_chat(world.chat)
    await HiddenMessages(core.hot).hide(tiers.a, world.chat, Seq(hidden))

    own = await read_pages(tiers, tiers.a, "active", TimeRange(), 10)
    other = await read_pages(tiers, tiers.b, "active", TimeRange(), 10)
    first = await tiers.queries().list_chat(
        tiers.a, world.chat, TimeRange(is_newest_first=False), 1, None
    )

    expected = tiers.expected("active", TimeRange())
    assert own == [seq for seq in expected if seq not in (deleted, hidden)]
    assert other == [seq for seq in expected if seq != deleted]
    assert first.items[0].body == "edited"


async def test_archive_outage_is_an_error_after_the_messages_of_the_warm_tier(
    world: World,
) -> None:
    """A page ends before the archive, and the next one fails instead of being incomplete."""
    tiers = await make_tiers(world, 3)
    await tiers.archive_upto(COUNT // 2)
    down = UnavailableArchive(world)
    queries = tiers.queries(cold=down)

    page = await queries.list_chat(tiers.a, world.chat, TimeRange(), 200, None)

    warm = [seq for seq in tiers.expected("chat", TimeRange()) if seq > COUNT // 2]
    assert [each.seq for each in page.items] == warm
    assert page.next is not None
    with pytest.raises(Unavailable):
        await queries.list_chat(tiers.a, world.chat, TimeRange(), 200, page.next)
    rest = await tiers.queries().list_chat(tiers.a, world.chat, TimeRange(), 200, page.next)
    both = [each.seq for each in (*page.items, *rest.items)]
    assert both == tiers.expected("chat", TimeRange())


class UnavailableArchive(ColdLog):
    """An archive whose objects cannot be read."""

    def __init__(self, world: World) -> None:
        core = world.container
        super().__init__(
            manifests=core.manifests,
            segments=core.segments,
            items=world.archivable,
            clock=core.clock,
        )

    async def read(self, chat: str, first: int, last: int) -> list[Message]:
        raise Unavailable("S3 does not respond")


async def test_page_evaluates_a_bounded_number_of_archived_entries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page may end early with a cursor, but no message is missing."""
    tiers = await make_tiers(world, 5)
    await tiers.archive_upto(COUNT - 3)
    monkeypatch.setattr(chat_query_pages, "ARCHIVED_ENTRIES_MAX", 10)
    monkeypatch.setattr(chat_query_pages, "_RUN_MIN", 5)
    monkeypatch.setattr(chat_query_pages, "_RUN_MAX", 5)
    found: list[int] = []
    sizes: list[int] = []
    start: Token | None = None
    while True:
        page = await tiers.queries().list_files(tiers.a, world.chat, TimeRange(), 4, start)
        found += [each.seq for each in page.items]
        sizes.append(len(page.items))
        if (start := page.next) is None:
            break

    assert found == tiers.expected("files", TimeRange())
    assert min(sizes[:-1]) < 4


async def test_lists_of_a_user_report_the_start_of_their_complete_range(
    world: World,
) -> None:
    """It is the ts after the newest archived message that the user sent or received."""
    tiers = await make_tiers(world, 11)
    client = world.client
    queries = tiers.queries(messages=MessageIndexes(client, world.container.clock))
    before = await queries.list_sent(tiers.a, tiers.a, TimeRange(), 200, None)

    await tiers.archive_upto(COUNT // 2)
    sent = await queries.list_sent(tiers.a, tiers.a, TimeRange(), 200, None)
    received = await queries.list_received(tiers.a, tiers.a, TimeRange(), 200, None)

    moved = [tiers.entries[seq - 1] for seq in tiers.expected("chat", TimeRange())]
    moved = [each for each in moved if each.seq <= COUNT // 2]
    newest = {
        sender: max(each.ts for each in moved if each.sender == sender)
        for sender in (tiers.a, tiers.b)
    }
    assert before.archived_before is None
    assert sent.archived_before == newest[tiers.a] + 1
    assert received.archived_before == newest[tiers.b] + 1
    later = await queries.list_sent(tiers.a, tiers.a, TimeRange(newest[tiers.a] + 1), 200, None)
    assert later.archived_before is None
    expected = [e.seq for e in tiers.entries if e.sender == tiers.a and e.seq > COUNT // 2]
    visible = [seq for seq in tiers.expected("chat", TimeRange()) if seq in expected]
    assert [each.seq for each in sent.page.items] == visible


async def test_user_positions_only_advance(world: World) -> None:
    """Workers of several partitions archive chats of one user concurrently."""
    users, user = world.container.user_positions, f"u-{secrets.token_hex(4)}"

    await asyncio.gather(*(users.record("sent", {user: ts}) for ts in (30, 10, 20)))
    await users.record("received", {user: 5})

    assert await users.find("sent", user) == 30
    assert await users.find("received", user) == 5
    assert await users.find("sent", "nobody") is None
