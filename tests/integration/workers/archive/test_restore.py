"""Archived messages are restored to the warm tier temporarily and removed from it again."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
import sys
from typing import Any

import pytest

from chatserver.cold.segment_objects import SegmentObjects
from chatserver.domain.archive_segments import Restored
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.errors import Conflict, NotFound
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.paging import QueryPage
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from chatserver.warm.messages.messages import PersistItem
from tests.integration.operations.audit.support import audited, summary
from tests.integration.operations.audit.test_live import command, environment_of
from tests.integration.workers.archive.support import Crashed, World, at_step, crash, encoded
from tests.integration.workers.support import queries_of, with_attributes
from tests.support.fake_clocks import ShiftedClock
from workers.archive.container import ArchiveContainer
from workers.archive.restorer import Bound, Restorer
from workers.archive.worker import ArchiveWorker

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

DAY_S = 86_400
COUNT = 12  # entries
SEGMENTS = {"segment_entries_max": 5}
AHEAD = ShiftedClock(wall_s=8 * DAY_S)


def restorer_of(world: World) -> Restorer:
    """Return the restorer under test."""
    container = world.container
    return Restorer(
        manifests=container.manifests,
        rows=container.restored,
        cold=world.cold_log(SegmentObjects(world.store, container.settings.archive)),
        archivable=world.archivable,
        directory=container.directory,
        pace=RateLimiter(None, container.clock),
        clock=container.clock,
    )


async def make_archived(world: World) -> list[Message]:
    """Create a direct chat and archive all its messages; return them."""
    mark = secrets.token_hex(4)
    a, b = UserId(f"a-{mark}"), UserId(f"b-{mark}")
    for user in (a, b):
        await world.container.directory.put_user_if_absent(user, None, 1.0)
    world.chat = direct_chat_id(a, b)
    await world.container.directory.create_direct(world.chat, a, b, 1.0)
    sent = [world.old(seq, sender=a if seq % 2 else b) for seq in range(1, COUNT + 1)]
    await world.put(*sent)
    await world.archiver(**SEGMENTS).archive_chat(world.chat)
    assert await world.warm_seqs() == []
    return sent


async def restore(world: World, first: int | None = None, last: int | None = None) -> Restored:
    """Restore a range for a week."""
    restorer = restorer_of(world)
    bounds = [None if seq is None else Bound(seq, is_time=False) for seq in (first, last)]
    until = int(world.container.clock.time()) + 7 * DAY_S
    wanted = await restorer.find_range(world.chat, bounds[0], bounds[1], until)
    held = await restorer.begin(world.chat, wanted)
    await restorer.restore(world.chat, held, lambda _: None)
    return held


async def tiers_of(world: World) -> dict[str, list[int]]:
    """Return the seqs of the entries by the tier from which they are read."""
    found: dict[str, list[int]] = {"warm": [], "cold": []}
    reader = world.reader()
    for seq in range(1, COUNT + 1):
        run = await reader.read_run(world.chat, seq + 1, None, 1, None)
        found[run.tier] += [each.seq for each in run.messages]
    return found


def edit_of(world: World, target: int, body: str, **more: Any) -> Message:
    """Create the entry that edits a message."""
    return world.old(COUNT + target, **{"kind": "edit", "body": body, "target": target, **more})


async def test_restored_range_is_readable_by_history_and_all_queries(world: World) -> None:
    """Messages are unchanged, and the archive worker keeps them until the range expires."""
    sent = await make_archived(world)
    a, b = sent[0].sender, sent[1].sender

    await restore(world, 4, 9)
    await world.archiver(**SEGMENTS).archive_chat(world.chat)
    await world.merge_changes()
    is_over = await world.container.get(ArchiveContainer).archiver.end_restored(world.chat)

    queries = queries_of(world.container)
    pages: list[QueryPage[Message]] = [
        await queries.list_chat(world.chat, limit=50, newest_first=False),
        await queries.list_active(world.chat, limit=50, newest_first=False),
        await queries.list_sent(a, limit=50, newest_first=False),
        await queries.list_received(a, limit=50, newest_first=False),
        await queries.list_received(b, sent[4].ts, sent[6].ts, limit=50, newest_first=False),
    ]
    assert not is_over
    assert await tiers_of(world) == {"warm": [*range(4, 10)], "cold": [1, 2, 3, 10, 11, 12]}
    assert encoded(await world.read_backward(5, world.reader())) == encoded(sent)
    assert [[each.seq for each in page.items] for page in pages] == [
        [4, 5, 6, 7, 8, 9],
        [4, 5, 6, 7, 8, 9],
        [5, 7, 9],
        [4, 6, 8],
        [5, 7],
    ]
    assert summary(await audited(world)) == []


async def test_restored_range_is_removed_when_it_expires(world: World) -> None:
    """Items and the record of the range are removed, except items of another range."""
    sent = await make_archived(world)
    await restore(world, 2, 7)
    later = world.archiver(clock=AHEAD, **SEGMENTS)
    longer = dataclasses.replace(
        await restorer_of(world).find_range(
            world.chat, Bound(6, is_time=False), Bound(8, is_time=False), 0
        ),
        until=int(AHEAD.time()) + DAY_S,
    )
    held = await restorer_of(world).begin(world.chat, longer)
    await restorer_of(world).restore(world.chat, held, lambda _: None)

    first = await later.end_restored(world.chat)
    kept = await world.warm_seqs()
    due = [each.chat for each in await world.container.restored.due.list_all()]

    assert (first, kept) == (False, [6, 7, 8])
    assert world.chat in due
    assert encoded(await world.read_forward(5)) == encoded(sent)
    assert summary(await audited(world)) == []


async def test_archive_worker_removes_expired_ranges(world: World) -> None:
    """Archivable entries are not required, and a chat with another range stays recorded."""
    await make_archived(world)
    await restore(world, 2, 7)
    container = world.container
    still = container.settings.model_copy(
        update={"archive": container.settings.archive.model_copy(update={"retention_s": 0})}
    )

    async def sweep(clock: Clock) -> tuple[list[int], bool]:
        archiver = world.archiver(clock=clock, **SEGMENTS)
        mine = with_attributes(container, settings=still, clock=clock)
        vars(mine.get(ArchiveContainer))["archiver"] = archiver
        await ArchiveWorker(mine, 0, "w1").sweep()
        due = [each.chat for each in await container.restored.due.list_all()]
        return await world.warm_seqs(), world.chat in due

    assert await sweep(container.clock) == ([2, 3, 4, 5, 6, 7], True)
    assert await sweep(AHEAD) == ([], False)
    assert (await container.manifests.get_top(world.chat)).restored == ()


async def test_changes_of_restored_messages_are_written_to_their_segment(
    world: World,
) -> None:
    """The changes are readable at once. The next run rewrites the segment and keeps the items."""
    sent = await make_archived(world)
    await world.apply(sent[4], edit_of(world, 5, "before that"))
    for late in await world.container.manifests.late.list_all():
        await world.container.manifests.late.delete(late)
    await restore(world)

    await world.apply(sent[2], edit_of(world, 3, "new"))
    await world.apply(sent[3], edit_of(world, 4, "", kind="delete"))
    await world.apply(sent[2], edit_of(world, 9, "newer"))
    seen = await world.read_backward(5)
    noted = [each.chat for each in await world.container.manifests.late.list_all()]
    await world.merge_changes()

    assert [seen[n].body for n in (2, 3, 4)] == ["newer", "", "before that"]
    assert world.chat in noted
    stored = await world.archived()
    assert b"text 4 " not in stored
    assert b"newer" in stored
    assert await world.warm_seqs() == [*range(1, COUNT + 1)]
    assert summary(await audited(world)) == []
    assert await world.archiver(clock=AHEAD, **SEGMENTS).end_restored(world.chat)
    assert encoded(await world.read_forward(5)) == encoded(seen)
    assert await world.warm_seqs() == []


@pytest.mark.parametrize(
    "step", ["restore.before_removal", "archive.after_merge", "restore.after_removal"]
)
async def test_removal_of_a_range_that_crashed_is_completed_by_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Meanwhile the range cannot be extended. After its removal it can be restored again."""
    sent = await make_archived(world)
    await restore(world, 1, 6)
    later = world.archiver(clock=AHEAD, **SEGMENTS)

    with at_step(monkeypatch, step, crash), pytest.raises(Crashed):
        await later.end_restored(world.chat)
    with pytest.raises(Conflict):
        await restore(world, 1, 6)
    between = await world.read_forward(5)
    is_over = await later.end_restored(world.chat)
    await restore(world, 1, 6)

    assert is_over
    assert encoded(between) == encoded(sent)
    assert await world.warm_seqs() == [1, 2, 3, 4, 5, 6]


async def test_delayed_archiver_removes_no_items_of_a_restored_range(world: World) -> None:
    """A restored item has the time until which it must stay."""
    await make_archived(world)
    await restore(world, 1, 6)
    entries = await world.archivable.list_between(world.chat, 0, 2**53 - 1)

    left = await world.archivable.remove(entries, 4)

    assert left == 6


async def test_range_can_be_extended_but_not_shortened(world: World) -> None:
    """The extension restores no entry again."""
    await make_archived(world)
    held = await restore(world, 2, 5)
    restorer, rows = restorer_of(world), world.container.restored

    shorter = await restorer.begin(world.chat, dataclasses.replace(held, until=held.until - 5))
    longer = await restorer.begin(world.chat, dataclasses.replace(held, until=held.until + 5))
    over = await rows.mark_ending(world.chat, held)  # with the outdated record

    assert (shorter.until, longer.until) == (held.until, held.until + 5)
    assert (shorter.done, longer.done, over) == (5, 5, False)
    assert (await restorer.estimate(world.chat, longer)).entries == 0


async def test_range_can_be_specified_by_times(world: World) -> None:
    """Both ends are included, and an unarchived range is an error."""
    sent = await make_archived(world)
    restorer = restorer_of(world)

    async def found(start: int | None, end: int | None) -> tuple[int, int]:
        bounds = [None if ts is None else Bound(ts, is_time=True) for ts in (start, end)]
        held = await restorer.find_range(world.chat, bounds[0], bounds[1], 1)
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
    world: World,
) -> None:
    """A restore does not write an outdated item with deleted text."""
    sent = await make_archived(world)
    restorer = restorer_of(world)
    restore, waiting = restorer._archivable.restore, True

    async def delete_first(item: PersistItem, until: int) -> float:
        nonlocal waiting
        if waiting and item.message.seq == 3:
            waiting = False
            entry = edit_of(world, 3, "", kind="delete")
            await world.apply(sent[2], entry)
            # By an archiver that read the chat's records before the range was created.
            late = await world.archivable.list_between(world.chat, sent[2].ts, sent[2].ts)
            row = (await world.container.manifests.list_covering(world.chat, 3, 3))[0]
            top = dataclasses.replace(
                await world.container.manifests.get_top(world.chat), restored=()
            )
            rewriter = world.container.get(ArchiveContainer).archiver._rewriter
            await rewriter._merge_into(row, late, top)
            assert 3 not in await world.warm_seqs()
        return await restore(item, until)

    restorer._archivable.restore = delete_first  # type: ignore[method-assign]  # only of this instance
    until = int(world.container.clock.time()) + DAY_S
    held = await restorer.begin(
        world.chat, await restorer.find_range(world.chat, None, None, until)
    )
    await restorer.restore(world.chat, held, lambda _: None)

    items = await world.archivable.list_between(world.chat, 0, 2**53 - 1)
    assert [(each.seq, each.deleted) for each in items][2] == (3, True)
    assert len(items) == COUNT


@pytest.mark.timeout(300)
async def test_killed_restore_command_continues_at_its_checkpoint(world: World) -> None:
    """After kills at two steps, all entries of the range are restored once."""
    sent = await make_archived(world)
    plan = await command(world, "restore", world.chat, "--plan")
    planned = await world.warm_seqs()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAT_")}
    codes = []
    for step in ("restore.before_record:kill", "restore.after_record:kill", ""):
        more = {"CHAT_FAILPOINT": step} if step else {}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "chatserver.cli.main", "restore", world.chat,
            "--from", "3",
            env=kept | environment_of(world) | more,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(90):
            output, _ = await process.communicate()
        codes.append(process.returncode)
        assert encoded(await world.read_forward(5)) == encoded(sent), output

    assert (plan[0], planned) == (0, [])
    assert f"{COUNT} entries to restore" in plan[1] and "48 write units now" in plan[1]
    assert codes == [-9, -9, 0]
    assert await world.warm_seqs() == [*range(3, COUNT + 1)]
    assert await tiers_of(world) == {"warm": [*range(3, COUNT + 1)], "cold": [1, 2]}
    assert summary(await audited(world)) == []


async def test_restore_command_rejects_invalid_arguments(world: World) -> None:
    """The exit code is 2 for invalid arguments and 1 for an unarchived range."""
    for arguments, code, message in (
        (("c1", "--from", "soon"), 2, "--from: must be a seq, or a time"),
        (("c1", "--for", "ever"), 2, "--for: must be hours or days"),
        (("c#1",), 2, "CHAT: must be 1 to 64 characters"),
        ((world.chat,), 1, "this range is not archived"),
    ):
        assert (await command(world, "restore", *arguments))[0] == code, message
