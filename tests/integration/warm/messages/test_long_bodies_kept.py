"""Long bodies with any crash: no object is left, and no reference is dangling."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.write_sharding import Layout, Layouts, ShardingPeriod
from chatserver.errors import Unavailable
from chatserver.warm.messages.chat_rows import place_item
from chatserver.warm.messages.long_bodies import LongBodies, object_of
from chatserver.warm.messages.store import PersistItem, encode_item
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.messages.long_bodies_support import INLINE_MAX, LONG, Shelf
from tests.integration.workers.archive.support import Died, encoded
from tests.integration.workers.persist.test_message_changes import amend
from tests.integration.workers.support import (
    Gateway,
    is_drained,
    make_direct,
    persister_of,
    running,
    variables_of,
    with_attributes,
)
from tests.support.servers.processes import eventually
from workers.archive.body_sweep import BodySweeper

pytest_plugins = ["tests.integration.warm.messages.long_bodies_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


# deaths


async def test_death_before_the_item_leaves_an_object_that_the_next_write_takes(
    shelf: Shelf, dies: list[str]
) -> None:
    """The same message makes the same object: nothing is left, nothing is there twice."""
    sent = shelf.recent(1, LONG)
    dies.append("bodies.after_objects")
    with pytest.raises(Died):
        await shelf.put(sent)
    assert await shelf.items() == [] and len(await shelf.keys()) == 1

    await shelf.put(sent)

    await shelf.assert_tidy()
    assert await shelf.sweep() == 0


async def test_death_before_the_object_is_removed_leaves_one_that_is_swept(
    shelf: Shelf, dies: list[str]
) -> None:
    """By an edit, a deletion, and by the archive: the item is right, and the object goes later."""
    sent = [shelf.recent(seq, LONG) for seq in (1, 2)]
    await shelf.put(*sent)
    for target, change in ((1, shelf.entry(3, "edit", 1, "new")), (2, shelf.entry(4, "delete", 2))):
        dies.append("bodies.before_drop")
        with pytest.raises(Died):
            await shelf.changes().apply(shelf.chat, sent[target - 1].ts, [change])
        await shelf.changes().apply(shelf.chat, sent[target - 1].ts, [change])  # who comes next
    kept = shelf.recent(5, LONG)
    await shelf.put(kept)
    # Of the deleted message nothing is left: who repeats a deletion looks whether there is.
    assert len(await shelf.keys()) == 2

    too_young = await shelf.sweep(settle_s=60)
    swept = await shelf.sweep()

    assert (too_young, swept) == (0, 1)
    await shelf.assert_tidy()
    assert (await shelf.container.messages.list_after(shelf.chat, 2, 10)) == []
    assert [m.body for m in await shelf.container.messages.list_after(shelf.chat, 4, 1)] == [LONG]


async def test_sweep_leaves_what_somebody_has_still_to_point_to(shelf: Shelf) -> None:
    """An object whose entry is not persisted yet may have no item: it is not an orphan."""
    team = await make_direct(shelf.container, UserId("x-" + shelf.chat), UserId("y-" + shelf.chat))
    shelf.chat = ChatId(team.chat)
    sender = UserId(next(iter(team.users)))
    gateway = Gateway(shelf.container.hot)
    await gateway.send(team, LONG, sender=sender)
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.cli", "worker", "persist",
        env={
            **os.environ, **variables_of(shelf.container), **variables_of_cold(shelf),
            "CHAT_WARM_BODY_INLINE_BYTES_MAX": str(INLINE_MAX),
            "chatserver.warm.messages.long_bodies.BODY_PUT_TIMEOUT_S": "20",
            "CHAT_FAILPOINT": "bodies.after_objects:kill",
        },
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert await asyncio.wait_for(worker.wait(), 90) == -signal.SIGKILL
    assert await shelf.items() == [] and len(await shelf.keys()) == 1

    swept = await shelf.sweep(settle_s=0)
    await shelf.container.hot.call(
        "HSET", shelf.container.hot.keys.lease(0, "persist"), "until_ms", 0
    )
    async with running(persister_of(shelf.container).run()):
        await eventually(lambda: is_drained(shelf.container))
        long_edit = LONG + "edited"
        await amend(shelf.container, team.chat, sender, "edit", 1, long_edit)
        await eventually(lambda: is_drained(shelf.container))

    assert swept == 0
    await shelf.assert_tidy()
    assert (await shelf.container.messages.list_after(shelf.chat, 0, 1))[0].body == long_edit


def variables_of_cold(shelf: Shelf) -> dict[str, str]:
    """Where the bucket is."""
    cold, warm = shelf.container.settings.cold, variables_of(shelf.container)
    return {
        "CHAT_COLD_ENDPOINT": str(cold.endpoint),
        "CHAT_COLD_BUCKET": cold.bucket,
        "CHAT_COLD_ACCESS_KEY": warm["CHAT_WARM_ACCESS_KEY"],
        "CHAT_COLD_SECRET_KEY": warm["CHAT_WARM_SECRET_KEY"],
    }


async def test_body_of_a_message_that_dynamodb_removed_is_swept(shelf: Shelf) -> None:
    """TTL sends no notification: the object has no item anymore."""
    sent = [shelf.recent(1, LONG, expires_at=2_000_000_000), shelf.recent(2, LONG)]
    await shelf.put(*sent)
    assert await shelf.sweep() == 0
    place = {"chatid": {"S": shelf.chat}, "ts": {"N": str(sent[0].ts)}}
    table = MESSAGES.name_in(shelf.container.settings.warm)
    await shelf.client.call("delete_item", {"TableName": table, "Key": place})

    assert await shelf.sweep() == 1
    await shelf.assert_tidy()


# the archive


async def test_archive_holds_the_whole_text_and_the_object_goes(
    shelf: Shelf, dies: list[str]
) -> None:
    """Segments are self-contained; a crash in between leaves an object that is swept."""
    sent = [shelf.old(seq, body=f"{seq} {LONG}" if seq % 2 else "short") for seq in range(1, 31)]
    await shelf.put(*sent)
    dies.append("bodies.before_drop")
    with pytest.raises(Died):
        await shelf.visit()

    async def is_moved() -> bool:  # what was in flight beside the death goes on in this process
        await shelf.visit()
        return await shelf.warm_seqs() == []

    await eventually(is_moved)
    assert await shelf.warm_seqs() == []
    assert encoded(await shelf.walk_down()) == encoded(sent)
    assert b"".join((await shelf.objects()).values()).count(LONG[:-1].encode()) == 15
    await shelf.sweep()
    assert await shelf.keys() == set()


async def test_archived_message_that_gets_a_long_text_is_folded_in_again(shelf: Shelf) -> None:
    """Its item lies over the segment meanwhile, with its object; both go with the next pass."""
    sent = [shelf.old(seq) for seq in range(1, 11)]
    await shelf.put(*sent)
    await shelf.visit()

    edit = shelf.old(11, kind="edit", target=3, body=LONG)
    await shelf.changes().apply(shelf.chat, sent[2].ts, [edit])

    assert (await shelf.walk_up())[2].body == LONG
    assert len(await shelf.keys()) == 1
    await shelf.visit()
    assert await shelf.keys() == set()
    assert (await shelf.walk_up())[2].body == LONG


async def test_archive_does_not_go_on_over_a_body_that_is_lost(shelf: Shelf) -> None:
    """A text that is not there is not archived as an empty one, and nothing is removed."""
    await shelf.put(*(shelf.old(seq, body=LONG) for seq in range(1, 4)))
    key = sorted(await shelf.keys())[1]
    await shelf.container.body_files.remove(key)

    with pytest.raises(Unavailable, match="message 2"):
        await shelf.visit()

    assert len(await shelf.items()) == 3


# older releases


async def test_item_that_an_older_release_changed_has_the_text_that_this_one_gave_it(
    shelf: Shelf,
) -> None:
    """It knows no pointers and leaves them where they are: what it wrote counts."""
    sent = [shelf.recent(1, LONG), shelf.recent(2, LONG)]
    await shelf.put(*sent)
    table = MESSAGES.name_in(shelf.container.settings.warm)
    for each, update, values in (
        (sent[0], "SET #b = :b, rev = :r, edited_seq = :r, edited_ts = :r", {":b": {"S": "new"}}),
        (sent[1], "SET #b = :b, rev = :r, deleted = :d", {":b": {"S": ""}, ":d": {"BOOL": True}}),
    ):
        request = {
            "TableName": table,
            "Key": {"chatid": {"S": shelf.chat}, "ts": {"N": str(each.ts)}},
            "UpdateExpression": update,
            "ExpressionAttributeNames": {"#b": "body"},
            "ExpressionAttributeValues": {**values, ":r": {"N": "9"}},
        }
        await shelf.client.call("update_item", request)

    found = await shelf.container.messages.list_after(shelf.chat, 0, 10)
    assert [(m.body, m.deleted) for m in found] == [("new", False), ("", True)]
    assert await shelf.sweep() == 2
    await shelf.assert_tidy()


# legal holds


async def test_long_texts_of_a_chat_under_a_hold_are_kept_whole(shelf: Shelf) -> None:
    """A message that loses its text is copied first, with the long body."""
    longest = '"\n' * 131_072  # twice as long as JSON
    sent = [shelf.recent(1, LONG), shelf.recent(2, longest), shelf.recent(3, LONG + "3")]
    await shelf.put(*sent)
    holds = shelf.container.holds
    await holds.put(shelf.chat, "because", "host", 1_800_000_000.0)

    await shelf.changes().apply(shelf.chat, sent[0].ts, [shelf.entry(4, "edit", 1, "new")])
    await shelf.changes().apply(shelf.chat, sent[1].ts, [shelf.entry(5, "delete", 2)])
    await shelf.changes().apply(shelf.chat, sent[2].ts, [shelf.entry(6, "reaction", 3, "x")])

    copies = (await holds.list_copies(shelf.chat, 10)).items
    assert [(copy.seq, copy.body) for copy in copies] == [(1, LONG), (2, longest)]
    await shelf.assert_tidy()
    assert len(await shelf.keys()) == 1


# with what else moves items


async def test_sweep_finds_the_item_of_a_chat_that_is_spread(shelf: Shelf) -> None:
    """The object has the chat and the time; the layout gives the shard."""
    first = shelf.recent(1, LONG)
    layout = Layouts({shelf.chat: Layout((ShardingPeriod(first.ts, 8),))})
    (short,) = await shelf.container.long_bodies.offload([encode_item(PersistItem(first, None))])
    placed = place_item(layout, short)
    assert object_of(placed) == object_of(short) == next(iter(await shelf.keys()))
    table = MESSAGES.name_in(shelf.container.settings.warm)
    await shelf.client.call("put_item", {"TableName": table, "Item": placed})
    bodies = LongBodies(
        shelf.client,
        shelf.container.settings.warm,
        shelf.container.body_files,
        shards=Known(layout),
    )

    orphans = await bodies.find_orphans(sorted(await shelf.keys()))

    assert orphans == []


class Known:
    """A list of layouts that the test sets."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts

    async def get_for_keys(self, upto_ts: int) -> Layouts:
        return self._layouts


@pytest.mark.parametrize(("retention_s", "is_left"), [(60, True), (10**9, False), (0, False)])
async def test_object_of_what_ttl_may_have_taken_too_early_stays(
    shelf: Shelf, retention_s: int, is_left: bool
) -> None:
    """Its item is put back by who reads the Stream, and points to it again."""
    await shelf.put(shelf.recent(1, LONG))
    (item,) = await shelf.items()
    key = {name: item[name] for name in MESSAGES.key.names}
    table = MESSAGES.name_in(shelf.container.settings.warm)
    await shelf.client.call("delete_item", {"TableName": table, "Key": key})
    archive = shelf.container.settings.archive.model_copy(
        update={"removal": "ttl", "retention_s": retention_s}
    )
    settings = shelf.container.settings.model_copy(update={"archive": archive})
    sweeper = BodySweeper(with_attributes(shelf.container, settings=settings), "test", -60.0)

    await sweeper.sweep(f"bodies/{shelf.chat}/")

    assert len(await shelf.keys()) == is_left
