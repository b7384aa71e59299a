"""Messages that are old enough move to S3, and nothing is lost, doubled or misread on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from chatserver.errors import Conflict, Unavailable
from chatserver.protocol.frames import Message
from chatserver.telemetry import metrics
from tests.integration.archive_support import (
    CHAT,
    STEPS,
    Died,
    World,
    at_step,
    die,
    encoded,
    interrupted_archiver,
    old,
    open_world,
    texts_of,
)
from tests.integration.files_support import cold_settings
from tests.integration.warm_support import Tables, seqs

pytest_plugins = ["tests.integration.warm_fixtures"]

NOW_TS = 4_000_000_000_000_000  # of what is not old


@pytest.fixture
async def world(redis_url: str, tables: Tables, s3: str) -> AsyncIterator[World]:
    """A worker that archives what is older than a second, 40 entries a segment."""
    async with open_world(redis_url, tables, cold_settings(s3)) as made:
        yield made


async def assert_whole(world: World, sent: list[Message]) -> None:
    """See that readers in both directions get exactly this."""
    assert encoded(await world.walk_down(limit=33)) == encoded(sent)
    assert encoded(await world.walk_up(limit=33)) == encoded(sent)


async def test_old_messages_move_and_pages_cross_the_tiers(world: World) -> None:
    """Byte-equal and contiguous in both directions; what is young stays, pages name their tier."""
    sent = [*texts_of(90), *(old(seq, ts=NOW_TS + seq) for seq in range(91, 101))]
    await world.put(*sent)

    visit = await world.parts.archiver.visit(CHAT)

    assert visit.moved == 90
    assert await world.warm_seqs() == list(range(91, 101))
    assert sorted(await world.objects()) == sorted(await world.keys_of_segments())
    assert len(await world.objects()) == 3
    await assert_whole(world, sent)
    newest = await world.parts.older.read_run(CHAT, None, None, 10, None)
    across = await world.parts.older.read_run(CHAT, 96, None, 10, None)
    assert (newest.tier, across.tier) == ("warm", "cold")
    assert (await world.parts.archiver.visit(CHAT)).moved == 0


@pytest.mark.parametrize("step", STEPS)
async def test_worker_that_dies_at_a_step_is_followed_by_one_that_finishes(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Readers see all of it at any time, and no object is left that no segment is made of."""
    sent = texts_of(60)
    await world.put(*sent)

    with at_step(monkeypatch, step, die), pytest.raises(Died):
        await world.parts.archiver.visit(CHAT)
    left_over = set(await world.objects())
    await assert_whole(world, sent)
    visit = await world.parts.archiver.visit(CHAT)

    assert await world.warm_seqs() == []
    assert visit.moved == (20 if step in {"archive.after_commit", "archive.after_remove"} else 60)
    assert sorted(await world.objects()) == sorted(await world.keys_of_segments())
    assert left_over <= set(await world.objects())  # an orphan was adopted
    await assert_whole(world, sent)


async def test_orphan_that_is_of_no_use_any_more_is_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody died over is not made a segment if a message changed since."""
    sent = texts_of(10)
    await world.put(*sent)
    with at_step(monkeypatch, "archive.after_object", die), pytest.raises(Died):
        await world.parts.archiver.visit(CHAT)
    orphans = await world.objects()
    await world.parts.message_changes.apply(CHAT, sent[3].ts, [delete_of(4, 11)])

    await world.parts.archiver.visit(CHAT)

    left = await world.objects()
    assert len(orphans) == len(left) == 1
    assert left.keys() != orphans.keys()
    assert b"text 4 " not in b"".join(left.values())


def delete_of(target: int, seq: int) -> Message:
    """The entry that deletes a message for all."""
    return old(seq, kind="delete", body="", target=target)


def edit_of(target: int, seq: int, body: str) -> Message:
    """The entry that edits a message."""
    return old(seq, kind="edit", body=body, target=target)


async def test_changes_of_archived_messages_are_read_at_once_and_reach_their_segment(
    world: World,
) -> None:
    """Edited, deleted, reacted to: as now from the first read on; then also in S3."""
    sent = texts_of(50)
    await world.put(*sent)
    await world.parts.archiver.visit(CHAT)
    changes, before = world.parts.message_changes, await world.walk_down()
    edit, reaction = edit_of(7, 51, "better"), old(53, kind="reaction", body="+", target=9)

    await changes.apply(CHAT, sent[6].ts, [edit])
    await changes.apply(CHAT, sent[7].ts, [delete_of(8, 52)])
    await changes.apply(CHAT, sent[8].ts, [reaction])
    await changes.apply(CHAT, sent[6].ts, [edit])  # a repeat
    at_once = await world.walk_down()
    late = [each.chat for each in await world.parts.manifests.list_late()]
    await world.parts.archiver.fold(CHAT)

    assert seqs(at_once) == seqs(before)
    assert (at_once[6].body, at_once[6].rev, at_once[7].deleted) == ("better", 51, True)
    assert at_once[8].reactions == {"alice": "+"}
    assert late == [CHAT]
    assert await world.warm_seqs() == []
    assert encoded(await world.walk_up()) == encoded(at_once)
    stored = b"".join((await world.objects()).values())
    assert b"text 8 " not in stored
    assert b"better" in stored
    assert sorted(await world.objects()) == sorted(await world.keys_of_segments())


@pytest.mark.parametrize("step", [*STEPS[:4], "archive.before_discard", "archive.after_fold"])
async def test_worker_that_dies_while_it_takes_a_text_out_leaves_none_in_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The object that was replaced is removed by whoever comes next."""
    sent = texts_of(10)
    await world.put(*sent)
    await world.parts.archiver.visit(CHAT)
    await world.parts.message_changes.apply(CHAT, sent[4].ts, [delete_of(5, 11)])

    with at_step(monkeypatch, step, die), pytest.raises(Died):
        await world.parts.archiver.fold(CHAT)
    between = await world.walk_down()
    await world.parts.archiver.fold(CHAT)

    assert between[4].deleted
    assert b"text 5 " not in b"".join((await world.objects()).values())
    assert len(await world.objects()) == 1
    assert encoded(await world.walk_up()) == encoded(between)


async def test_change_between_commit_and_removal_is_not_lost(world: World) -> None:
    """The item that changed stays, counts, and is written into the segment afterwards."""
    sent = texts_of(10)
    await world.put(*sent)

    async def change() -> None:
        await world.parts.message_changes.apply(CHAT, sent[2].ts, [delete_of(3, 11)])
        await world.parts.message_changes.apply(CHAT, sent[5].ts, [edit_of(6, 12, "new")])

    await interrupted_archiver(world, change).visit(CHAT)
    left, seen = await world.warm_seqs(), await world.walk_down()
    await world.parts.archiver.visit(CHAT)

    assert left == [3, 6]
    assert (seen[2].deleted, seen[5].body) == (True, "new")
    assert await world.warm_seqs() == []
    assert encoded(await world.walk_up()) == encoded(seen)
    assert b"text 3 " not in b"".join((await world.objects()).values())


async def test_message_that_expires_is_never_written_to_s3(world: World) -> None:
    """It is read until its time is over, and a tombstone then, whoever removes its item."""
    clock = world.parts.clock
    fleeting = old(2, expires_at=int(clock.time()) + 3600, body="for an hour")
    over = old(3, expires_at=int(clock.time()) - 10, body="over already")
    await world.put(old(1), fleeting, over, old(4))

    visit = await world.parts.archiver.visit(CHAT)
    alive = await world.walk_down()
    again = await world.parts.archiver.visit(CHAT)
    left = await world.warm_seqs()
    await world.tables.client.call(
        "delete_item",
        {
            "TableName": world.tables.settings.table_prefix + "messages",
            "Key": {"chatid": {"S": CHAT}, "ts": {"N": str(fleeting.ts)}},
        },
    )
    ended = await world.walk_up()

    stored = b"".join((await world.objects()).values())
    assert (visit.moved, again.moved, left) == (4, 0, [2])
    assert [each.body for each in alive] == ["text 1 ⟨é⟩", "for an hour", "", "text 4 ⟨é⟩"]
    assert b"for an hour" not in stored
    assert b"over already" not in stored
    assert [(each.seq, each.deleted) for each in ended] == [
        (1, False),
        (2, True),
        (3, True),
        (4, False),
    ]


async def test_two_workers_at_once_archive_each_message_once(world: World) -> None:
    """One of them goes on, the other one is told; the manifest stays a row without overlap."""
    sent = texts_of(100)
    await world.put(*sent)

    outcomes = await asyncio.gather(
        *(world.parts.archiver.visit(CHAT) for _ in range(3)), return_exceptions=True
    )
    await world.parts.archiver.visit(CHAT)

    assert [each for each in outcomes if isinstance(each, Exception)] == [
        each for each in outcomes if isinstance(each, Conflict)
    ]
    segments = await world.parts.manifests.list_covering(CHAT, 1, 1000)
    assert [(each.first, each.last) for each in segments] == [(1, 40), (41, 80), (81, 100)]
    assert sorted(await world.objects()) == sorted(each.key for each in segments)
    await assert_whole(world, sent)


async def test_small_segment_is_filled_up_with_what_follows(
    redis_url: str, tables: Tables, s3: str
) -> None:
    """A few messages wait; those that waited long enough share an object with later ones."""
    bounds = {"segment_entries_min": 20, "wait_s": 10**9}
    async with open_world(redis_url, tables, cold_settings(s3), **bounds) as patient:
        await patient.put(*texts_of(15))
        waiting = await patient.parts.archiver.visit(CHAT)
    async with open_world(redis_url, tables, cold_settings(s3), segment_entries_min=20) as world:
        early = await world.parts.archiver.visit(CHAT)
        await world.put(*texts_of(15, start=16))
        await world.parts.archiver.visit(CHAT)

        assert (waiting.moved, early.moved) == (0, 15)
        segments = await world.parts.manifests.list_covering(CHAT, 1, 1000)
        assert [(each.first, each.last) for each in segments] == [(1, 30)]
        assert sorted(await world.objects()) == [segments[0].key]
        await assert_whole(world, texts_of(30))


async def test_gap_that_nothing_explains_is_named(world: World) -> None:
    """A lost object is `unavailable` and counted; what other segments and tiers have is served."""
    await world.put(*texts_of(90))
    await world.parts.archiver.visit(CHAT)
    key = (await world.keys_of_segments())[1]
    await world.store.call("delete_object", Key=key)
    counter = metrics.HISTORY_GAPS.labels("cold")
    before = counter._value.get()

    with pytest.raises(Unavailable):
        await world.parts.older.read_run(CHAT, 61, None, 10, None)
    served = await world.parts.older.read_run(CHAT, 41, None, 10, None)

    assert counter._value.get() > before
    assert seqs(served.messages) == list(range(31, 41))


async def test_hole_in_the_warm_tier_stops_the_archive_and_is_counted(world: World) -> None:
    """What is not explained is not papered over: nothing beyond it moves."""
    await world.put(*texts_of(10), *texts_of(5, start=12))
    before = metrics.HISTORY_GAPS.labels("archive")._value.get()

    visit = await world.parts.archiver.visit(CHAT)

    assert (visit.moved, visit.stuck_ts) == (10, old(12).ts)
    assert await world.warm_seqs() == list(range(12, 17))
    assert metrics.HISTORY_GAPS.labels("archive")._value.get() == before + 1


async def test_cache_of_segments_stays_within_its_bytes(
    redis_url: str, tables: Tables, s3: str
) -> None:
    """Reading everything twice loads again what had no room, and what is there comes from it."""
    bounds = {"cache_bytes_max": 200_000, "segment_entries_max": 20}
    async with open_world(redis_url, tables, cold_settings(s3), **bounds) as world:
        await world.put(*texts_of(200))
        await world.parts.archiver.visit(CHAT)
        loads, hits = (metrics.SEGMENT_READS.labels(source) for source in ("s3", "cache"))
        counts = loads._value.get(), hits._value.get()

        await world.walk_down(limit=5)
        await world.walk_down(limit=5)

        assert loads._value.get() - counts[0] == 20  # ten objects, twice
        assert hits._value.get() - counts[1] == 60
