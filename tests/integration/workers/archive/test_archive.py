"""Old messages are moved to S3 without loss, duplicates or changes."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.cold.segment_objects import SegmentObjects
from chatserver.domain.archive_segments import ArchiveSegment
from chatserver.errors import ChatError, Conflict, Unavailable
from chatserver.protocol.frames import Message
from chatserver.telemetry import metrics
from tests.integration.warm.support import seqs
from tests.integration.workers.archive.support import (
    STEPS,
    Crashed,
    Interrupted,
    World,
    at_step,
    crash,
    encoded,
)

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

NOW_TS = 4_000_000_000_000_000  # timestamp of messages that are not old


async def assert_history(world: World, sent: list[Message]) -> None:
    """Check that readers in both directions get exactly these messages."""
    assert encoded(await world.read_backward(limit=33)) == encoded(sent)
    assert encoded(await world.read_forward(limit=33)) == encoded(sent)


async def test_old_messages_move_and_pages_cross_the_tiers(world: World) -> None:
    """History is contiguous and byte-identical. Recent messages stay; pages name their tier."""
    sent = [
        *world.texts(90),
        *(world.old(seq, ts=NOW_TS + seq) for seq in range(91, 101)),
    ]
    await world.put(*sent)

    visit = await world.archive_old()

    assert visit.moved == 90
    assert await world.warm_seqs() == list(range(91, 101))
    await world.assert_only_segments()
    assert len(await world.objects()) == 3
    await assert_history(world, sent)
    newest = await world.container.older_tiers.read_run(world.chat, None, None, 10, None)
    across = await world.container.older_tiers.read_run(world.chat, 96, None, 10, None)
    assert (newest.tier, across.tier) == ("warm", "cold")
    assert (await world.archive_old()).moved == 0


@pytest.mark.parametrize("step", STEPS)
async def test_archiving_that_crashed_at_a_step_is_completed_by_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Readers get all messages at any time, and no orphaned object remains."""
    sent = world.texts(60)
    await world.put(*sent)

    with at_step(monkeypatch, step, crash), pytest.raises(Crashed):
        await world.archive_old()
    left_over = set(await world.objects())
    await assert_history(world, sent)
    visit = await world.archive_old()

    assert await world.warm_seqs() == []
    assert visit.moved == (20 if step in {"archive.after_commit", "archive.after_remove"} else 60)
    await world.assert_only_segments()
    assert left_over <= set(await world.objects())  # orphans became segments
    await assert_history(world, sent)


async def test_orphan_with_outdated_content_is_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object of a crashed run does not become a segment if a message has changed since."""
    sent = world.texts(10)
    await world.put(*sent)
    with at_step(monkeypatch, "archive.after_object", crash), pytest.raises(Crashed):
        await world.archive_old()
    orphans = await world.objects()
    await world.apply(sent[3], delete_of(world, 4, 11))

    await world.archive_old()

    left = await world.objects()
    assert len(orphans) == len(left) == 1
    assert left.keys() != orphans.keys()
    assert b"text 4 " not in b"".join(left.values())


def delete_of(world: World, target: int, seq: int) -> Message:
    """Create the entry that deletes a message for everyone."""
    return world.old(seq, kind="delete", body="", target=target)


def edit_of(world: World, target: int, seq: int, body: str) -> Message:
    """Create the entry that edits a message."""
    return world.old(seq, kind="edit", body=body, target=target)


async def test_changes_of_archived_messages_are_readable_at_once_and_written_to_s3(
    world: World,
) -> None:
    """The next run writes an edit, a deletion and a reaction to the segment."""
    sent = world.texts(50)
    await world.put(*sent)
    await world.archive_old()
    before = await world.read_backward()
    edit, reaction = (
        edit_of(world, 7, 51, "better"),
        world.old(53, kind="reaction", body="+", target=9),
    )

    await world.apply(sent[6], edit)
    await world.apply(sent[7], delete_of(world, 8, 52))
    await world.apply(sent[8], reaction)
    await world.apply(sent[6], edit)  # this is a retry
    at_once = await world.read_backward()
    late = [each.chat for each in await world.container.manifests.late.list_all()]
    await world.merge_changes()

    assert seqs(at_once) == seqs(before)
    assert (at_once[6].body, at_once[6].rev, at_once[7].deleted) == ("better", 51, True)
    assert at_once[8].reactions == {"alice": "+"}
    assert world.chat in late
    assert await world.warm_seqs() == []
    assert encoded(await world.read_forward()) == encoded(at_once)
    stored = await world.archived()
    assert b"text 8 " not in stored
    assert b"better" in stored
    await world.assert_only_segments()


@pytest.mark.parametrize("step", [*STEPS[:4], "archive.before_discard", "archive.after_merge"])
async def test_deletion_from_a_segment_that_crashed_is_completed_by_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The replaced object with the deleted text is removed."""
    sent = world.texts(10)
    await world.put(*sent)
    await world.archive_old()
    await world.apply(sent[4], delete_of(world, 5, 11))

    with at_step(monkeypatch, step, crash), pytest.raises(Crashed):
        await world.merge_changes()
    between = await world.read_backward()
    await world.merge_changes()

    assert between[4].deleted
    assert b"text 5 " not in await world.archived()
    assert len(await world.objects()) == 1
    assert encoded(await world.read_forward()) == encoded(between)


async def test_change_between_commit_and_removal_is_not_lost(world: World) -> None:
    """The changed item remains readable, and the next run writes it to the segment."""
    sent = world.texts(10)
    await world.put(*sent)

    async def change() -> None:
        await world.apply(sent[2], delete_of(world, 3, 11))
        await world.apply(sent[5], edit_of(world, 6, 12, "new"))

    await world.archiver(Interrupted(world, change)).archive_chat(world.chat)
    left, seen = await world.warm_seqs(), await world.read_backward()
    await world.archive_old()

    assert left == [3, 6]
    assert (seen[2].deleted, seen[5].body) == (True, "new")
    assert await world.warm_seqs() == []
    assert encoded(await world.read_forward()) == encoded(seen)
    assert b"text 3 " not in await world.archived()


async def test_deleted_text_is_not_returned_while_its_segment_is_replaced(
    world: World,
) -> None:
    """A reader with an outdated manifest reads it again after the warm tier."""
    sent = world.texts(10)
    await world.put(*sent)
    await world.archive_old()
    await world.apply(sent[4], delete_of(world, 5, 11))

    reader = world.reader(Interrupted(world, world.merge_changes, before="read"))
    page = await reader.read_run(world.chat, 11, None, 10, None)

    assert await world.warm_seqs() == []
    assert seqs(page.messages) == list(range(1, 11))
    assert (page.messages[4].deleted, page.messages[4].body) == (True, "")


async def test_expiring_message_is_never_written_to_s3(world: World) -> None:
    """The message is readable until it expires and then becomes a tombstone."""
    clock = world.container.clock
    expiring = world.old(2, expires_at=int(clock.time()) + 3600, body="for an hour")
    over = world.old(3, expires_at=int(clock.time()) - 10, body="expired already")
    await world.put(world.old(1), expiring, over, world.old(4))

    visit = await world.archive_old()
    alive = await world.read_backward()
    again = await world.archive_old()
    left = await world.warm_seqs()
    table = world.container.settings.warm.table_prefix + "messages"
    key = {"chatid": {"S": world.chat}, "ts": {"N": str(expiring.ts)}}
    await world.client.call("delete_item", {"TableName": table, "Key": key})  # as TTL does
    ended = await world.read_forward()

    stored = await world.archived()
    assert (visit.moved, again.moved, left) == (4, 0, [2])
    assert [each.body for each in alive] == ["text 1 ⟨é⟩", "for an hour", "", "text 4 ⟨é⟩"]
    assert b"for an hour" not in stored
    assert b"expired already" not in stored
    assert [(each.seq, each.deleted) for each in ended] == [
        (1, False),
        (2, True),
        (3, True),
        (4, False),
    ]


async def test_concurrent_workers_archive_each_message_once(world: World) -> None:
    """One worker continues and the others get a conflict. Segments do not overlap."""
    sent = world.texts(100)
    await world.put(*sent)

    outcomes = await asyncio.gather(
        *(world.archive_old() for _ in range(3)), return_exceptions=True
    )
    await world.archive_old()

    assert [each for each in outcomes if isinstance(each, Exception)] == [
        each for each in outcomes if isinstance(each, Conflict)
    ]
    segments = await world.container.manifests.list_covering(world.chat, 1, 1000)
    assert [(each.first, each.last) for each in segments] == [(1, 40), (41, 80), (81, 100)]
    assert sorted(await world.objects()) == sorted(each.key for each in segments)
    await assert_history(world, sent)


async def test_object_of_committed_segment_is_kept_if_it_is_recorded_as_orphan_again(
    world: World,
) -> None:
    """A lost response repeats the record, after another worker has committed the segment."""
    sent = world.texts(40)
    await world.put(*sent)
    await world.archive_old()
    (segment,) = await world.segments()
    await world.container.manifests.add_orphan(segment)

    await world.merge_changes()

    assert await world.container.manifests.list_orphans(world.chat) == []
    await world.assert_only_segments()
    await assert_history(world, sent)


@pytest.mark.parametrize("error", [Conflict, Unavailable])
async def test_object_written_after_its_orphan_was_deleted_is_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch, error: type[ChatError]
) -> None:
    """Another worker deletes the orphan between its record and the write of the object."""
    sent = world.texts(40)
    await world.put(*sent)
    put = SegmentObjects.put

    async def put_late(self: SegmentObjects, segment: ArchiveSegment, data: bytes) -> None:
        await world.merge_changes()
        await put(self, segment, data)
        if error is Unavailable:
            raise Unavailable("the response of S3 was lost")

    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(SegmentObjects, "put", put_late)
        await world.archive_old()
    await world.archive_old()

    await world.assert_only_segments()
    await assert_history(world, sent)


async def test_small_segment_is_extended_by_later_messages(world: World) -> None:
    """A few messages wait. After the maximum wait they get a segment, which is extended later."""
    await world.put(*world.texts(15))

    waiting = await world.archiver(segment_entries_min=20, wait_s=10**9).archive_chat(world.chat)
    early = await world.archiver(segment_entries_min=20).archive_chat(world.chat)
    await world.put(*world.texts(15, start=16))
    await world.archiver(segment_entries_min=20).archive_chat(world.chat)

    assert (waiting.moved, early.moved) == (0, 15)
    assert [(each.first, each.last) for each in await world.segments()] == [(1, 30)]
    await world.assert_only_segments()
    await assert_history(world, world.texts(30))


async def test_lost_segment_is_unavailable_and_counted(world: World) -> None:
    """Other segments and tiers are still readable."""
    await world.put(*world.texts(90))
    await world.archive_old()
    key = (await world.segments())[1].key
    await world.store.call("delete_object", Key=key)
    counter = metrics.HISTORY_GAPS.labels("cold")
    before = counter._value.get()

    with pytest.raises(Unavailable):
        await world.container.older_tiers.read_run(world.chat, 61, None, 10, None)
    served = await world.container.older_tiers.read_run(world.chat, 41, None, 10, None)

    assert counter._value.get() > before
    assert seqs(served.messages) == list(range(31, 41))


async def test_gap_in_the_warm_tier_stops_archiving_and_is_counted(world: World) -> None:
    """No message after an unexplained gap is moved."""
    await world.put(*world.texts(10), *world.texts(5, start=12))
    before = metrics.HISTORY_GAPS.labels("archive")._value.get()

    visit = await world.archive_old()

    assert (visit.moved, visit.stuck_ts) == (10, world.old(12).ts)
    assert await world.warm_seqs() == list(range(12, 17))
    assert metrics.HISTORY_GAPS.labels("archive")._value.get() == before + 1


async def test_segment_cache_stays_within_its_size(world: World) -> None:
    """A second read loads evicted segments again, but not cached ones."""
    await world.put(*world.texts(80))
    await world.archiver(segment_entries_max=10).archive_chat(world.chat)
    loads, hits = (metrics.SEGMENT_READS.labels(source) for source in ("s3", "cache"))
    counts = loads._value.get(), hits._value.get()
    reader = world.reader(cache_bytes_max=30_000)

    await world.read_backward(limit=5, reader=reader)
    await world.read_backward(limit=5, reader=reader)

    assert loads._value.get() - counts[0] == 16  # eight objects, each loaded twice
    assert hits._value.get() - counts[1] == 16
