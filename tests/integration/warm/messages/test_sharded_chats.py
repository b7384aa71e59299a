"""A chat that was spread, drawn together and spread again: all that works on other chats works."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from chatserver.config import Warm
from chatserver.domain.ids import ChatId
from chatserver.errors import BadRequest
from chatserver.features.privacy.warm.user_data import PersonalRows
from chatserver.protocol.frames import Attachment, Message
from chatserver.warm.archive.archivable_entries import ArchivableMessages
from chatserver.warm.messages.chat_files import ChatFiles
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.message_queries import MessageIndexes
from chatserver.warm.messages.store import MessageRepository, PersistItem
from tests.integration.features.attachments.support import cold_settings
from tests.integration.warm.messages.shard_support import lay_out, raw_seqs
from tests.integration.warm.support import START_TS, STEP_US, FixedClock, Tables, message, seqs
from tests.integration.workers.archive.support import OLD_TS, World, open_world

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]

NOW_S = START_TS // 1_000_000 + 100_000
COUNT = 200
# Spread over 4, together, over 16, over 2; the first and the last message of each.
LAYOUT = ((51, 4), (91, 1), (111, 16), (171, 2))
EDGES = (1, 50, 51, 90, 91, 110, 111, 170, 171, 200)
FILE = Attachment("01JFILE", "plan.pdf", "application/pdf", 1234)


def made(seq: int) -> Message:
    """A message of the chat; each tenth has a file."""
    sender = "alice" if seq % 3 else "bob"
    return message(seq, sender=sender, attachments=[FILE] if seq % 10 == 0 else [])


def text_of(start: int = START_TS, step: int = STEP_US) -> str:
    """The layout as the row has it."""
    return ",".join(f"{start + seq * step}:{shards}" for seq, shards in LAYOUT)


@pytest.fixture
async def spread(tables: Tables) -> MessageRepository:
    """The chat `d-1`, in all its partitions."""
    await lay_out(tables.client, tables.settings, d_1=text_of())
    repository = MessageRepository(tables.client, tables.settings, FixedClock(NOW_S))
    items = [PersistItem(made(seq), "bob" if seq % 3 else "alice") for seq in range(1, COUNT + 1)]
    await repository.put_batch(items, timeout_s=20)
    await repository.put_batch(items[::7], timeout_s=20)  # as who starts anew does
    return repository


@pytest.fixture
def patterns(spread: MessageRepository, tables: Tables) -> MessageIndexes:
    """The access patterns."""
    return MessageIndexes(tables.client, tables.settings, FixedClock(NOW_S))


async def test_entries_are_in_the_partitions_of_their_stretch_once(
    spread: MessageRepository, tables: Tables
) -> None:
    """Written twice, each is there once, and no shard has far more than its part."""
    found = await raw_seqs(tables.client, tables.settings, "d-1")

    assert sorted(seq for each in found.values() for seq in each) == list(range(1, COUNT + 1))
    assert found["d-1"] == [*range(1, 51), *range(91, 111)]
    wide = [[seq for seq in each if 111 <= seq <= 170] for each in found.values()]
    assert sum(map(bool, wide)) > 12 and max(map(len, wide)) < 12


@pytest.mark.parametrize(("limit", "has_hint"), [(7, True), (50, False), (200, True)])
async def test_history_is_contiguous_both_ways(
    spread: MessageRepository, limit: int, has_hint: bool
) -> None:
    """Page by page across all stretches, with and without a hint of where a page begins."""
    down: list[Message] = []
    up: list[Message] = []

    while not down or down[0].seq > 1:
        before, ts = (down[0].seq, down[0].ts) if down else (None, None)
        down = [*await spread.list_before("d-1", before, limit, ts if has_hint else None), *down]
    while not up or up[-1].seq < COUNT:
        after, ts = (up[-1].seq, up[-1].ts) if up else (0, None)
        up += await spread.list_after("d-1", after, limit, ts if has_hint else None)

    assert down == up == [made(seq) for seq in range(1, COUNT + 1)]
    head = await spread.find_head("d-1")
    assert head is not None and head.seq == COUNT


async def test_hole_is_explained_by_its_marker(spread: MessageRepository, tables: Tables) -> None:
    """Markers stay: lost and expired messages differ from missing ones."""
    later = message(COUNT + 2)
    ending = message(COUNT + 3, expires_at=NOW_S - 1)
    await spread.put_batch([PersistItem(later, None), PersistItem(ending, None)], 20)

    assert await spread.fill_hole("d-1", COUNT + 1, later.ts - 5)

    run = await spread.list_after("d-1", COUNT - 1, 10)
    assert [(each.seq, each.deleted) for each in run] == [
        (COUNT, False),
        (COUNT + 1, True),
        (COUNT + 2, False),
        (COUNT + 3, True),
    ]


async def page_through(
    read: Callable[..., Any], limit: int, **how: Any
) -> tuple[list[int], list[Any]]:
    """Read a pattern to its end; the seqs, and the tokens as a client would hand them back."""
    found: list[int] = []
    tokens: list[Any] = []
    start = None
    while True:
        page = await read(limit=limit, start=start, **how)
        found += seqs(page.items)
        assert all(each.chat == "d-1" for each in page.items)
        if page.next is None:
            return found, tokens
        assert len(page.items) == limit
        start = json.loads(json.dumps(page.next))
        tokens.append(start)


@pytest.mark.parametrize(("limit", "newest_first"), [(1, True), (9, False), (60, True)])
async def test_patterns_list_each_message_once_in_order(
    patterns: MessageIndexes, tables: Tables, limit: int, newest_first: bool
) -> None:
    """By chat, by status, by sender, by receiver, by files; page by page, either way."""
    every = list(range(1, COUNT + 1))
    files = ChatFiles(tables.client, tables.settings, FixedClock(NOW_S))
    wanted = {
        "chat": (patterns.list_chat, "d-1", every),
        "active": (patterns.list_active, "d-1", every),
        "sent": (patterns.list_sent, "alice", [seq for seq in every if seq % 3]),
        "received": (patterns.list_received, "alice", [seq for seq in every if not seq % 3]),
        "files": (files.list_with_files, "d-1", [seq for seq in every if not seq % 10]),
    }
    if limit == 1:  # a Query a page: the edges of stretches will do
        span = {"from_ts": START_TS + 45 * STEP_US, "to_ts": START_TS + 56 * STEP_US}
        every = list(range(45, 57))
    else:
        span = {}

    for read, of, seqs_of in wanted.values():
        found, _ = await page_through(
            lambda read=read, of=of, **how: read(of, **how),
            limit,
            newest_first=newest_first,
            **span,
        )
        known = [seq for seq in seqs_of if seq in every]
        assert found == (known[::-1] if newest_first else known)


async def test_range_of_time_is_that_of_its_messages(patterns: MessageIndexes) -> None:
    """Both ends belong to it, in whatever stretch they are."""
    for low, high in ((60, 80), (40, 120), (91, 110), (51, 51), (165, 300)):
        ends = START_TS + low * STEP_US, START_TS + high * STEP_US

        chat = await patterns.list_chat("d-1", *ends, limit=200, newest_first=False)
        active = await patterns.list_active("d-1", *ends, limit=200)

        assert seqs(chat.items) == list(range(low, min(high, COUNT) + 1))
        assert seqs(active.items) == seqs(chat.items)[::-1]


async def test_page_goes_on_where_it_ended_while_the_chat_is_spread_anew(
    patterns: MessageIndexes, spread: MessageRepository, tables: Tables
) -> None:
    """A token of before the move is as good after it."""
    first = await patterns.list_chat("d-1", limit=150, newest_first=False)
    begin = START_TS + (COUNT + 1) * STEP_US
    await lay_out(tables.client, tables.settings, d_1=f"{text_of()},{begin}:8")
    newer = [PersistItem(message(seq), None) for seq in range(COUNT + 1, COUNT + 21)]
    writer = MessageRepository(tables.client, tables.settings, FixedClock(NOW_S))
    await writer.put_batch(newer, 20)
    reader = MessageIndexes(tables.client, tables.settings, FixedClock(NOW_S))

    rest = await reader.list_chat("d-1", limit=200, start=first.next, newest_first=False)

    assert seqs(first.items + rest.items) == list(range(1, COUNT + 21))
    with pytest.raises(BadRequest, match="page token"):
        await reader.list_chat("d-2", limit=10, start=first.next)


async def test_messages_are_found_and_changed_in_every_stretch(
    patterns: MessageIndexes, spread: MessageRepository, tables: Tables
) -> None:
    """By place: read, edited, deleted; the partition of an item stays what it is."""
    changes = MessageChanges(tables.client, tables.settings)
    before = await raw_seqs(tables.client, tables.settings, "d-1")
    places = [("d-1", made(seq).ts) for seq in EDGES]
    assert seqs(list((await patterns.get_many(places)).values())) != []

    for number, seq in enumerate(EDGES):
        is_edit = number % 2 == 0
        entry = message(
            500 + seq, kind="edit" if is_edit else "delete", body="new" * is_edit, target=seq
        )
        await changes.apply("d-1", made(seq).ts, [entry])
        await changes.apply("d-1", made(seq).ts, [entry])

    found = await patterns.get_many(places)
    assert {each.seq: (each.body, each.deleted) for each in found.values()} == {
        seq: ("new", False) if number % 2 == 0 else ("", True) for number, seq in enumerate(EDGES)
    }
    active, _ = await page_through(
        lambda **how: patterns.list_active("d-1", **how), 60, newest_first=False
    )
    assert active == [seq for seq in range(1, COUNT + 1) if seq not in EDGES[1::2]]
    assert await raw_seqs(tables.client, tables.settings, "d-1") == before


async def test_dead_letter_is_revived_where_its_tombstone_is(
    spread: MessageRepository, tables: Tables
) -> None:
    """In a shard, too."""
    changes = MessageChanges(tables.client, tables.settings)
    seq = 130
    dead = message(seq, body="", rev=seq, deleted=True)
    await spread.put_batch([PersistItem(dead, None)], 20)

    assert await changes.replay(PersistItem(message(seq), None))

    assert await spread.list_after("d-1", seq - 1, 1) == [message(seq)]
    assert not await changes.replay(PersistItem(message(999), None)), "nothing is there"


async def test_what_a_user_said_is_found_in_every_stretch(
    spread: MessageRepository, tables: Tables
) -> None:
    """Exports and erasures read through the index, and by place."""
    rows = PersonalRows(client=tables.client, settings=tables.settings)

    said = [each.seq async for page in rows.iter_entries("bob") for each in page]

    assert said == [seq for seq in range(1, COUNT + 1) if seq % 3 == 0]
    for seq in EDGES:
        found = await rows.find_entry("d-1", made(seq).ts)
        assert found is not None and (found.seq, found.chat) == (seq, "d-1")


async def test_old_entries_are_read_in_order_and_removed_as_read(
    spread: MessageRepository, tables: Tables
) -> None:
    """Reads of the archive worker and the auditor."""
    aged = ArchivableMessages(tables.client, tables.settings, FixedClock(NOW_S))
    oldest = await aged.find_oldest("d-1")
    run = (await aged.list_run("d-1", 0, 0, made(COUNT).ts, 120)).entries

    assert oldest is not None and oldest.seq == 1
    assert seqs(run) == list(range(1, 121))
    assert await aged.remove(run, 8) == 0

    oldest = await aged.find_oldest("d-1")
    assert oldest is not None and oldest.seq == 121
    assert seqs(await aged.list_between("d-1", 0, made(COUNT).ts)) == list(range(121, COUNT + 1))


@pytest.fixture
async def aging_spread(redis_url: str, warm_settings: Warm, s3: str) -> AsyncIterator[World]:
    """Parts of a worker process with an archive, and a chat of 2020 that is spread."""
    async with open_world(redis_url, warm_settings, cold_settings(s3)) as world:
        world.chat = ChatId("g-spread")
        await lay_out(world.client, warm_settings, g_spread=text_of(OLD_TS, 1000))
        yield world


async def test_archive_takes_a_spread_chat_and_history_stays_whole(aging_spread: World) -> None:
    """Its items leave all partitions; what changes afterwards is laid over the archive."""
    world, warm = aging_spread, aging_spread.container.settings.warm
    sent = world.texts(COUNT)
    await world.put(*sent)
    assert len(await raw_seqs(world.client, warm, world.chat)) == 17

    visit = await world.visit()

    assert visit.moved == COUNT
    assert await raw_seqs(world.client, warm, world.chat) == {}
    assert await world.walk_down() == await world.walk_up() == sent

    newer = world.texts(30, COUNT + 1)
    await world.put(*newer)
    deletes = {seq: world.old(400 + seq, kind="delete", body="", target=seq) for seq in EDGES}
    for seq, entry in deletes.items():
        await world.container.message_changes.apply(world.chat, sent[seq - 1].ts, [entry])
    gone = [each.seq for each in await world.walk_down() if each.deleted]
    assert gone == list(EDGES)
    assert seqs(await world.walk_up()) == list(range(1, COUNT + 31))

    await world.visit()

    assert await raw_seqs(world.client, warm, world.chat) == {}
    assert [each.seq for each in await world.walk_up() if each.deleted] == list(EDGES)
