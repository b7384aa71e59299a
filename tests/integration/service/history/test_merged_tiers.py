"""The list of all messages of a user in Redis, DynamoDB and S3, while messages move."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import secrets
from typing import Any

import pytest

from chatserver.domain.ids import ChatId, UserId, direct_chat_id
from chatserver.protocol.frames import INT_MAX, Message
from chatserver.service.history import chat_message_iterator, messages_of_all_chats
from chatserver.service.history.chat_query_pages import TimeRange
from chatserver.service.history.message_queries import MessageQueries
from chatserver.service.history.message_query_filter import QuerySources
from chatserver.service.history.messages_of_all_chats import Direction, MessagesOfAllChats
from chatserver.service.history.sent_and_received import SentAndReceived
from chatserver.warm.dynamo.paging import QueryPage, Token
from chatserver.warm.messages.active_days import DAY_US, DaySet, get_day
from chatserver.warm.messages.message_indexes import MessageIndexes
from chatserver.warm.messages.messages import PersistItem
from tests.integration.warm.support import message
from tests.integration.workers.archive.support import OLD_TS, World
from tests.integration.workers.support import Gateway, running
from tests.support.fake_clocks import FakeClock
from tests.support.servers.processes import eventually
from workers.archive.archiver import US
from workers.persist.worker import run_persist

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

CHATS, DAYS = 8, 20


class PersistingQueries:
    """Queries of the warm tier that sometimes persist all messages before or after a read."""

    def __init__(self, queries: MessageIndexes, chats: Chats) -> None:
        self._queries = queries
        self._chats = chats
        self.get_many = queries.get_many

    async def list_chat(self, *args: Any, **options: Any) -> QueryPage[Message]:
        await self._chats.maybe_persist()
        page = await self._queries.list_chat(*args, **options)
        await self._chats.maybe_persist()
        return page


class ArchivingIndexes:
    """Queries of the indexes that sometimes archive a chat before or after a read."""

    def __init__(self, queries: MessageIndexes, chats: Chats) -> None:
        self._queries = queries
        self._chats = chats
        self.get_many = queries.get_many
        self.pages = 0  # read

    async def list_sent(self, *args: Any, **options: Any) -> QueryPage[Message]:
        return await self._list(self._queries.list_sent, *args, **options)

    async def list_received(self, *args: Any, **options: Any) -> QueryPage[Message]:
        return await self._list(self._queries.list_received, *args, **options)

    async def _list(self, query: Any, *args: Any, **options: Any) -> QueryPage[Message]:
        self.pages += 1
        await self._chats.maybe_archive()
        page: QueryPage[Message] = await query(*args, **options)
        await self._chats.maybe_archive()
        return page


@dataclasses.dataclass
class Chats:
    """Direct chats of one user in all tiers."""

    world: World
    random: random.Random
    user: UserId
    others: list[UserId]
    gateway: Gateway
    entries: list[Message] = dataclasses.field(default_factory=list)
    persisting: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)

    def chat_of(self, other: UserId) -> ChatId:
        return direct_chat_id(self.user, other)

    async def prepare(self) -> None:
        """Write old messages on random days, some at the same time in several chats."""
        core = self.world.container
        for user in (self.user, *self.others):
            await core.directory.put_user_if_absent(user, None, 1.0)
        times = sorted(
            OLD_TS + self.random.randrange(DAYS) * DAY_US + self.random.randrange(50)
            for _ in range(40)
        )
        for other in self.others:
            chat = self.chat_of(other)
            await core.directory.create_direct(chat, self.user, other, 1.0)
            found = sorted(set(self.random.choices(times, k=self.random.randint(0, 12))))
            entries = [
                message(seq, chat, self.random.choice([self.user, other]), ts=ts)
                for seq, ts in enumerate(found, 1)
            ]
            if not entries:
                continue
            self.entries += entries
            items = [
                PersistItem(each, other if each.sender == self.user else self.user)
                for each in entries
            ]
            await core.messages.put_batch(items, 20)
            await self._record_days(chat, [get_day(ts) for ts in found])

    async def _record_days(self, chat: ChatId, days: list[int]) -> None:
        """Record all active days, only the later ones, or none, like earlier releases."""
        known = self.random.choice([days, days[len(days) // 2 :], []])
        if not known:
            return
        active = DaySet(known[0], has_earlier=len(known) < len(days))
        for day in known:
            active = active.add(day)
        await self.world.container.active_days.put_many({chat: active})

    async def send(self, count: int) -> None:
        """Commit messages in Redis only."""
        core = self.world.container
        for _ in range(count):
            other = self.random.choice(self.others)
            chat = self.chat_of(other)
            await core.chat_loader.load_chat(chat)
            audience = await core.audiences.get(chat)
            sender = self.random.choice([self.user, other])
            await self.gateway.send(audience, "new", sender=sender)
            (entry,) = await core.chat_log.list_before(chat, None, 1)
            self.entries.append(message(entry.seq, chat, sender, ts=entry.ts))

    async def persist(self) -> None:
        """Persist all committed messages."""
        core = self.world.container

        async def is_stored() -> bool:
            heads = [await core.chat_log.get_head(self.chat_of(each)) for each in self.others]
            return all(head.stored >= head.seq for head in heads)

        if await is_stored():
            return
        async with running(run_persist(core, "one"), "persist"):
            await eventually(is_stored, deadline_s=60, what="all messages are stored")

    async def maybe_persist(self) -> None:
        if self.random.random() < 0.3 and not self.persisting.locked():
            async with self.persisting:
                await self.persist()

    async def archive(self) -> None:
        """Archive a chat up to one of its old messages."""
        chat = self.chat_of(self.random.choice(self.others))
        limit = OLD_TS + DAYS * DAY_US
        old = [each.ts for each in self.entries if each.chat == chat and each.ts < limit]
        if not old:
            return
        clock = FakeClock(self.random.choice(old) / US + 1.0001)  # when this ts is archivable
        await self.world.archiver(clock=clock, segment_entries_max=3).archive_chat(chat)

    async def maybe_archive(self) -> None:
        if self.random.random() < 0.2:
            await self.archive()

    def sent_and_received(self) -> tuple[SentAndReceived, ArchivingIndexes]:
        """Create the use case, and the indexes from which it reads."""
        core = self.world.container
        indexes = ArchivingIndexes(core.message_indexes, self)
        queries = MessageQueries(
            sources=self.sources(indexes), members=core.members, users=core.user_positions
        )
        return SentAndReceived(queries, self.lists()), indexes

    def lists(self) -> MessagesOfAllChats:
        """Create the use case with an empty cache, like another process."""
        core = self.world.container
        sources = self.sources(PersistingQueries(core.message_indexes, self))
        return MessagesOfAllChats(chats=core.chats, days=core.active_days, sources=sources)

    def sources(self, messages: Any) -> QuerySources:
        core = self.world.container
        return QuerySources(
            messages=messages,
            memberships=core.memberships,
            log=core.chat_log,
            older=self.world.reader(),
            cold=core.cold_log,
            views=core.views,
            clock=core.clock,
        )

    def expected(self, direction: Direction | None, times: TimeRange) -> list[tuple[int, str]]:
        """Return the positions of the messages of a list, in its order."""
        found = [
            (each.ts, each.chat)
            for each in self.entries
            if times.from_ts <= each.ts <= times.to_ts
            and (direction is None or (each.sender == self.user) == (direction == "sent"))
        ]
        return sorted(found, reverse=times.is_newest_first)


async def make_chats(world: World, seed: int) -> Chats:
    mark = secrets.token_hex(4)
    others = [UserId(f"u{n}-{mark}") for n in range(CHATS)]
    made = Chats(
        world, random.Random(seed), UserId(f"me-{mark}"), others, Gateway(world.container.hot)
    )
    await made.prepare()
    return made


@pytest.mark.parametrize("seed", range(8))
async def test_pages_lose_and_repeat_nothing_in_any_tier(
    archive_world: World, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges, orders and page sizes are random, while messages are persisted and archived."""
    # Small limits, so that a few messages reach them.
    monkeypatch.setattr(messages_of_all_chats, "READS_MAX", 5)
    monkeypatch.setattr(messages_of_all_chats, "ENTRIES_MAX", 12)
    monkeypatch.setattr(messages_of_all_chats, "_WAVE_MIN", 1)
    monkeypatch.setattr(messages_of_all_chats, "_WAVE_MAX", 2)
    monkeypatch.setattr(chat_message_iterator, "FIRST_READ", 1)
    monkeypatch.setattr(chat_message_iterator, "_HOT_READ", 2)
    chats = await make_chats(archive_world, seed)
    one, rng = chats.lists(), chats.random

    for _ in range(6):
        await chats.send(rng.randint(0, 8))
        ends = sorted(rng.choices([0, *(each.ts for each in chats.entries), INT_MAX], k=2))
        times = TimeRange(ends[0], ends[1], rng.random() < 0.5)
        direction: Direction | None = rng.choice([None, None, "sent", "received"])
        found: list[tuple[int, str]] = []
        start: Token | None = None
        while True:
            size = rng.randint(1, 9)
            lists = rng.choice([one, chats.lists()])
            reader = rng.choice([chats.user, None])
            page = await lists.list_page(reader, chats.user, direction, times, size, start)
            assert len(page.items) <= size
            found += [(each.ts, each.chat) for each in page.items]
            if page.next is None:
                break
            start = page.next
            match rng.randrange(4):
                case 0:
                    await chats.archive()
                case 1:
                    async with chats.persisting:
                        await chats.persist()
        assert found == chats.expected(direction, times), (times, direction)


@pytest.mark.parametrize("seed", range(8))
async def test_sent_and_received_messages_continue_in_the_archive(
    archive_world: World, seed: int
) -> None:
    """Ranges, orders and page sizes are random, while chats are archived during and between pages.

    Messages with the same ts in several chats are at the ends of pages, too.
    """
    chats = await make_chats(archive_world, seed)
    rng = chats.random
    lists, indexes = chats.sent_and_received()

    for _ in range(6):
        await chats.send(rng.randint(0, 4))
        await chats.persist()
        ends = sorted(rng.choices([0, *(each.ts for each in chats.entries), INT_MAX], k=2))
        times = TimeRange(ends[0], ends[1], rng.random() < 0.5)
        direction: Direction = rng.choice(["sent", "received"])
        found: list[tuple[int, str]] = []
        start: Token | None = None
        while True:
            size = rng.randint(1, 5)
            page = await lists.list_page(chats.user, direction, times, size, start)
            found += [(each.ts, each.chat) for each in page.items]
            if page.next is None:
                break
            assert len(page.items) == size
            start = page.next
            await chats.maybe_archive()
        expected = chats.expected(direction, times)
        assert sorted(found) == sorted(expected), (times, direction)
        # An index sorts messages with the same ts in another order.
        assert [ts for ts, _ in found] == [ts for ts, _ in expected]
    assert indexes.pages > 0


async def test_page_of_a_user_with_many_chats_reads_few_of_them(
    archive_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chats without a message on the days of the page are not read."""
    chats = await make_chats(archive_world, 1)
    core, other = archive_world.container, chats.others[0]
    day = get_day(OLD_TS) + 2 * DAYS
    for each in chats.others:  # all messages are on one day, and those of one chat on the next day
        entry = message(100, chats.chat_of(each), each, ts=day * DAY_US)
        await core.messages.put_batch([PersistItem(entry, chats.user)], 20)
        await core.active_days.put_many({entry.chat: DaySet(day, 1, has_earlier=True)})
    last = message(101, chats.chat_of(other), other, ts=(day + 1) * DAY_US)
    await core.messages.put_batch([PersistItem(last, chats.user)], 20)
    await core.active_days.put_many({last.chat: DaySet(day, 3, has_earlier=True)})
    read: list[str] = []
    read_stream = chat_message_iterator.ChatMessageIterator.read

    async def record(stream: chat_message_iterator.ChatMessageIterator, *args: object) -> int:
        read.append(stream.chat)
        return await read_stream(stream, *args)  # type: ignore[arg-type]  # as called

    monkeypatch.setattr(chat_message_iterator.ChatMessageIterator, "read", record)

    times = TimeRange(from_ts=(day + 1) * DAY_US)
    page = await chats.lists().list_page(chats.user, chats.user, None, times, 5, None)

    assert [each.seq for each in page.items] == [101]
    assert read == [last.chat]
