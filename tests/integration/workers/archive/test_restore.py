"""Archived messages are restored to the warm tier temporarily and removed from it again."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
import sys
from typing import Any

import pytest

from chatserver.cold.segment_store import SegmentStore
from chatserver.domain.archive_segments import Restored
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.errors import Conflict, NotFound
from chatserver.protocol.frames import Message
from chatserver.service.history.cold_log import ColdLog
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.dynamo.paging import Page
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from chatserver.warm.messages.message_repository import PersistItem
from tests.integration.operations.audit.support import audited, summary
from tests.integration.operations.audit.test_live import command, environment_of
from tests.integration.workers.archive.support import Crashed, World, at_step, crash, encoded
from tests.integration.workers.support import queries_of, with_attributes
from tests.support.fake_clocks import ShiftedClock
from workers.archive.archiver import Archiver
from workers.archive.container import ArchiveContainer
from workers.archive.restorer import Bound, Restorer
from workers.archive.worker import ArchiveWorker

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

DAY_S = 86_400
COUNT = 12  # entries, in segments of 5
AHEAD = ShiftedClock(wall_s=8 * DAY_S)


def restorer_of(archive_world: World) -> Restorer:
    """Return the restorer under test."""
    container = archive_world.container
    objects = SegmentStore(archive_world.store, container.settings.archive)
    cold = ColdLog(
        manifests=container.manifests,
        segments=objects,
        items=archive_world.archivable,
        clock=container.clock,
    )
    pace = RateLimiter(None, container.clock)
    return Restorer(
        manifests=container.manifests,
        rows=container.restored,
        cold=cold,
        archivable=archive_world.archivable,
        directory=container.directory,
        pace=pace,
        clock=container.clock,
    )


def archiver_of(archive_world: World, clock: Clock) -> Archiver:
    """Return an archiver with another clock."""
    archive = archive_world.container.settings.archive.model_copy(update={"segment_entries_max": 5})
    archivable = ArchivableEntries(archive_world.client, clock)
    objects, rows = SegmentStore(archive_world.store, archive), archive_world.container.restored
    users = archive_world.container.user_positions
    return Archiver(
        manifests=archive_world.container.manifests,
        objects=objects,
        archivable=archivable,
        settings=archive,
        clock=clock,
        restored=rows,
        users=users,
    )


async def make_archived(archive_world: World) -> list[Message]:
    """Create a direct chat and archive all its messages; return them."""
    mark = secrets.token_hex(4)
    a, b = UserId(f"a-{mark}"), UserId(f"b-{mark}")
    for user in (a, b):
        await archive_world.container.directory.put_user_if_absent(user, None, 1.0)
    archive_world.chat = direct_chat_id(a, b)
    await archive_world.container.directory.create_direct(archive_world.chat, a, b, 1.0)
    sent = [archive_world.old(seq, sender=a if seq % 2 else b) for seq in range(1, COUNT + 1)]
    await archive_world.put(*sent)
    await archiver_of(archive_world, archive_world.container.clock).archive_chat(archive_world.chat)
    assert await archive_world.warm_seqs() == []
    return sent


async def restore(
    archive_world: World, first: int | None = None, last: int | None = None
) -> Restored:
    """Restore a range for a week."""
    restorer = restorer_of(archive_world)
    bounds = [None if seq is None else Bound(seq, is_time=False) for seq in (first, last)]
    until = int(archive_world.container.clock.time()) + 7 * DAY_S
    wanted = await restorer.find_range(archive_world.chat, bounds[0], bounds[1], until)
    held = await restorer.begin(archive_world.chat, wanted)
    await restorer.restore(archive_world.chat, held, lambda _: None)
    return held


async def tiers_of(archive_world: World) -> dict[str, list[int]]:
    """Return the seqs of the entries by the tier from which they are read."""
    found: dict[str, list[int]] = {"warm": [], "cold": []}
    reader = archive_world.reader()
    for seq in range(1, COUNT + 1):
        run = await reader.read_run(archive_world.chat, seq + 1, None, 1, None)
        found[run.tier] += [each.seq for each in run.messages]
    return found


def edit_of(archive_world: World, target: int, body: str, **more: Any) -> Message:
    """Create the entry that edits a message."""
    return archive_world.old(
        COUNT + target, **{"kind": "edit", "body": body, "target": target, **more}
    )


async def test_restored_range_is_readable_by_history_and_all_queries(archive_world: World) -> None:
    """Messages are unchanged, and the archive worker keeps them until the range expires."""
    sent = await make_archived(archive_world)
    a, b = sent[0].sender, sent[1].sender

    await restore(archive_world, 4, 9)
    await archiver_of(archive_world, archive_world.container.clock).archive_chat(archive_world.chat)
    await archive_world.container.get(ArchiveContainer).archiver.merge_changes(archive_world.chat)
    is_over = await archive_world.container.get(ArchiveContainer).archiver.end_restored(
        archive_world.chat
    )

    queries = queries_of(archive_world.container)
    pages: list[Page[Message]] = [
        await queries.list_chat(archive_world.chat, limit=50, newest_first=False),
        await queries.list_active(archive_world.chat, limit=50, newest_first=False),
        await queries.list_sent(a, limit=50, newest_first=False),
        await queries.list_received(a, limit=50, newest_first=False),
        await queries.list_received(b, sent[4].ts, sent[6].ts, limit=50, newest_first=False),
    ]
    assert not is_over
    assert await tiers_of(archive_world) == {"warm": [*range(4, 10)], "cold": [1, 2, 3, 10, 11, 12]}
    assert encoded(await archive_world.read_backward(5, archive_world.reader())) == encoded(sent)
    assert [[each.seq for each in page.items] for page in pages] == [
        [4, 5, 6, 7, 8, 9],
        [4, 5, 6, 7, 8, 9],
        [5, 7, 9],
        [4, 6, 8],
        [5, 7],
    ]
    assert summary(await audited(archive_world)) == []


async def test_restored_range_is_removed_when_it_expires(archive_world: World) -> None:
    """Items and the record of the range are removed, except items of another range."""
    sent = await make_archived(archive_world)
    await restore(archive_world, 2, 7)
    later = archiver_of(archive_world, AHEAD)
    longer = dataclasses.replace(
        await restorer_of(archive_world).find_range(
            archive_world.chat, Bound(6, is_time=False), Bound(8, is_time=False), 0
        ),
        until=int(AHEAD.time()) + DAY_S,
    )
    held = await restorer_of(archive_world).begin(archive_world.chat, longer)
    await restorer_of(archive_world).restore(archive_world.chat, held, lambda _: None)

    first = await later.end_restored(archive_world.chat)
    kept = await archive_world.warm_seqs()
    due = [each.chat for each in await archive_world.container.restored.list_due()]

    assert (first, kept) == (False, [6, 7, 8])
    assert archive_world.chat in due
    assert encoded(await archive_world.read_forward(5)) == encoded(sent)
    assert summary(await audited(archive_world)) == []


async def test_archive_worker_removes_expired_ranges(archive_world: World) -> None:
    """Archivable entries are not required, and a chat with another range stays recorded."""
    await make_archived(archive_world)
    await restore(archive_world, 2, 7)
    container = archive_world.container
    still = container.settings.model_copy(
        update={"archive": container.settings.archive.model_copy(update={"retention_s": 0})}
    )

    async def sweep(clock: Clock) -> tuple[list[int], bool]:
        archiver = archiver_of(archive_world, clock)
        mine = with_attributes(container, settings=still, clock=clock)
        vars(mine.get(ArchiveContainer))["archiver"] = archiver
        await ArchiveWorker(mine, 0, "w1").sweep()
        due = [each.chat for each in await container.restored.list_due()]
        return await archive_world.warm_seqs(), archive_world.chat in due

    assert await sweep(container.clock) == ([2, 3, 4, 5, 6, 7], True)
    assert await sweep(AHEAD) == ([], False)
    assert (await container.manifests.get_top(archive_world.chat)).restored == ()


async def test_changes_of_restored_messages_are_written_to_their_segment(
    archive_world: World,
) -> None:
    """The changes are readable at once. The next run rewrites the segment and keeps the items."""
    sent = await make_archived(archive_world)
    changes = archive_world.container.message_changes
    await changes.apply(archive_world.chat, sent[4].ts, [edit_of(archive_world, 5, "before that")])
    for late in await archive_world.container.manifests.list_late():
        await archive_world.container.manifests.delete_late(late)
    await restore(archive_world)

    await changes.apply(archive_world.chat, sent[2].ts, [edit_of(archive_world, 3, "new")])
    await changes.apply(
        archive_world.chat, sent[3].ts, [edit_of(archive_world, 4, "", kind="delete")]
    )
    await changes.apply(archive_world.chat, sent[2].ts, [edit_of(archive_world, 9, "newer")])
    seen = await archive_world.read_backward(5)
    noted = [each.chat for each in await archive_world.container.manifests.list_late()]
    await archive_world.container.get(ArchiveContainer).archiver.merge_changes(archive_world.chat)

    assert [seen[n].body for n in (2, 3, 4)] == ["newer", "", "before that"]
    assert archive_world.chat in noted
    stored = b"".join((await archive_world.objects()).values())
    assert b"text 4 " not in stored
    assert b"newer" in stored
    assert await archive_world.warm_seqs() == [*range(1, COUNT + 1)]
    assert summary(await audited(archive_world)) == []
    assert await archiver_of(archive_world, AHEAD).end_restored(archive_world.chat)
    assert encoded(await archive_world.read_forward(5)) == encoded(seen)
    assert await archive_world.warm_seqs() == []


@pytest.mark.parametrize(
    "step", ["restore.before_removal", "archive.after_merge", "restore.after_removal"]
)
async def test_removal_of_a_range_that_crashed_is_completed_by_the_next_run(
    archive_world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Meanwhile the range cannot be extended. After its removal it can be restored again."""
    sent = await make_archived(archive_world)
    await restore(archive_world, 1, 6)
    later = archiver_of(archive_world, AHEAD)

    with at_step(monkeypatch, step, crash), pytest.raises(Crashed):
        await later.end_restored(archive_world.chat)
    with pytest.raises(Conflict):
        await restore(archive_world, 1, 6)
    between = await archive_world.read_forward(5)
    is_over = await later.end_restored(archive_world.chat)
    await restore(archive_world, 1, 6)

    assert is_over
    assert encoded(between) == encoded(sent)
    assert await archive_world.warm_seqs() == [1, 2, 3, 4, 5, 6]


async def test_delayed_archiver_removes_no_items_of_a_restored_range(archive_world: World) -> None:
    """A restored item has the time until which it must stay."""
    await make_archived(archive_world)
    await restore(archive_world, 1, 6)
    entries = await archive_world.archivable.list_between(archive_world.chat, 0, 2**53 - 1)

    left = await archive_world.archivable.remove(entries, 4)

    assert left == 6


async def test_range_can_be_extended_but_not_shortened(archive_world: World) -> None:
    """The extension restores no entry again."""
    await make_archived(archive_world)
    held = await restore(archive_world, 2, 5)
    restorer, rows = restorer_of(archive_world), archive_world.container.restored

    shorter = await restorer.begin(
        archive_world.chat, dataclasses.replace(held, until=held.until - 5)
    )
    longer = await restorer.begin(
        archive_world.chat, dataclasses.replace(held, until=held.until + 5)
    )
    over = await rows.mark_ending(archive_world.chat, held)  # with the outdated record

    assert (shorter.until, longer.until) == (held.until, held.until + 5)
    assert (shorter.done, longer.done, over) == (5, 5, False)
    assert (await restorer.estimate(archive_world.chat, longer)).entries == 0


async def test_range_can_be_specified_by_times(archive_world: World) -> None:
    """Both ends are included, and an unarchived range is an error."""
    sent = await make_archived(archive_world)
    restorer = restorer_of(archive_world)

    async def found(start: int | None, end: int | None) -> tuple[int, int]:
        bounds = [None if ts is None else Bound(ts, is_time=True) for ts in (start, end)]
        held = await restorer.find_range(archive_world.chat, bounds[0], bounds[1], 1)
        assert (held.first_ts, held.last_ts) == (sent[held.first - 1].ts, sent[held.last - 1].ts)
        return held.first, held.last

    assert await found(None, None) == (1, COUNT)
    assert await found(sent[3].ts, sent[7].ts) == (4, 8)
    assert await found(sent[3].ts + 1, sent[7].ts - 1) == (5, 7)
    assert await found(0, sent[0].ts) == (1, 1)
    assert await found(sent[11].ts, 2**52) == (12, 12)
    for nothing in ((sent[11].ts + 1, None), (None, sent[0].ts - 1), (sent[5].ts, sent[2].ts)):
        with pytest.raises(NotFound):
            await found(*nothing)


async def test_change_archived_during_a_restore_is_not_undone(
    archive_world: World,
) -> None:
    """A restore does not write an outdated item with deleted text."""
    sent = await make_archived(archive_world)
    restorer = restorer_of(archive_world)
    restore, waiting = restorer._archivable.restore, True

    async def delete_first(item: PersistItem, until: int) -> float:
        nonlocal waiting
        if waiting and item.message.seq == 3:
            waiting = False
            entry = edit_of(archive_world, 3, "", kind="delete")
            await archive_world.container.message_changes.apply(
                archive_world.chat, sent[2].ts, [entry]
            )
            # By an archiver that read the chat's records before the range was created.
            late = await archive_world.archivable.list_between(
                archive_world.chat, sent[2].ts, sent[2].ts
            )
            row = (await archive_world.container.manifests.list_covering(archive_world.chat, 3, 3))[
                0
            ]
            top = dataclasses.replace(
                await archive_world.container.manifests.get_top(archive_world.chat), restored=()
            )
            await archive_world.container.get(ArchiveContainer).archiver._merge_into(row, late, top)
            assert 3 not in await archive_world.warm_seqs()
        return await restore(item, until)

    restorer._archivable.restore = delete_first  # type: ignore[method-assign]  # only of this instance
    until = int(archive_world.container.clock.time()) + DAY_S
    held = await restorer.begin(
        archive_world.chat, await restorer.find_range(archive_world.chat, None, None, until)
    )
    await restorer.restore(archive_world.chat, held, lambda _: None)

    items = await archive_world.archivable.list_between(archive_world.chat, 0, 2**53 - 1)
    assert [(each.seq, each.deleted) for each in items][2] == (3, True)
    assert len(items) == COUNT


@pytest.mark.timeout(300)
async def test_killed_restore_command_continues_at_its_checkpoint(archive_world: World) -> None:
    """After kills at two steps, all entries of the range are restored once."""
    sent = await make_archived(archive_world)
    plan = await command(archive_world, "restore", archive_world.chat, "--plan")
    planned = await archive_world.warm_seqs()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAT_")}
    codes = []
    for step in ("restore.before_record:kill", "restore.after_record:kill", ""):
        more = {"CHAT_FAILPOINT": step} if step else {}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "chatserver.cli.main", "restore", archive_world.chat,
            "--from", "3",
            env=kept | environment_of(archive_world) | more,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(90):
            output, _ = await process.communicate()
        codes.append(process.returncode)
        assert encoded(await archive_world.read_forward(5)) == encoded(sent), output

    assert (plan[0], planned) == (0, [])
    assert f"{COUNT} entries to restore" in plan[1] and "48 write units now" in plan[1]
    assert codes == [-9, -9, 0]
    assert await archive_world.warm_seqs() == [*range(3, COUNT + 1)]
    assert await tiers_of(archive_world) == {"warm": [*range(3, COUNT + 1)], "cold": [1, 2]}
    assert summary(await audited(archive_world)) == []


async def test_restore_command_rejects_invalid_arguments(archive_world: World) -> None:
    """The exit code is 2 for invalid arguments and 1 for an unarchived range."""
    for arguments, code, message in (
        (("c1", "--from", "soon"), 2, "--from: must be a seq, or a time"),
        (("c1", "--for", "ever"), 2, "--for: must be hours or days"),
        (("c#1",), 2, "CHAT: must be 1 to 64 characters"),
        ((archive_world.chat,), 1, "this range is not archived"),
    ):
        assert (await command(archive_world, "restore", *arguments))[0] == code, message
