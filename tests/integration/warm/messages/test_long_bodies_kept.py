"""Long bodies and crashes: no orphaned objects and no dangling references."""

from __future__ import annotations

import asyncio
import signal

import pytest

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.write_sharding import Layout, Layouts, ShardingPeriod
from chatserver.errors import Unavailable
from chatserver.warm.messages.chat_partition_reads import add_partition_key
from chatserver.warm.messages.long_bodies import LongBodies, get_object_key
from chatserver.warm.messages.messages import PersistItem, encode_item
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.messages.long_bodies_support import INLINE_MAX, LONG, LongBodyWorld
from tests.integration.workers.archive.support import Crashed, encoded
from tests.integration.workers.persist.test_message_changes import commit_change
from tests.integration.workers.support import (
    Gateway,
    is_drained,
    make_direct,
    persister_of,
    running,
    with_attributes,
    worker_process,
)
from tests.support.servers.processes import eventually
from workers.archive.long_body_sweep import LongBodySweeper

pytest_plugins = ["tests.integration.warm.messages.long_bodies_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


# crashes


async def test_crash_before_the_item_leaves_an_object_that_the_retry_uses(
    world: LongBodyWorld, crash_at: list[str]
) -> None:
    """The object key depends only on the message, so the retry creates no second object."""
    sent = world.recent(1, LONG)
    crash_at.append("bodies.after_objects")
    with pytest.raises(Crashed):
        await world.put(sent)
    assert await world.items() == [] and len(await world.keys()) == 1

    await world.put(sent)

    await world.assert_consistent()
    assert await world.sweep() == 0


async def test_crash_before_the_object_is_removed_leaves_an_orphan_that_is_swept(
    world: LongBodyWorld, crash_at: list[str]
) -> None:
    """After an edit and a deletion the items are right, and the sweep removes the edit's orphan."""
    sent = [world.recent(seq, LONG) for seq in (1, 2)]
    await world.put(*sent)
    for target, change in ((1, world.entry(3, "edit", 1, "new")), (2, world.entry(4, "delete", 2))):
        crash_at.append("bodies.before_drop")
        with pytest.raises(Crashed):
            await world.changes().apply(world.chat, sent[target - 1].ts, [change])
        await world.changes().apply(world.chat, sent[target - 1].ts, [change])  # this is the retry
    kept = world.recent(5, LONG)
    await world.put(kept)
    # The retry of the deletion removed its object; the retry of the edit did not.
    assert len(await world.keys()) == 2

    too_young = await world.sweep(settle_s=60)
    swept = await world.sweep()

    assert (too_young, swept) == (0, 1)
    await world.assert_consistent()
    assert (await world.container.messages.list_after(world.chat, 2, 10)) == []
    assert [m.body for m in await world.container.messages.list_after(world.chat, 4, 1)] == [LONG]


async def test_sweep_keeps_objects_of_unpersisted_entries(
    world: LongBodyWorld,
) -> None:
    """An object without an item is not an orphan while its entry is in the backlog."""
    team = await make_direct(world.container, UserId("x-" + world.chat), UserId("y-" + world.chat))
    world.chat = ChatId(team.chat)
    sender = UserId(next(iter(team.users)))
    gateway = Gateway(world.container.hot)
    await gateway.send(team, LONG, sender=sender)
    env = {
        "CHAT_WARM_BODY_INLINE_BYTES_MAX": str(INLINE_MAX),
        "chatserver.warm.messages.long_bodies.BODY_PUT_TIMEOUT_S": "20",
        "CHAT_FAILPOINT": "bodies.after_objects:kill",
    }
    async with worker_process(world.container, "persist", **env) as worker:
        assert await asyncio.wait_for(worker.wait(), 90) == -signal.SIGKILL
    assert await world.items() == [] and len(await world.keys()) == 1

    swept = await world.sweep(settle_s=0)
    lease = world.container.hot.keys.lease(0, "persist")
    await world.container.hot.call("HSET", lease, "until_ms", 0)
    async with running(persister_of(world.container).run()):
        await eventually(lambda: is_drained(world.container))
        long_edit = LONG + "edited"
        await commit_change(world.container, team.chat, sender, "edit", 1, long_edit)
        await eventually(lambda: is_drained(world.container))

    assert swept == 0
    await world.assert_consistent()
    assert (await world.container.messages.list_after(world.chat, 0, 1))[0].body == long_edit


async def test_object_of_an_item_that_ttl_deleted_is_swept(world: LongBodyWorld) -> None:
    """TTL deletes only the item, so the object becomes an orphan."""
    sent = [world.recent(1, LONG, expires_at=2_000_000_000), world.recent(2, LONG)]
    await world.put(*sent)
    assert await world.sweep() == 0
    key = {"chatid": {"S": world.chat}, "ts": {"N": str(sent[0].ts)}}
    table = MESSAGES.name_in(world.container.settings.warm)
    await world.client.call("delete_item", {"TableName": table, "Key": key})

    assert await world.sweep() == 1
    await world.assert_consistent()


# the archive


async def test_archiving_stores_the_text_and_removes_the_object(
    world: LongBodyWorld, crash_at: list[str]
) -> None:
    """Segments contain long texts. A crash before the removal leaves objects that are swept."""
    sent = [world.old(seq, body=f"{seq} {LONG}" if seq % 2 else "short") for seq in range(1, 31)]
    await world.put(*sent)
    crash_at.append("bodies.before_drop")
    with pytest.raises(Crashed):
        await world.archive_old()

    async def is_moved() -> bool:  # other removals of the crashed run may still be in flight
        await world.archive_old()
        return await world.warm_seqs() == []

    await eventually(is_moved)
    assert await world.warm_seqs() == []
    assert encoded(await world.read_backward()) == encoded(sent)
    assert b"".join((await world.objects()).values()).count(LONG[:-1].encode()) == 15
    await world.sweep()
    assert await world.keys() == set()


async def test_long_edit_of_an_archived_message_is_archived_by_the_next_run(
    world: LongBodyWorld,
) -> None:
    """Until then its item and object override the segment. Then both are removed."""
    sent = [world.old(seq) for seq in range(1, 11)]
    await world.put(*sent)
    await world.archive_old()

    edit = world.old(11, kind="edit", target=3, body=LONG)
    await world.changes().apply(world.chat, sent[2].ts, [edit])

    assert (await world.read_forward())[2].body == LONG
    assert len(await world.keys()) == 1
    await world.archive_old()
    assert await world.keys() == set()
    assert (await world.read_forward())[2].body == LONG


async def test_archiving_stops_at_a_lost_body(world: LongBodyWorld) -> None:
    """A missing text is not archived as an empty text, and no item is removed."""
    await world.put(*(world.old(seq, body=LONG) for seq in range(1, 4)))
    key = sorted(await world.keys())[1]
    await world.container.body_files.remove(key)

    with pytest.raises(Unavailable, match="message 2"):
        await world.archive_old()

    assert len(await world.items()) == 3


# older releases


async def test_item_changed_by_an_older_release_has_the_text_that_release_wrote(
    world: LongBodyWorld,
) -> None:
    """It keeps the reference, which it does not know, in the item; the reference is ignored."""
    sent = [world.recent(1, LONG), world.recent(2, LONG)]
    await world.put(*sent)
    table = MESSAGES.name_in(world.container.settings.warm)
    for each, update, values in (
        (sent[0], "SET #b = :b, rev = :r, edited_seq = :r, edited_ts = :r", {":b": {"S": "new"}}),
        (sent[1], "SET #b = :b, rev = :r, deleted = :d", {":b": {"S": ""}, ":d": {"BOOL": True}}),
    ):
        request = {
            "TableName": table,
            "Key": {"chatid": {"S": world.chat}, "ts": {"N": str(each.ts)}},
            "UpdateExpression": update,
            "ExpressionAttributeNames": {"#b": "body"},
            "ExpressionAttributeValues": {**values, ":r": {"N": "9"}},
        }
        await world.client.call("update_item", request)

    found = await world.container.messages.list_after(world.chat, 0, 10)
    assert [(m.body, m.deleted) for m in found] == [("new", False), ("", True)]
    assert await world.sweep() == 2
    await world.assert_consistent()


# legal holds


async def test_long_texts_of_a_chat_under_legal_hold_are_copied(world: LongBodyWorld) -> None:
    """An edited or deleted message is copied first, with its long body."""
    longest = '"\n' * 131_072  # twice as long when encoded as JSON
    sent = [world.recent(1, LONG), world.recent(2, longest), world.recent(3, LONG + "3")]
    await world.put(*sent)
    holds = world.container.holds
    await holds.put(world.chat, "because", "host", 1_800_000_000.0)

    await world.changes().apply(world.chat, sent[0].ts, [world.entry(4, "edit", 1, "new")])
    await world.changes().apply(world.chat, sent[1].ts, [world.entry(5, "delete", 2)])
    await world.changes().apply(world.chat, sent[2].ts, [world.entry(6, "reaction", 3, "x")])

    copies = (await holds.list_copies(world.chat, 10)).items
    assert [(copy.seq, copy.body) for copy in copies] == [(1, LONG), (2, longest)]
    await world.assert_consistent()
    assert len(await world.keys()) == 1


# write sharding and TTL


async def test_sweep_finds_items_of_a_sharded_chat(world: LongBodyWorld) -> None:
    """The object key has chat and ts, and the layout determines the shard."""
    first = world.recent(1, LONG)
    layout = Layouts({world.chat: Layout((ShardingPeriod(first.ts, 8),))})
    (short,) = await world.container.long_bodies.offload([encode_item(PersistItem(first, None))])
    placed = add_partition_key(layout, short)
    assert get_object_key(placed) == get_object_key(short) == next(iter(await world.keys()))
    table = MESSAGES.name_in(world.container.settings.warm)
    await world.client.call("put_item", {"TableName": table, "Item": placed})
    bodies = LongBodies(
        world.client,
        world.container.settings.warm,
        world.container.body_files,
        shards=FixedShardList(layout),
    )

    orphans = await bodies.find_orphans(sorted(await world.keys()))

    assert orphans == []


class FixedShardList:
    """A shard list with constant layouts."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts

    async def get_for_keys(self, upto_ts: int) -> Layouts:
        return self._layouts


@pytest.mark.parametrize(("retention_s", "is_kept"), [(60, True), (10**9, False), (0, False)])
async def test_object_of_an_item_deleted_too_early_by_ttl_is_kept(
    world: LongBodyWorld, retention_s: int, is_kept: bool
) -> None:
    """The reader of the Stream restores such an item, which then refers to the object again."""
    await world.put(world.recent(1, LONG))
    (item,) = await world.items()
    key = {name: item[name] for name in MESSAGES.key.names}
    table = MESSAGES.name_in(world.container.settings.warm)
    await world.client.call("delete_item", {"TableName": table, "Key": key})
    archive = world.container.settings.archive.model_copy(
        update={"removal": "ttl", "retention_s": retention_s}
    )
    settings = world.container.settings.model_copy(update={"archive": archive})
    sweeper = LongBodySweeper(with_attributes(world.container, settings=settings), "test", -60.0)

    await sweeper.sweep(f"bodies/{world.chat}/")

    assert len(await world.keys()) == is_kept
