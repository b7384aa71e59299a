"""Where TTL removes: all is copied before, nothing is looked at twice, and the net below holds."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import AsyncIterator

import pytest

from chatserver.telemetry import metrics
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.ttl import ItemRetention
from tests.integration.warm.messages.ttl_support import Timed, timed
from tests.integration.warm.support import Faults
from tests.integration.workers.archive.support import Died, World, at_step, die, encoded
from tests.integration.workers.support import variables_of
from tests.support.servers.processes import eventually
from tests.support.servers.stream_server import StreamServer
from workers.archive import ttl_removals as removing
from workers.archive.container import ArchiveContainer
from workers.archive.ttl_expiry import ExpirySweeper
from workers.archive.ttl_removals import RemovalHandler
from workers.archive.worker import ArchiveWorker

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
__all__ = ["timed"]


def counted(found: str) -> float:
    """How many removals were found to be of a kind."""
    value: float = metrics.STREAM_REMOVALS.labels(found)._value.get()
    return value


async def test_what_ttl_removes_is_copied_and_left_and_not_looked_at_again(timed: Timed) -> None:
    """There is no moment in which a message is in no tier; and leftovers cost nothing."""
    world, sent = timed.world, timed.texts(90)
    await timed.put(*sent)

    moved = await timed.visit()
    segments = await world.segments()
    faults = Faults(world.client)
    again = await timed.visit()

    read = [body for body in faults.bodies("Query") if body["TableName"].endswith("messages")]

    assert (moved, again) == (90, 0)
    assert await world.warm_seqs() == list(range(1, 91))
    assert {body["ExpressionAttributeValues"][":low"]["N"] for body in read} == {
        str(sent[-1].ts + 1)
    }
    assert not faults.bodies("DeleteItem")
    assert await world.segments() == segments
    assert encoded(await world.walk_down()) == encoded(sent)
    await timed.remove(*range(1, 61))
    assert encoded(await world.walk_up()) == encoded(sent)
    assert encoded(await world.walk_down()) == encoded(sent)


async def test_change_of_what_is_archived_and_not_removed_yet_reaches_its_segment(
    timed: Timed,
) -> None:
    """The item loses its `ttl`, is folded and removed; the leftovers beside it are not read."""
    world, sent = timed.world, timed.texts(40)
    await timed.put(*sent)
    await timed.visit()

    await timed.change("delete", sent[7], 41)
    await timed.change("edit", sent[2], 42, "better")
    changed = await timed.items()
    await timed.archiver.fold(world.chat)

    assert await timed.is_noted()
    assert ["ttl" in changed[seq] for seq in (3, 8, 9)] == [False, False, True]
    assert set(range(1, 43)) - set(await world.warm_seqs()) == {3, 8}
    stored = b"".join((await world.objects()).values())
    assert b"text 8 " not in stored
    assert b"better" in stored
    seen = await world.walk_up()
    assert (seen[2].body, seen[7].deleted) == ("better", True)


async def test_item_without_ttl_is_removed_by_the_worker_whoever_dies(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old item, or one that was put back; a crash leaves a record."""
    world, sent = timed.world, timed.texts(20)
    await timed.put(*sent[:10])
    await world.put(*sent[10:])

    with at_step(monkeypatch, "archive.after_commit", die), pytest.raises(Died):
        await timed.visit()
    assert len(await world.warm_seqs()) == 20
    assert await timed.is_noted()
    await timed.archiver.fold(world.chat)

    assert await world.warm_seqs() == list(range(1, 11))
    assert encoded(await world.walk_up()) == encoded(sent)


async def test_item_of_a_longer_retention_is_removed_by_the_worker(timed: Timed) -> None:
    """Its `ttl` is far off, and somebody wants it out of DynamoDB now."""
    world, sent = timed.world, timed.texts(3)
    await timed.put(*sent)
    item = (await timed.items())[2]
    item["ttl"] = {"N": str(int(time.time()) + 400 * 86_400)}
    table = f"{world.container.settings.warm.table_prefix}messages"
    await world.client.call("put_item", {"TableName": table, "Item": item})

    await timed.visit()

    assert await world.warm_seqs() == [1, 3]


async def test_message_that_ends_stays_with_its_text_until_ttl_takes_it(timed: Timed) -> None:
    """The archive has its place alone; afterwards the place is all there is."""
    world, now = timed.world, int(time.time())
    fleeting = timed.text(2, expires_at=now + 3600, body="for an hour")
    await timed.put(timed.text(1), fleeting, timed.text(3))

    await timed.visit()

    assert (await timed.items())[2]["ttl"]["N"] == str(now + 3600)
    assert (await world.walk_up())[1].body == "for an hour"
    assert b"for an hour" not in b"".join((await world.objects()).values())
    await timed.remove(2)
    assert (await world.walk_up())[1].deleted


async def test_removal_of_what_is_archived_or_over_is_all_right(timed: Timed) -> None:
    """The common case: nothing is written, and S3 is asked only for what had changed."""
    world, now = timed.world, int(time.time())
    sent = timed.texts(4)
    over = timed.text(5, expires_at=now - 5)
    await timed.put(*sent)
    await timed.change("edit", sent[1], 6, "better")
    await timed.put(over)
    assert await timed.visit() == 6
    await timed.archiver.fold(world.chat)
    removed = list((await timed.items()).values())
    before = {found: counted(found) for found in ("archived", "expired", "returned")}
    await timed.remove(*(await timed.items()))

    await timed.removals.handle(removed)

    assert await world.warm_seqs() == []
    grown = {found: counted(found) - count for found, count in before.items()}
    assert grown == {"archived": len(removed) - 1, "expired": 1, "returned": 0}


async def test_what_was_removed_before_it_was_copied_comes_back_and_is_archived(
    timed: Timed,
) -> None:
    """As it is after all that happened meanwhile, and TTL does not take it again."""
    world, sent = timed.world, timed.texts(6)
    await timed.put(*sent)
    removed = await timed.remove(1, 2, 3, 4)
    await timed.change("delete", sent[1], 7)  # finds nothing to delete
    await timed.change("edit", sent[2], 8, "better")
    hole = await world.container.older_tiers.read_run(world.chat, None, 2, 10, None)
    assert not hole.messages  # nothing is passed over

    await timed.removals.handle(removed)
    await timed.removals.handle(removed)

    seen = await world.walk_up()
    assert [each.seq for each in seen] == list(range(1, 9))
    assert (seen[0].body, seen[1].deleted, seen[2].body) == (sent[0].body, True, "better")
    items = await timed.items()
    assert [seq for seq, item in items.items() if "ttl" not in item] == [1, 2, 3, 4]
    assert items[1]["receiver_id"]["S"] == "bob"
    assert await timed.is_noted()
    await timed.visit()
    assert await world.warm_seqs() == [5, 6, 7, 8]
    assert encoded(await world.walk_down()) == encoded(seen)


async def test_change_that_the_archive_lacks_comes_back_and_is_folded(timed: Timed) -> None:
    """A server of another retention changed an item and left its `ttl`; then somebody reacted."""
    world, sent = timed.world, timed.texts(5)
    await timed.put(*sent)
    await timed.visit()
    longer = ItemRetention(10**9, 0, is_by_ttl=True)
    changes = MessageChanges(world.client, world.container.settings.warm, keeping=longer)
    other = dataclasses.replace(timed, changes=changes)
    await other.change("edit", sent[1], 6, "better")
    removed = await timed.remove(2)
    assert "ttl" in removed[0]
    await timed.change("reaction", sent[1], 7, "+")  # lies over the archive, without the edit

    await timed.removals.handle(removed)
    seen = await world.walk_up()
    await timed.archiver.fold(world.chat)

    assert (seen[1].body, seen[1].reactions) == ("better", {"alice": "+"})
    assert 2 not in await world.warm_seqs()
    assert (await world.walk_up())[1] == seen[1]
    assert b"better" in b"".join((await world.objects()).values())


@pytest.mark.parametrize("step", ["stream.before_put_back", "stream.after_put_back"])
async def test_reader_that_dies_while_it_puts_back_is_followed(
    timed: Timed, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Unrecorded items are handled again."""
    world, sent = timed.world, timed.texts(3)
    await timed.put(*sent)
    removed = await timed.remove(1, 2, 3)

    def failpoint(name: str) -> None:
        if name == step:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(removing, "failpoint", failpoint)
        with pytest.raises(Died):
            await timed.removals.handle(removed)
    await timed.removals.handle(removed)

    assert encoded(await world.walk_up()) == encoded(sent)
    assert await timed.is_noted()


async def test_entry_that_comes_back_changes_its_message_if_it_has_not(timed: Timed) -> None:
    """The deletion itself was missing when its message returned."""
    world, sent = timed.world, timed.texts(3)
    await timed.put(*sent)
    removed = await timed.remove(1)
    entry = timed.text(4, kind="delete", body="", target=1)
    await timed.put(entry)
    removed += await timed.remove(4)

    await timed.removals.handle(removed[:1])
    before = (await world.walk_up())[0].deleted
    await timed.removals.handle(removed[1:])

    assert not before
    assert (await world.walk_up())[0].deleted


async def test_item_that_is_none_of_ours_does_not_stop_the_others(timed: Timed) -> None:
    """It is counted and named."""
    world, sent = timed.world, timed.texts(2)
    await timed.put(*sent)
    removed = await timed.remove(1)
    before = counted("refused")

    await timed.removals.handle([{"chatid": {"S": "x"}, "ts": {"N": "1"}}, *removed])

    assert counted("refused") == before + 1
    assert await world.warm_seqs() == [1, 2]


async def test_message_whose_object_is_lost_comes_back(timed: Timed) -> None:
    """If it had changed, the object is asked; what cannot be read there is not there."""
    world, sent = timed.world, timed.texts(2)
    await timed.put(*sent)
    await timed.change("edit", sent[0], 3, "better")
    await timed.visit()
    await timed.put(dataclasses.replace(timed).text(1, body="better", rev=3, edited_seq=3))
    removed = await timed.remove(1)
    for segment in await world.segments():
        await world.store.call("delete_object", Key=segment.key)
    fresh = RemovalHandler(
        **{
            **{
                each.name: getattr(timed.removals, each.name)
                for each in dataclasses.fields(RemovalHandler)
            },
            "judge": removing.RemovalCheck(
                world.container.manifests, timed.archiver._objects, world.container.clock
            ),
        }
    )
    timed.archiver._objects._cache.clear()

    await fresh.handle(removed)

    assert 1 in await world.warm_seqs()


async def test_sweeper_removes_what_ttl_would_and_nothing_that_is_missing_then(
    aging: World, timed: Timed
) -> None:
    """Where no DynamoDB does: what is over, and what the archive has; what it lacks stays."""
    now = int(time.time())
    gone = dataclasses.replace(timed, start_us=(now - 400_000) * 1_000_000)
    old = gone.texts(5)
    fleeting = timed.text(6, expires_at=now - 1)
    later = timed.text(7, expires_at=now + 900)
    await gone.put(*old)
    await timed.put(fleeting, later)
    sweeper = ExpirySweeper(aging.container, "w1")

    await sweeper.sweep()
    first = await aging.warm_seqs()
    await timed.visit()
    await sweeper.sweep()

    assert first == [1, 2, 3, 4, 5, 7]
    assert await aging.warm_seqs() == [7]
    seen = await aging.walk_up()
    assert encoded(seen[:5]) == encoded(old)
    assert [each.deleted for each in seen[5:]] == [True, False]


async def test_sweeper_leaves_what_changed_since_it_was_read(aging: World, timed: Timed) -> None:
    """Somebody has held it, or changed it."""
    now = int(time.time())
    await timed.put(timed.text(1, expires_at=now - 1), timed.text(2, expires_at=now - 1))
    items = await timed.items()
    held = {name: value for name, value in items[1].items() if name != "ttl"}
    table = f"{aging.container.settings.warm.table_prefix}messages"
    await aging.client.call("put_item", {"TableName": table, "Item": held})

    removed = [await timed.removals.items.remove(items[seq]) for seq in (1, 2)]

    assert removed == [False, True]


async def test_worker_takes_what_came_back_above_what_is_archived(
    aging: World, timed: Timed
) -> None:
    """Although nothing of the chat is due: the note leads there."""
    sent = timed.texts(3)
    await timed.put(*sent)
    await timed.removals.handle(await timed.remove(1, 2, 3))

    lease = aging.container.hot.keys.lease(0, "archive")
    await aging.container.hot.call(
        "HSET", lease, "until_ms", 0
    )  # of a process that was killed here
    await ArchiveWorker(aging.container, 0, "w1").sweep()

    assert [each.count for each in await aging.segments()] == [3]
    assert encoded(await aging.walk_up()) == encoded(sent)


@contextlib.asynccontextmanager
async def worker(
    aging: World, server: StreamServer, **env: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of the archive worker that reads the Stream of a server."""
    cold = aging.container.settings.cold
    assert cold.secret_key is not None
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.cli",
        "worker",
        "archive",
        env={name: value for name, value in os.environ.items() if not name.startswith("CHAT_")}
        | variables_of(aging.container)
        | {
            "CHAT_COLD_ENDPOINT": str(cold.endpoint),
            "CHAT_COLD_BUCKET": cold.bucket,
            "CHAT_COLD_ACCESS_KEY": str(cold.access_key),
            "CHAT_COLD_SECRET_KEY": cold.secret_key.get_secret_value(),
            "CHAT_WARM_STREAMS_ENDPOINT": server.endpoint,
            "CHAT_ARCHIVE_REMOVAL": "ttl",
            "CHAT_ARCHIVE_RETENTION_S": "1",
            "CHAT_ARCHIVE_WAIT_S": "0",
            "workers.archive.LEASE_S": "1",
            "workers.archive.stream_reader.STREAM_POLL_S": "0.05",
            "CHAT_ARCHIVE_SWEEP_INTERVAL_S": "0.2",
            "CHAT_PERSIST_WRITE_TIMEOUT_S": "0.1",
        }
        | env,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        # Whoever archives next, here or in another test, must not have to wait for its end.
        await aging.container.hot.call("DEL", aging.container.hot.keys.lease(0, "archive"))


@pytest.mark.timeout(300)
async def test_worker_process_that_is_killed_before_it_notes_its_place_is_followed(
    aging: World, timed: Timed
) -> None:
    """Items that TTL removed too early are restored, archived, and removed once."""
    sent = timed.texts(12)
    await timed.put(*sent)
    server = StreamServer(f"{aging.container.settings.warm.table_prefix}messages")
    # Workers of other tests ended without giving it back.
    await aging.container.hot.call("DEL", aging.container.hot.keys.lease(0, "archive"))
    for item in await timed.remove(*range(1, 13)):
        last = server.remove(item)

    async def place() -> str | None:
        known = await aging.container.get(ArchiveContainer).stream_rows.list_known(time.time())
        return next((each.place for each in known.standings.values()), None)

    async def is_archived() -> bool:
        return [each.count for each in await aging.segments()] == [12]

    async def is_noted() -> bool:
        return await place() == last

    async with server.serve():
        async with worker(aging, server, CHAT_FAILPOINT="stream.before_record:kill") as dying:
            async with asyncio.timeout(90):
                assert await dying.wait() == -signal.SIGKILL
        noted = await place()
        async with worker(aging, server):
            await eventually(is_noted, 90)
            await eventually(is_archived, 60)

    assert noted is None
    assert encoded(await aging.walk_up()) == encoded(sent)
    await aging.assert_only_segments()
