"""The archive worker finds what is due by itself, and what reads chats knows of the archive."""

from __future__ import annotations

import secrets
import time

import pytest

from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.errors import Unavailable
from chatserver.service.erasing import has_words
from tests.integration.archive_support import World, encoded
from workers.archive import ArchiveWorker

pytest_plugins = ["tests.integration.archive_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def make_chat(world: World) -> tuple[UserId, UserId]:
    """A direct chat in the directory, which is then the world's; its users."""
    mark = secrets.token_hex(4)
    a, b = UserId(f"a-{mark}"), UserId(f"b-{mark}")
    for user in (a, b):
        await world.parts.directory.put_user_if_absent(user, None, 1.0)
    world.chat = direct_chat_id(a, b)
    await world.parts.directory.create_direct(world.chat, a, b, 1.0)
    return a, b


async def due_chats(world: World, parts: int = 1) -> list[str]:
    """The chats that the worker would look at now."""
    found: list[str] = []
    for part in range(parts):
        before = int(time.time() * 1_000_000)
        chats, start = await world.parts.manifests.list_due_chats(part, parts, before, None)
        assert start is None
        found += chats
    return found


async def test_sweep_moves_what_is_due_and_looks_again_only_when_more_is(world: World) -> None:
    """Chats are found in every part of the directory; one that has nothing old is passed over."""
    await make_chat(world)
    sent = world.texts(90)
    await world.put(*sent)
    worker = ArchiveWorker(world.parts, 0, "w1")
    in_one, in_three = await due_chats(world), await due_chats(world, 3)

    await worker.sweep()
    first = world.parts.clock.time()
    again = await world.parts.manifests.list_due_chats(0, 1, int((first - 60) * 1e6), None)

    assert world.chat in in_one
    assert sorted(in_one) == sorted(in_three)
    assert encoded(await world.walk_up())[:90] == encoded(sent)
    assert world.chat not in again[0]
    assert (await world.segments())[-1].last == 90


async def test_sweep_brings_late_changes_into_their_segments(world: World) -> None:
    """Also where nothing is old enough to move any more."""
    await make_chat(world)
    sent = world.texts(10)
    await world.put(*sent)
    worker = ArchiveWorker(world.parts, 0, "w1")
    await worker.sweep()
    entry = world.old(11, kind="delete", body="", target=3)
    await world.parts.message_changes.apply(world.chat, sent[2].ts, [entry])

    await worker.sweep()

    assert await world.warm_seqs() == []
    assert b"text 3 " not in b"".join((await world.objects()).values())
    late = {each.chat: each for each in await world.parts.manifests.list_late()}
    await world.parts.manifests.note_late(world.chat, 7)
    await world.parts.manifests.drop_late(late[world.chat])
    assert world.chat in [each.chat for each in await world.parts.manifests.list_late()]
    await worker.sweep()  # of 1970: long settled
    assert world.chat not in [each.chat for each in await world.parts.manifests.list_late()]


async def test_chat_that_is_archived_whole_goes_on_where_it_was(world: World) -> None:
    """Loaded anew, its next message has the next seq; no place counts as lost."""
    await make_chat(world)
    await world.put(*world.texts(60))
    await world.visit()

    head = await world.parts.older.find_head(world.chat)
    await world.parts.opener.load_chat(world.chat)
    seq, ts = await world.parts.hot.call(
        "HMGET", world.parts.hot.keys.chat(world.chat), "seq", "ts"
    )

    assert head is not None
    assert (int(seq), int(ts)) == (head.seq, head.ts) == (60, world.old(60).ts)
    assert not await world.parts.older.fill_hole(world.chat, 30, world.old(30).ts)
    assert await world.warm_seqs() == []


async def test_all_that_a_user_said_is_found_in_both_tiers(world: World) -> None:
    """What an erasure or an export goes through has the archive's part, as it is now."""
    user = f"u-{secrets.token_hex(4)}"
    by_user = [world.old(seq, sender=user if seq % 3 == 0 else "alice") for seq in range(1, 91)]
    young = world.old(91, sender=user, ts=int(time.time() + 3600) * 1_000_000)
    await world.put(*by_user, young)
    await world.visit()
    entry = world.old(92, kind="delete", body="", target=3)
    await world.parts.message_changes.apply(world.chat, by_user[2].ts, [entry])

    said = [each async for page in world.parts.private.said.iter_entries(user) for each in page]
    found = {each.seq: each for each in said}
    archived = await world.parts.private.said.find_entry(world.chat, by_user[5].ts)

    assert sorted(each.seq for each in said) == [*range(3, 91, 3), 91]
    assert [seq for seq, each in found.items() if not has_words(each)] == [3]
    assert archived == by_user[5]
    assert await world.parts.private.said.list_chats(user) == [world.chat]
    await world.parts.private.rows.remove_rows(user)
    assert await world.parts.private.said.list_chats(user) == [world.chat]
    await world.parts.private.rows.remove_trails(user)
    assert await world.parts.private.said.list_chats(user) == []


async def test_chat_whose_archive_is_away_can_be_written_to(world: World) -> None:
    """Its place is in DynamoDB; what cannot be read is named when it is asked for."""
    await make_chat(world)
    await world.put(*world.texts(20))
    await world.visit()
    for segment in await world.segments():
        await world.store.call("delete_object", Key=segment.key)

    await world.parts.opener.load_chat(world.chat)

    key = world.parts.hot.keys.chat(world.chat)
    assert int(await world.parts.hot.call("HGET", key, "seq")) == 20
    with pytest.raises(Unavailable):
        await world.parts.older.read_run(world.chat, 21, None, 10, None)
