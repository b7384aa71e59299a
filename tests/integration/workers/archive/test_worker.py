"""The archive worker: it finds due chats, and other features read archived chats."""

from __future__ import annotations

import secrets
import time

import pytest

from chatserver.domain.archive_segments import LOST_KIND
from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.errors import Unavailable
from chatserver.features.privacy.container import PrivacyContainer
from chatserver.protocol import codec
from chatserver.service.messaging.message_erasure import has_text
from tests.integration.workers.archive.support import World, encoded
from tests.integration.workers.support import persist
from workers.archive.worker import ArchiveWorker

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def make_chat(world: World) -> tuple[UserId, UserId]:
    """Create a direct chat as the chat of `world`; return its users."""
    mark = secrets.token_hex(4)
    a, b = UserId(f"a-{mark}"), UserId(f"b-{mark}")
    for user in (a, b):
        await world.container.directory.put_user_if_absent(user, None, 1.0)
    world.chat = direct_chat_id(a, b)
    await world.container.directory.create_direct(world.chat, a, b, 1.0)
    return a, b


async def due_chats(world: World, parts: int = 1) -> list[str]:
    """Return the chats that the worker would archive now."""
    found: list[str] = []
    for part in range(parts):
        before = int(time.time() * 1_000_000)
        chats, start = await world.container.manifests.list_due_chats(part, parts, before, None)
        assert start is None
        found += chats
    return found


async def test_sweep_archives_due_chats_and_skips_them_until_due_again(
    world: World,
) -> None:
    """Chats are found with any number of scan segments."""
    await make_chat(world)
    sent = world.texts(90)
    await world.put(*sent)
    worker = ArchiveWorker(world.container, 0, "w1")
    in_one, in_three = await due_chats(world), await due_chats(world, 3)

    await worker.sweep()
    first = world.container.clock.time()
    again = await world.container.manifests.list_due_chats(0, 1, int((first - 60) * 1e6), None)

    assert world.chat in in_one
    assert sorted(in_one) == sorted(in_three)
    assert encoded(await world.read_forward())[:90] == encoded(sent)
    assert world.chat not in again[0]
    assert (await world.segments())[-1].last == 90


async def test_sweep_writes_late_changes_to_their_segments(world: World) -> None:
    """This also holds if the chat has no more archivable entries."""
    await make_chat(world)
    sent = world.texts(10)
    await world.put(*sent)
    worker = ArchiveWorker(world.container, 0, "w1")
    await worker.sweep()
    entry = world.old(11, kind="delete", body="", target=3)
    await world.apply(sent[2], entry)

    await worker.sweep()

    assert await world.warm_seqs() == []
    assert b"text 3 " not in await world.archived()
    late = {each.chat: each for each in await world.container.manifests.late.list_all()}
    await world.container.manifests.record_late(world.chat, 7)
    await world.container.manifests.late.delete(late[world.chat])
    assert world.chat in [each.chat for each in await world.container.manifests.late.list_all()]
    await worker.sweep()  # a record of 1970 is due
    assert world.chat not in [each.chat for each in await world.container.manifests.late.list_all()]


async def test_completely_archived_chat_continues_with_the_next_seq(world: World) -> None:
    """After a load the head is the archived one, and no entry counts as lost."""
    await make_chat(world)
    await world.put(*world.texts(60))
    await world.archive_old()

    head = await world.container.older_tiers.find_head(world.chat)
    await world.container.chat_loader.load_chat(world.chat)
    seq, ts = await world.container.hot.call(
        "HMGET", world.container.hot.keys.chat(world.chat), "seq", "ts"
    )

    assert head is not None
    assert (int(seq), int(ts)) == (head.seq, head.ts) == (60, world.old(60).ts)
    assert not await world.container.older_tiers.fill_hole(world.chat, 30, world.old(30).ts)
    assert await world.warm_seqs() == []


async def test_archived_entry_that_redis_has_again_is_not_written_again(world: World) -> None:
    """Redis lost the checkpoint, and restored the entry in the backlog."""
    await make_chat(world)
    sent, hot = world.texts(4), world.container.hot
    await world.put(*sent)
    await world.archive_old()
    await world.apply(sent[1], world.old(5, kind="delete", body="", target=2))
    await world.merge_changes()
    again = [f"{sent[1].seq}:{sent[1].ts}", b"bob\n" + codec.encode_tail(sent[1])]

    await hot.call("XADD", hot.keys.backlog(0), "*", "g", "-", *again)
    await persist(world.container)

    assert await world.warm_seqs() == []
    assert [entry.body for entry in await world.read_forward()] == [
        sent[0].body,
        "",
        sent[2].body,
        sent[3].body,
    ]


@pytest.mark.parametrize("archived", [0, 60])
async def test_lost_entries_before_all_stored_ones_become_tombstones(
    world: World, archived: int
) -> None:
    """Neither history nor the archive stops at entries that follow the last archived one."""
    await make_chat(world)
    await world.put(*world.texts(archived))
    await world.archive_old()
    await world.put(*world.texts(3, start=archived + 3))

    await world.container.chat_loader.load_chat(world.chat)
    history = await world.read_backward()
    result = await world.archive_old()

    assert [entry.seq for entry in history] == list(range(1, archived + 6))
    assert [entry.seq for entry in history if entry.kind == LOST_KIND] == [
        archived + 1,
        archived + 2,
    ]
    assert (result.moved, result.stuck_ts) == (5, None)
    assert await world.warm_seqs() == []


async def test_messages_of_a_user_are_found_in_both_tiers(world: World) -> None:
    """Erasures and exports include archived messages in their current state."""
    user = f"u-{secrets.token_hex(4)}"
    by_user = [world.old(seq, sender=user if seq % 3 == 0 else "alice") for seq in range(1, 91)]
    young = world.old(91, sender=user, ts=int(time.time() + 3600) * 1_000_000)
    await world.put(*by_user, young)
    await world.archive_old()
    entry = world.old(92, kind="delete", body="", target=3)
    await world.apply(by_user[2], entry)

    messages = [
        each
        async for page in world.container.get(PrivacyContainer).user_messages.iter_entries(user)
        for each in page
    ]
    found = {each.seq: each for each in messages}
    archived = await world.container.get(PrivacyContainer).user_messages.find_entry(
        world.chat, by_user[5].ts
    )

    assert sorted(each.seq for each in messages) == [*range(3, 91, 3), 91]
    assert [seq for seq, each in found.items() if not has_text(each)] == [3]
    assert archived == by_user[5]
    assert await world.container.get(PrivacyContainer).user_messages.list_chats(user) == [
        world.chat
    ]
    await world.container.get(PrivacyContainer).rows.remove_rows(user)
    assert await world.container.get(PrivacyContainer).user_messages.list_chats(user) == [
        world.chat
    ]
    await world.container.get(PrivacyContainer).rows.remove_archive_pointers(user)
    assert await world.container.get(PrivacyContainer).user_messages.list_chats(user) == []


async def test_chat_with_an_unavailable_archive_can_be_loaded(world: World) -> None:
    """The position is in DynamoDB; only reads of archived messages fail."""
    await make_chat(world)
    await world.put(*world.texts(20))
    await world.archive_old()
    for segment in await world.segments():
        await world.store.call("delete_object", Key=segment.key)

    await world.container.chat_loader.load_chat(world.chat)

    key = world.container.hot.keys.chat(world.chat)
    assert int(await world.container.hot.call("HGET", key, "seq")) == 20
    with pytest.raises(Unavailable):
        await world.container.older_tiers.read_run(world.chat, 21, None, 10, None)
