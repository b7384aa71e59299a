"""Old messages are moved to S3 without loss, duplicates or changes."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.errors import Conflict, Unavailable
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
from workers.archive.container import ArchiveContainer

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

NOW_TS = 4_000_000_000_000_000  # timestamp of messages that are not old


async def assert_history(aging: World, sent: list[Message]) -> None:
    """Check that readers in both directions get exactly these messages."""
    assert encoded(await aging.walk_down(limit=33)) == encoded(sent)
    assert encoded(await aging.walk_up(limit=33)) == encoded(sent)


async def test_old_messages_move_and_pages_cross_the_tiers(aging: World) -> None:
    """History is contiguous and byte-identical. Recent messages stay; pages name their tier."""
    sent = [*aging.texts(90), *(aging.old(seq, ts=NOW_TS + seq) for seq in range(91, 101))]
    await aging.put(*sent)

    visit = await aging.visit()

    assert visit.moved == 90
    assert await aging.warm_seqs() == list(range(91, 101))
    await aging.assert_only_segments()
    assert len(await aging.objects()) == 3
    await assert_history(aging, sent)
    newest = await aging.container.older_tiers.read_run(aging.chat, None, None, 10, None)
    across = await aging.container.older_tiers.read_run(aging.chat, 96, None, 10, None)
    assert (newest.tier, across.tier) == ("warm", "cold")
    assert (await aging.visit()).moved == 0


@pytest.mark.parametrize("step", STEPS)
async def test_archiving_that_crashed_at_a_step_is_completed_by_the_next_run(
    aging: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Readers get all messages at any time, and no orphaned object remains."""
    sent = aging.texts(60)
    await aging.put(*sent)

    with at_step(monkeypatch, step, crash), pytest.raises(Crashed):
        await aging.visit()
    left_over = set(await aging.objects())
    await assert_history(aging, sent)
    visit = await aging.visit()

    assert await aging.warm_seqs() == []
    assert visit.moved == (20 if step in {"archive.after_commit", "archive.after_remove"} else 60)
    await aging.assert_only_segments()
    assert left_over <= set(await aging.objects())  # orphans became segments
    await assert_history(aging, sent)


async def test_orphan_with_outdated_content_is_removed(
    aging: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object of a crashed run does not become a segment if a message has changed since."""
    sent = aging.texts(10)
    await aging.put(*sent)
    with at_step(monkeypatch, "archive.after_object", crash), pytest.raises(Crashed):
        await aging.visit()
    orphans = await aging.objects()
    await aging.container.message_changes.apply(aging.chat, sent[3].ts, [delete_of(aging, 4, 11)])

    await aging.visit()

    left = await aging.objects()
    assert len(orphans) == len(left) == 1
    assert left.keys() != orphans.keys()
    assert b"text 4 " not in b"".join(left.values())


def delete_of(aging: World, target: int, seq: int) -> Message:
    """Create the entry that deletes a message for everyone."""
    return aging.old(seq, kind="delete", body="", target=target)


def edit_of(aging: World, target: int, seq: int, body: str) -> Message:
    """Create the entry that edits a message."""
    return aging.old(seq, kind="edit", body=body, target=target)


async def test_changes_of_archived_messages_are_readable_at_once_and_written_to_s3(
    aging: World,
) -> None:
    """The next run writes an edit, a deletion and a reaction to the segment."""
    sent = aging.texts(50)
    await aging.put(*sent)
    await aging.visit()
    changes, before = aging.container.message_changes, await aging.walk_down()
    edit, reaction = (
        edit_of(aging, 7, 51, "better"),
        aging.old(53, kind="reaction", body="+", target=9),
    )

    await changes.apply(aging.chat, sent[6].ts, [edit])
    await changes.apply(aging.chat, sent[7].ts, [delete_of(aging, 8, 52)])
    await changes.apply(aging.chat, sent[8].ts, [reaction])
    await changes.apply(aging.chat, sent[6].ts, [edit])  # this is a retry
    at_once = await aging.walk_down()
    late = [each.chat for each in await aging.container.manifests.list_late()]
    await aging.container.get(ArchiveContainer).archiver.merge_changes(aging.chat)

    assert seqs(at_once) == seqs(before)
    assert (at_once[6].body, at_once[6].rev, at_once[7].deleted) == ("better", 51, True)
    assert at_once[8].reactions == {"alice": "+"}
    assert aging.chat in late
    assert await aging.warm_seqs() == []
    assert encoded(await aging.walk_up()) == encoded(at_once)
    stored = b"".join((await aging.objects()).values())
    assert b"text 8 " not in stored
    assert b"better" in stored
    await aging.assert_only_segments()


@pytest.mark.parametrize("step", [*STEPS[:4], "archive.before_discard", "archive.after_merge"])
async def test_deletion_from_a_segment_that_crashed_is_completed_by_the_next_run(
    aging: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The replaced object with the deleted text is removed."""
    sent = aging.texts(10)
    await aging.put(*sent)
    await aging.visit()
    await aging.container.message_changes.apply(aging.chat, sent[4].ts, [delete_of(aging, 5, 11)])

    with at_step(monkeypatch, step, crash), pytest.raises(Crashed):
        await aging.container.get(ArchiveContainer).archiver.merge_changes(aging.chat)
    between = await aging.walk_down()
    await aging.container.get(ArchiveContainer).archiver.merge_changes(aging.chat)

    assert between[4].deleted
    assert b"text 5 " not in b"".join((await aging.objects()).values())
    assert len(await aging.objects()) == 1
    assert encoded(await aging.walk_up()) == encoded(between)


async def test_change_between_commit_and_removal_is_not_lost(aging: World) -> None:
    """The changed item remains readable, and the next run writes it to the segment."""
    sent = aging.texts(10)
    await aging.put(*sent)

    async def change() -> None:
        await aging.container.message_changes.apply(
            aging.chat, sent[2].ts, [delete_of(aging, 3, 11)]
        )
        await aging.container.message_changes.apply(
            aging.chat, sent[5].ts, [edit_of(aging, 6, 12, "new")]
        )

    await aging.archiver(Interrupted(aging, change)).archive_chat(aging.chat)
    left, seen = await aging.warm_seqs(), await aging.walk_down()
    await aging.visit()

    assert left == [3, 6]
    assert (seen[2].deleted, seen[5].body) == (True, "new")
    assert await aging.warm_seqs() == []
    assert encoded(await aging.walk_up()) == encoded(seen)
    assert b"text 3 " not in b"".join((await aging.objects()).values())


async def test_deleted_text_is_not_returned_while_its_segment_is_replaced(aging: World) -> None:
    """A reader with an outdated manifest reads it again after the warm tier."""
    sent = aging.texts(10)
    await aging.put(*sent)
    await aging.visit()
    await aging.container.message_changes.apply(aging.chat, sent[4].ts, [delete_of(aging, 5, 11)])

    async def merge_changes() -> None:
        await aging.container.get(ArchiveContainer).archiver.merge_changes(aging.chat)

    reader = aging.reader(Interrupted(aging, merge_changes, before="read"))
    page = await reader.read_run(aging.chat, 11, None, 10, None)

    assert await aging.warm_seqs() == []
    assert seqs(page.messages) == list(range(1, 11))
    assert (page.messages[4].deleted, page.messages[4].body) == (True, "")


async def test_expiring_message_is_never_written_to_s3(aging: World) -> None:
    """The message is readable until it expires and then becomes a tombstone."""
    clock = aging.container.clock
    expiring = aging.old(2, expires_at=int(clock.time()) + 3600, body="for an hour")
    over = aging.old(3, expires_at=int(clock.time()) - 10, body="expired already")
    await aging.put(aging.old(1), expiring, over, aging.old(4))

    visit = await aging.visit()
    alive = await aging.walk_down()
    again = await aging.visit()
    left = await aging.warm_seqs()
    table = aging.container.settings.warm.table_prefix + "messages"
    key = {"chatid": {"S": aging.chat}, "ts": {"N": str(expiring.ts)}}
    await aging.client.call("delete_item", {"TableName": table, "Key": key})  # as TTL does
    ended = await aging.walk_up()

    stored = b"".join((await aging.objects()).values())
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


async def test_concurrent_workers_archive_each_message_once(aging: World) -> None:
    """One worker continues and the others get a conflict. Segments do not overlap."""
    sent = aging.texts(100)
    await aging.put(*sent)

    outcomes = await asyncio.gather(*(aging.visit() for _ in range(3)), return_exceptions=True)
    await aging.visit()

    assert [each for each in outcomes if isinstance(each, Exception)] == [
        each for each in outcomes if isinstance(each, Conflict)
    ]
    segments = await aging.container.manifests.list_covering(aging.chat, 1, 1000)
    assert [(each.first, each.last) for each in segments] == [(1, 40), (41, 80), (81, 100)]
    assert sorted(await aging.objects()) == sorted(each.key for each in segments)
    await assert_history(aging, sent)


async def test_small_segment_is_extended_by_later_messages(aging: World) -> None:
    """A few messages wait. After the maximum wait they get a segment, which is extended later."""
    await aging.put(*aging.texts(15))

    waiting = await aging.archiver(segment_entries_min=20, wait_s=10**9).archive_chat(aging.chat)
    early = await aging.archiver(segment_entries_min=20).archive_chat(aging.chat)
    await aging.put(*aging.texts(15, start=16))
    await aging.archiver(segment_entries_min=20).archive_chat(aging.chat)

    assert (waiting.moved, early.moved) == (0, 15)
    assert [(each.first, each.last) for each in await aging.segments()] == [(1, 30)]
    await aging.assert_only_segments()
    await assert_history(aging, aging.texts(30))


async def test_lost_segment_is_unavailable_and_counted(aging: World) -> None:
    """Other segments and tiers are still readable."""
    await aging.put(*aging.texts(90))
    await aging.visit()
    key = (await aging.segments())[1].key
    await aging.store.call("delete_object", Key=key)
    counter = metrics.HISTORY_GAPS.labels("cold")
    before = counter._value.get()

    with pytest.raises(Unavailable):
        await aging.container.older_tiers.read_run(aging.chat, 61, None, 10, None)
    served = await aging.container.older_tiers.read_run(aging.chat, 41, None, 10, None)

    assert counter._value.get() > before
    assert seqs(served.messages) == list(range(31, 41))


async def test_gap_in_the_warm_tier_stops_archiving_and_is_counted(aging: World) -> None:
    """No message after an unexplained gap is moved."""
    await aging.put(*aging.texts(10), *aging.texts(5, start=12))
    before = metrics.HISTORY_GAPS.labels("archive")._value.get()

    visit = await aging.visit()

    assert (visit.moved, visit.stuck_ts) == (10, aging.old(12).ts)
    assert await aging.warm_seqs() == list(range(12, 17))
    assert metrics.HISTORY_GAPS.labels("archive")._value.get() == before + 1


async def test_segment_cache_stays_within_its_size(aging: World) -> None:
    """A second read loads evicted segments again, but not cached ones."""
    await aging.put(*aging.texts(80))
    await aging.archiver(segment_entries_max=10).archive_chat(aging.chat)
    loads, hits = (metrics.SEGMENT_READS.labels(source) for source in ("s3", "cache"))
    counts = loads._value.get(), hits._value.get()
    reader = aging.reader(cache_bytes_max=30_000)

    await aging.walk_down(limit=5, reader=reader)
    await aging.walk_down(limit=5, reader=reader)

    assert loads._value.get() - counts[0] == 16  # eight objects, each loaded twice
    assert hits._value.get() - counts[1] == 16
