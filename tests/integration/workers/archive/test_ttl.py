"""Archiving with TTL: items are archived before TTL deletes them, or restored afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import time
from collections.abc import AsyncIterator

import pytest

from chatserver.telemetry import metrics
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.ttl import ItemRetention
from tests.integration.warm.messages.ttl_support import TtlWorld, ttl_world
from tests.integration.warm.support import Faults
from tests.integration.workers.archive.support import Crashed, World, at_step, crash, encoded
from tests.integration.workers.support import worker_process
from tests.support.servers.processes import eventually_equal
from tests.support.servers.stream_server import StreamServer
from workers.archive import ttl_removal_checks
from workers.archive.container import ArchiveContainer
from workers.archive.ttl_emulation import TtlEmulation
from workers.archive.ttl_removal_checks import TtlRemovalHandler
from workers.archive.worker import ArchiveWorker

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
__all__ = ["ttl_world"]


def get_removal_count(outcome: str) -> float:
    """Return the metric of handled removals with this outcome."""
    value: float = metrics.STREAM_REMOVALS.labels(outcome)._value.get()
    return value


async def test_archived_items_are_left_to_ttl_and_not_read_again(ttl_world: TtlWorld) -> None:
    """Each message is in a tier at any time. The next run does not read the remaining items."""
    world, sent = ttl_world.world, ttl_world.texts(90)
    await ttl_world.put(*sent)

    moved = await ttl_world.archive_old()
    segments = await world.segments()
    faults = Faults(world.client)
    again = await ttl_world.archive_old()

    read = [body for body in faults.bodies("Query") if body["TableName"].endswith("messages")]

    assert (moved, again) == (90, 0)
    assert await world.warm_seqs() == list(range(1, 91))
    lows = {list(body["ExpressionAttributeValues"].values())[1]["N"] for body in read}
    assert lows == {str(sent[-1].ts + 1)}
    assert not faults.bodies("DeleteItem")
    assert await world.segments() == segments
    assert encoded(await world.read_backward()) == encoded(sent)
    await ttl_world.delete_by_ttl(*range(1, 61))
    assert encoded(await world.read_forward()) == encoded(sent)
    assert encoded(await world.read_backward()) == encoded(sent)


async def test_change_of_an_archived_item_before_its_deletion_is_written_to_the_segment(
    ttl_world: TtlWorld,
) -> None:
    """The changed item loses its `ttl`, and the worker archives and removes it."""
    world, sent = ttl_world.world, ttl_world.texts(40)
    await ttl_world.put(*sent)
    await ttl_world.archive_old()

    await ttl_world.change("delete", sent[7], 41)
    await ttl_world.change("edit", sent[2], 42, "better")
    changed = await ttl_world.items()
    await ttl_world.archiver.merge_changes(world.chat)

    assert await ttl_world.is_recorded_late()
    assert ["ttl" in changed[seq] for seq in (3, 8, 9)] == [False, False, True]
    assert set(range(1, 43)) - set(await world.warm_seqs()) == {3, 8}
    stored = await world.archived()
    assert b"text 8 " not in stored
    assert b"better" in stored
    seen = await world.read_forward()
    assert (seen[2].body, seen[7].deleted) == ("better", True)


async def test_item_without_ttl_is_removed_by_the_worker_after_a_crash(
    ttl_world: TtlWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items without `ttl` are old or restored. The crashed run has left a record of the chat."""
    world, sent = ttl_world.world, ttl_world.texts(20)
    await ttl_world.put(*sent[:10])
    await world.put(*sent[10:])

    with at_step(monkeypatch, "archive.after_commit", crash), pytest.raises(Crashed):
        await ttl_world.archive_old()
    assert len(await world.warm_seqs()) == 20
    assert await ttl_world.is_recorded_late()
    await ttl_world.archiver.merge_changes(world.chat)

    assert await world.warm_seqs() == list(range(1, 11))
    assert encoded(await world.read_forward()) == encoded(sent)


async def test_item_with_a_distant_ttl_is_removed_by_the_worker(ttl_world: TtlWorld) -> None:
    """It was stored with a longer retention than the current setting."""
    world, sent = ttl_world.world, ttl_world.texts(3)
    await ttl_world.put(*sent)
    item = (await ttl_world.items())[2]
    item["ttl"] = {"N": str(int(time.time()) + 400 * 86_400)}
    table = f"{world.container.settings.warm.table_prefix}messages"
    await world.client.call("put_item", {"TableName": table, "Item": item})

    await ttl_world.archive_old()

    assert await world.warm_seqs() == [1, 3]


async def test_expiring_message_keeps_its_text_until_ttl_deletes_it(ttl_world: TtlWorld) -> None:
    """The archive has only a tombstone, which is read after the deletion."""
    world, now = ttl_world.world, int(time.time())
    expiring = ttl_world.text(2, expires_at=now + 3600, body="for an hour")
    await ttl_world.put(ttl_world.text(1), expiring, ttl_world.text(3))

    await ttl_world.archive_old()

    assert (await ttl_world.items())[2]["ttl"]["N"] == str(now + 3600)
    assert (await world.read_forward())[1].body == "for an hour"
    assert b"for an hour" not in await world.archived()
    await ttl_world.delete_by_ttl(2)
    assert (await world.read_forward())[1].deleted


async def test_deletion_of_archived_and_expired_items_needs_no_restore(ttl_world: TtlWorld) -> None:
    """This is the common case: no item is written."""
    world, now = ttl_world.world, int(time.time())
    sent = ttl_world.texts(4)
    over = ttl_world.text(5, expires_at=now - 5)
    await ttl_world.put(*sent)
    await ttl_world.change("edit", sent[1], 6, "better")
    await ttl_world.put(over)
    assert await ttl_world.archive_old() == 6
    await ttl_world.archiver.merge_changes(world.chat)
    removed = list((await ttl_world.items()).values())
    before = {found: get_removal_count(found) for found in ("archived", "expired", "returned")}
    await ttl_world.delete_by_ttl(*(await ttl_world.items()))

    await ttl_world.removals.handle(removed)

    assert await world.warm_seqs() == []
    grown = {found: get_removal_count(found) - count for found, count in before.items()}
    assert grown == {"archived": len(removed) - 1, "expired": 1, "returned": 0}


async def test_item_deleted_before_it_was_archived_is_restored_and_archived(
    ttl_world: TtlWorld,
) -> None:
    """Later changes are applied to it, and it has no `ttl`."""
    world, sent = ttl_world.world, ttl_world.texts(6)
    await ttl_world.put(*sent)
    removed = await ttl_world.delete_by_ttl(1, 2, 3, 4)
    await ttl_world.change("delete", sent[1], 7)  # the item does not exist
    await ttl_world.change("edit", sent[2], 8, "better")
    hole = await world.container.older_tiers.read_run(world.chat, None, 2, 10, None)
    assert not hole.messages  # a gap is not skipped

    await ttl_world.removals.handle(removed)
    await ttl_world.removals.handle(removed)

    seen = await world.read_forward()
    assert [each.seq for each in seen] == list(range(1, 9))
    assert (seen[0].body, seen[1].deleted, seen[2].body) == (sent[0].body, True, "better")
    items = await ttl_world.items()
    assert [seq for seq, item in items.items() if "ttl" not in item] == [1, 2, 3, 4]
    assert items[1]["receiver_id"]["S"] == "bob"
    assert await ttl_world.is_recorded_late()
    await ttl_world.archive_old()
    assert await world.warm_seqs() == [5, 6, 7, 8]
    assert encoded(await world.read_backward()) == encoded(seen)


async def test_deleted_item_with_an_unarchived_change_is_restored_and_archived(
    ttl_world: TtlWorld,
) -> None:
    """A server with a longer retention edited an archived item without removing its `ttl`."""
    world, sent = ttl_world.world, ttl_world.texts(5)
    await ttl_world.put(*sent)
    await ttl_world.archive_old()
    longer = ItemRetention(10**9, 0, is_by_ttl=True)
    changes = MessageChanges(world.client, retention=longer)
    other = dataclasses.replace(ttl_world, changes=changes)
    await other.change("edit", sent[1], 6, "better")
    removed = await ttl_world.delete_by_ttl(2)
    assert "ttl" in removed[0]
    await ttl_world.change("reaction", sent[1], 7, "+")  # overrides the archive, without the edit

    await ttl_world.removals.handle(removed)
    seen = await world.read_forward()
    await ttl_world.archiver.merge_changes(world.chat)

    assert (seen[1].body, seen[1].reactions) == ("better", {"alice": "+"})
    assert 2 not in await world.warm_seqs()
    assert (await world.read_forward())[1] == seen[1]
    assert b"better" in await world.archived()


@pytest.mark.parametrize("step", ["stream.before_put_back", "stream.after_put_back"])
async def test_restore_of_deleted_items_that_crashed_is_completed_by_a_retry(
    ttl_world: TtlWorld, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Items after the last checkpoint are handled again."""
    world, sent = ttl_world.world, ttl_world.texts(3)
    await ttl_world.put(*sent)
    removed = await ttl_world.delete_by_ttl(1, 2, 3)

    def failpoint(name: str) -> None:
        if name == step:
            raise Crashed

    with monkeypatch.context() as patch:
        patch.setattr(ttl_removal_checks, "failpoint", failpoint)
        with pytest.raises(Crashed):
            await ttl_world.removals.handle(removed)
    await ttl_world.removals.handle(removed)

    assert encoded(await world.read_forward()) == encoded(sent)
    assert await ttl_world.is_recorded_late()


async def test_restored_deletion_is_applied_to_its_restored_message(ttl_world: TtlWorld) -> None:
    """The entry of the deletion was missing when its message was restored."""
    world, sent = ttl_world.world, ttl_world.texts(3)
    await ttl_world.put(*sent)
    removed = await ttl_world.delete_by_ttl(1)
    entry = ttl_world.text(4, kind="delete", body="", target=1)
    await ttl_world.put(entry)
    removed += await ttl_world.delete_by_ttl(4)

    await ttl_world.removals.handle(removed[:1])
    before = (await world.read_forward())[0].deleted
    await ttl_world.removals.handle(removed[1:])

    assert not before
    assert (await world.read_forward())[0].deleted


async def test_invalid_item_does_not_prevent_the_handling_of_others(ttl_world: TtlWorld) -> None:
    """The item is counted in a metric."""
    world, sent = ttl_world.world, ttl_world.texts(2)
    await ttl_world.put(*sent)
    removed = await ttl_world.delete_by_ttl(1)
    before = get_removal_count("refused")

    await ttl_world.removals.handle([{"chatid": {"S": "x"}, "ts": {"N": "1"}}, *removed])

    assert get_removal_count("refused") == before + 1
    assert await world.warm_seqs() == [1, 2]


async def test_deleted_item_with_a_lost_segment_object_is_restored(ttl_world: TtlWorld) -> None:
    """A changed item is compared with its segment. If that is unreadable, the item is restored."""
    world, sent = ttl_world.world, ttl_world.texts(2)
    await ttl_world.put(*sent)
    await ttl_world.change("edit", sent[0], 3, "better")
    await ttl_world.archive_old()
    await ttl_world.put(dataclasses.replace(ttl_world).text(1, body="better", rev=3, edited_seq=3))
    removed = await ttl_world.delete_by_ttl(1)
    for segment in await world.segments():
        await world.store.call("delete_object", Key=segment.key)
    fresh = TtlRemovalHandler(
        **{
            **{
                each.name: getattr(ttl_world.removals, each.name)
                for each in dataclasses.fields(TtlRemovalHandler)
            },
            "classifier": ttl_removal_checks.TtlRemovalClassifier(
                world.container.manifests, ttl_world.archiver._objects, world.container.clock
            ),
        }
    )
    ttl_world.archiver._objects._cache.clear()

    await fresh.handle(removed)

    assert 1 in await world.warm_seqs()


async def test_sweeper_deletes_expired_and_archived_items_only(
    world: World, ttl_world: TtlWorld
) -> None:
    """The sweeper replaces TTL where DynamoDB does not delete. Unarchived items stay."""
    now = int(time.time())
    overdue = dataclasses.replace(ttl_world, start_us=(now - 400_000) * 1_000_000)
    old = overdue.texts(5)
    expiring = ttl_world.text(6, expires_at=now - 1)
    later = ttl_world.text(7, expires_at=now + 900)
    await overdue.put(*old)
    await ttl_world.put(expiring, later)
    sweeper = TtlEmulation(world.container, "w1")

    await sweeper.sweep()
    first = await world.warm_seqs()
    await ttl_world.archive_old()
    await sweeper.sweep()

    assert first == [1, 2, 3, 4, 5, 7]
    assert await world.warm_seqs() == [7]
    seen = await world.read_forward()
    assert encoded(seen[:5]) == encoded(old)
    assert [each.deleted for each in seen[5:]] == [True, False]


async def test_sweeper_keeps_an_item_that_changed_since_it_was_read(
    world: World, ttl_world: TtlWorld
) -> None:
    """The first item has lost its `ttl` since the read, for example by a change or a legal hold."""
    now = int(time.time())
    await ttl_world.put(
        ttl_world.text(1, expires_at=now - 1), ttl_world.text(2, expires_at=now - 1)
    )
    items = await ttl_world.items()
    held = {name: value for name, value in items[1].items() if name != "ttl"}
    table = f"{world.container.settings.warm.table_prefix}messages"
    await world.client.call("put_item", {"TableName": table, "Item": held})

    removed = [await ttl_world.removals.items.remove(items[seq]) for seq in (1, 2)]

    assert removed == [False, True]


async def test_worker_archives_restored_items_above_the_archived_ones(
    world: World, ttl_world: TtlWorld
) -> None:
    """The chat is not due; the worker finds it by its record of late changes."""
    sent = ttl_world.texts(3)
    await ttl_world.put(*sent)
    await ttl_world.removals.handle(await ttl_world.delete_by_ttl(1, 2, 3))

    lease = world.container.hot.keys.lease(0, "archive")  # of a process that was killed here
    await world.container.hot.call("HSET", lease, "until_ms", 0)
    await ArchiveWorker(world.container, 0, "w1").sweep()

    assert [each.count for each in await world.segments()] == [3]
    assert encoded(await world.read_forward()) == encoded(sent)


@contextlib.asynccontextmanager
async def worker(
    world: World, server: StreamServer, **env: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start an archive worker process that reads a stub of DynamoDB Streams."""
    variables = {
        "CHAT_WARM_STREAMS_ENDPOINT": server.endpoint,
        "CHAT_ARCHIVE_REMOVAL": "ttl",
        "CHAT_ARCHIVE_RETENTION_S": "1",
        "CHAT_ARCHIVE_WAIT_S": "0",
        "workers.archive.LEASE_S": "1",
        "workers.archive.ttl_stream_reader.STREAM_POLL_S": "0.05",
        "CHAT_ARCHIVE_SWEEP_INTERVAL_S": "0.2",
        "CHAT_PERSIST_WRITE_TIMEOUT_S": "0.1",
    }
    async with worker_process(world.container, "archive", **{**variables, **env}) as process:
        yield process
    # The next archive worker must not wait for the expiry of this lease.
    await world.container.hot.call("DEL", world.container.hot.keys.lease(0, "archive"))


@pytest.mark.timeout(300)
async def test_killed_worker_process_is_replaced_without_losing_deleted_items(
    world: World, ttl_world: TtlWorld
) -> None:
    """Items that TTL deleted too early are restored, archived and removed."""
    sent = ttl_world.texts(12)
    await ttl_world.put(*sent)
    server = StreamServer(f"{world.container.settings.warm.table_prefix}messages")
    # Workers of other tests did not release it.
    await world.container.hot.call("DEL", world.container.hot.keys.lease(0, "archive"))
    for item in await ttl_world.delete_by_ttl(*range(1, 13)):
        last = server.remove(item)

    async def get_checkpoint() -> str | None:
        known = await world.container.get(ArchiveContainer).stream_rows.get_state(time.time())
        return next((each.position for each in known.progress.values()), None)

    async with server.serve():
        async with worker(world, server, CHAT_FAILPOINT="stream.before_record:kill") as killed:
            async with asyncio.timeout(90):
                assert await killed.wait() == -signal.SIGKILL
        checkpoint = await get_checkpoint()
        async with worker(world, server):
            await eventually_equal(get_checkpoint, last, deadline_s=90)
            await eventually_equal(
                world.segments,
                [12],
                of=lambda found: [each.count for each in found],
            )

    assert checkpoint is None
    assert encoded(await world.read_forward()) == encoded(sent)
    await world.assert_only_segments()
