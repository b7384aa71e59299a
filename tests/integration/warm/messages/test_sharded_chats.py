"""A chat that was sharded, unsharded and sharded again: all features still work."""

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
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.message_indexes import MessageIndexes
from chatserver.warm.messages.messages import Messages, PersistItem
from tests.integration.features.attachments.support import cold_settings
from tests.integration.warm.messages.shard_support import put_layouts, raw_seqs
from tests.integration.warm.support import START_TS, STEP_US, FixedClock, Tables, message, seqs
from tests.integration.workers.archive.support import OLD_TS, World, open_world

NOW_S = START_TS // 1_000_000 + 100_000
COUNT = 200
# 4 shards, none, 16, 2; followed by the first and the last message of each period.
LAYOUT = ((51, 4), (91, 1), (111, 16), (171, 2))
EDGES = (1, 50, 51, 90, 91, 110, 111, 170, 171, 200)
FILE = Attachment("01JFILE", "plan.pdf", "application/pdf", 1234)


def made(seq: int) -> Message:
    """Create a message of the chat; each tenth message has a file."""
    sender = "alice" if seq % 3 else "bob"
    return message(seq, sender=sender, attachments=[FILE] if seq % 10 == 0 else [])


def text_of(start: int = START_TS, step: int = STEP_US) -> str:
    """Return the layout as stored."""
    return ",".join(f"{start + seq * step}:{shards}" for seq, shards in LAYOUT)


@pytest.fixture
async def sharded(tables: Tables) -> Messages:
    """The repository, with the messages of chat `d-1` in all its partitions."""
    await put_layouts(tables.client, tables.settings, d_1=text_of())
    repository = Messages(tables.client, FixedClock(NOW_S))
    items = [PersistItem(made(seq), "bob" if seq % 3 else "alice") for seq in range(1, COUNT + 1)]
    await repository.put_batch(items, timeout_s=20)
    await repository.put_batch(items[::7], timeout_s=20)  # as a restarted worker does
    return repository


@pytest.fixture
def queries(sharded: Messages, tables: Tables) -> MessageIndexes:
    """The queries on the chat."""
    return MessageIndexes(tables.client, FixedClock(NOW_S))


async def test_entries_are_stored_once_in_the_shards_of_their_period(
    sharded: Messages, tables: Tables
) -> None:
    """Entries written twice are stored once, and are distributed evenly over the shards."""
    found = await raw_seqs(tables.client, tables.settings, "d-1")

    assert sorted(seq for each in found.values() for seq in each) == list(range(1, COUNT + 1))
    assert found["d-1"] == [*range(1, 51), *range(91, 111)]
    wide = [[seq for seq in each if 111 <= seq <= 170] for each in found.values()]
    assert sum(map(bool, wide)) > 12 and max(map(len, wide)) < 12


@pytest.mark.parametrize(("limit", "has_hint"), [(7, True), (50, False), (200, True)])
async def test_history_is_contiguous_in_both_directions(
    sharded: Messages, limit: int, has_hint: bool
) -> None:
    """This holds across all periods, with and without the ts hint."""
    down: list[Message] = []
    up: list[Message] = []

    while not down or down[0].seq > 1:
        before, ts = (down[0].seq, down[0].ts) if down else (None, None)
        down = [*await sharded.list_before("d-1", before, limit, ts if has_hint else None), *down]
    while not up or up[-1].seq < COUNT:
        after, ts = (up[-1].seq, up[-1].ts) if up else (0, None)
        up += await sharded.list_after("d-1", after, limit, ts if has_hint else None)

    assert down == up == [made(seq) for seq in range(1, COUNT + 1)]
    head = await sharded.find_head("d-1")
    assert head is not None and head.seq == COUNT


async def test_markers_of_a_sharded_chat_are_found(sharded: Messages, tables: Tables) -> None:
    """With markers, lost and expired messages are tombstones and not missing."""
    later = message(COUNT + 2)
    ending = message(COUNT + 3, expires_at=NOW_S - 1)
    await sharded.put_batch([PersistItem(later, None), PersistItem(ending, None)], 20)

    await sharded.fill_hole("d-1", COUNT + 1, later.ts - 5)

    run = await sharded.list_after("d-1", COUNT - 1, 10)
    assert [(each.seq, each.deleted) for each in run] == [
        (COUNT, False),
        (COUNT + 1, True),
        (COUNT + 2, False),
        (COUNT + 3, True),
    ]


async def page_through(
    read: Callable[..., Any], limit: int, **how: Any
) -> tuple[list[int], list[Any]]:
    """Read all pages of a query; return the seqs, and the page tokens as a client returns them."""
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
async def test_queries_list_each_message_once_in_order(
    queries: MessageIndexes, tables: Tables, limit: int, newest_first: bool
) -> None:
    """Tested by chat, status, sender, receiver and files, in both directions."""
    every = list(range(1, COUNT + 1))
    files = MessageIndexes(tables.client, FixedClock(NOW_S))
    wanted = {
        "chat": (queries.list_chat, "d-1", every),
        "active": (queries.list_active, "d-1", every),
        "sent": (queries.list_sent, "alice", [seq for seq in every if seq % 3]),
        "received": (queries.list_received, "alice", [seq for seq in every if not seq % 3]),
        "files": (files.list_with_files, "d-1", [seq for seq in every if not seq % 10]),
    }
    if limit == 1:  # one Query for each page, because these are only the messages around a border
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


async def test_time_range_includes_both_ends(queries: MessageIndexes) -> None:
    """The ends may be in any period."""
    for low, high in ((60, 80), (40, 120), (91, 110), (51, 51), (165, 300)):
        ends = START_TS + low * STEP_US, START_TS + high * STEP_US

        chat = await queries.list_chat("d-1", *ends, limit=200, newest_first=False)
        active = await queries.list_active("d-1", *ends, limit=200)

        assert seqs(chat.items) == list(range(low, min(high, COUNT) + 1))
        assert seqs(active.items) == seqs(chat.items)[::-1]


async def test_page_token_stays_valid_after_resharding(
    queries: MessageIndexes, sharded: Messages, tables: Tables
) -> None:
    """A page after the change continues where the previous page ended."""
    first = await queries.list_chat("d-1", limit=150, newest_first=False)
    begin = START_TS + (COUNT + 1) * STEP_US
    await put_layouts(tables.client, tables.settings, d_1=f"{text_of()},{begin}:8")
    newer = [PersistItem(message(seq), None) for seq in range(COUNT + 1, COUNT + 21)]
    writer = Messages(tables.client, FixedClock(NOW_S))
    await writer.put_batch(newer, 20)
    reader = MessageIndexes(tables.client, FixedClock(NOW_S))

    rest = await reader.list_chat("d-1", limit=200, start=first.next, newest_first=False)

    assert seqs(first.items + rest.items) == list(range(1, COUNT + 21))
    with pytest.raises(BadRequest, match="page token"):
        await reader.list_chat("d-2", limit=10, start=first.next)


async def test_messages_are_found_and_changed_in_every_period(
    queries: MessageIndexes, sharded: Messages, tables: Tables
) -> None:
    """They are read, edited and deleted by chat and ts.

    The partition of an item does not change.
    """
    changes = MessageChanges(tables.client)
    before = await raw_seqs(tables.client, tables.settings, "d-1")
    positions = [("d-1", made(seq).ts) for seq in EDGES]
    assert seqs(list((await queries.get_many(positions)).values())) != []

    for number, seq in enumerate(EDGES):
        is_edit = number % 2 == 0
        entry = message(
            500 + seq, kind="edit" if is_edit else "delete", body="new" * is_edit, target=seq
        )
        await changes.apply("d-1", made(seq).ts, [entry])
        await changes.apply("d-1", made(seq).ts, [entry])

    found = await queries.get_many(positions)
    assert {each.seq: (each.body, each.deleted) for each in found.values()} == {
        seq: ("new", False) if number % 2 == 0 else ("", True) for number, seq in enumerate(EDGES)
    }
    active, _ = await page_through(
        lambda **how: queries.list_active("d-1", **how), 60, newest_first=False
    )
    assert active == [seq for seq in range(1, COUNT + 1) if seq not in EDGES[1::2]]
    assert await raw_seqs(tables.client, tables.settings, "d-1") == before


async def test_replayed_dead_letter_replaces_its_tombstone_in_a_shard(
    sharded: Messages, tables: Tables
) -> None:
    """A replay without a tombstone is refused."""
    changes = MessageChanges(tables.client)
    seq = 130
    dead = message(seq, body="", rev=seq, deleted=True)
    await sharded.put_batch([PersistItem(dead, None)], 20)

    assert await changes.replay(PersistItem(message(seq), None))

    assert await sharded.list_after("d-1", seq - 1, 1) == [message(seq)]
    assert not await changes.replay(PersistItem(message(999), None)), (
        "a message without a tombstone was replayed"
    )


async def test_messages_of_a_user_are_found_in_every_period(
    sharded: Messages, tables: Tables
) -> None:
    """Exports and erasures read by index and by chat and ts."""
    rows = PersonalRows(tables.client)

    found_seqs = [each.seq async for page in rows.iter_entries("bob") for each in page]

    assert found_seqs == [seq for seq in range(1, COUNT + 1) if seq % 3 == 0]
    for seq in EDGES:
        found = await rows.find_entry("d-1", made(seq).ts)
        assert found is not None and (found.seq, found.chat) == (seq, "d-1")


async def test_old_entries_are_read_in_order_and_removed_as_read(
    sharded: Messages, tables: Tables
) -> None:
    """These are the queries of the archive worker and the auditor."""
    archivable = ArchivableEntries(tables.client, FixedClock(NOW_S))
    oldest = await archivable.find_oldest("d-1")
    run = (await archivable.list_consecutive("d-1", 0, 0, made(COUNT).ts, 120)).entries

    assert oldest is not None and oldest.seq == 1
    assert seqs(run) == list(range(1, 121))
    assert await archivable.remove(run, 8) == 0

    oldest = await archivable.find_oldest("d-1")
    assert oldest is not None and oldest.seq == 121
    assert seqs(await archivable.list_between("d-1", 0, made(COUNT).ts)) == list(
        range(121, COUNT + 1)
    )


@pytest.fixture
async def sharded_archive(redis_url: str, warm_settings: Warm, s3: str) -> AsyncIterator[World]:
    """A worker process with an archive, and a sharded chat of 2020."""
    async with open_world(redis_url, warm_settings, cold_settings(s3)) as world:
        world.chat = ChatId("g-sharded")
        await put_layouts(world.client, warm_settings, g_sharded=text_of(OLD_TS, 1000))
        yield world


async def test_archiving_a_sharded_chat_keeps_its_history(sharded_archive: World) -> None:
    """Its items are removed from all partitions. Later changes override the archive."""
    world, warm = sharded_archive, sharded_archive.container.settings.warm
    sent = world.texts(COUNT)
    await world.put(*sent)
    assert len(await raw_seqs(world.client, warm, world.chat)) == 17

    visit = await world.archive_old()

    assert visit.moved == COUNT
    assert await raw_seqs(world.client, warm, world.chat) == {}
    assert await world.read_backward() == await world.read_forward() == sent

    newer = world.texts(30, COUNT + 1)
    await world.put(*newer)
    deletes = {seq: world.old(400 + seq, kind="delete", body="", target=seq) for seq in EDGES}
    for seq, entry in deletes.items():
        await world.container.message_changes.apply(world.chat, sent[seq - 1].ts, [entry])
    deleted = [each.seq for each in await world.read_backward() if each.deleted]
    assert deleted == list(EDGES)
    assert seqs(await world.read_forward()) == list(range(1, COUNT + 31))

    await world.archive_old()

    assert await raw_seqs(world.client, warm, world.chat) == {}
    assert [each.seq for each in await world.read_forward() if each.deleted] == list(EDGES)
