"""The archive worker: it finds due chats, and other features read archived chats."""

from __future__ import annotations

import secrets
import time

import pytest

from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.errors import Unavailable
from chatserver.features.privacy.container import PrivacyContainer
from chatserver.service.messaging.message_erasure import has_text
from tests.integration.workers.archive.support import World, encoded
from workers.archive.worker import ArchiveWorker

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def make_chat(aging: World) -> tuple[UserId, UserId]:
    """Create a direct chat as the chat of `aging`; return its users."""
    mark = secrets.token_hex(4)
    a, b = UserId(f"a-{mark}"), UserId(f"b-{mark}")
    for user in (a, b):
        await aging.container.directory.put_user_if_absent(user, None, 1.0)
    aging.chat = direct_chat_id(a, b)
    await aging.container.directory.create_direct(aging.chat, a, b, 1.0)
    return a, b


async def due_chats(aging: World, parts: int = 1) -> list[str]:
    """Return the chats that the worker would archive now."""
    found: list[str] = []
    for part in range(parts):
        before = int(time.time() * 1_000_000)
        chats, start = await aging.container.manifests.list_due_chats(part, parts, before, None)
        assert start is None
        found += chats
    return found


async def test_sweep_archives_due_chats_and_skips_them_until_due_again(aging: World) -> None:
    """Chats are found with any number of scan segments."""
    await make_chat(aging)
    sent = aging.texts(90)
    await aging.put(*sent)
    worker = ArchiveWorker(aging.container, 0, "w1")
    in_one, in_three = await due_chats(aging), await due_chats(aging, 3)

    await worker.sweep()
    first = aging.container.clock.time()
    again = await aging.container.manifests.list_due_chats(0, 1, int((first - 60) * 1e6), None)

    assert aging.chat in in_one
    assert sorted(in_one) == sorted(in_three)
    assert encoded(await aging.walk_up())[:90] == encoded(sent)
    assert aging.chat not in again[0]
    assert (await aging.segments())[-1].last == 90


async def test_sweep_writes_late_changes_to_their_segments(aging: World) -> None:
    """This also holds if the chat has no more archivable entries."""
    await make_chat(aging)
    sent = aging.texts(10)
    await aging.put(*sent)
    worker = ArchiveWorker(aging.container, 0, "w1")
    await worker.sweep()
    entry = aging.old(11, kind="delete", body="", target=3)
    await aging.container.message_changes.apply(aging.chat, sent[2].ts, [entry])

    await worker.sweep()

    assert await aging.warm_seqs() == []
    assert b"text 3 " not in b"".join((await aging.objects()).values())
    late = {each.chat: each for each in await aging.container.manifests.list_late()}
    await aging.container.manifests.record_late(aging.chat, 7)
    await aging.container.manifests.delete_late(late[aging.chat])
    assert aging.chat in [each.chat for each in await aging.container.manifests.list_late()]
    await worker.sweep()  # a record of 1970 is due
    assert aging.chat not in [each.chat for each in await aging.container.manifests.list_late()]


async def test_completely_archived_chat_continues_with_the_next_seq(aging: World) -> None:
    """After a load the head is the archived one, and no entry counts as lost."""
    await make_chat(aging)
    await aging.put(*aging.texts(60))
    await aging.visit()

    head = await aging.container.older_tiers.find_head(aging.chat)
    await aging.container.chat_loader.load_chat(aging.chat)
    seq, ts = await aging.container.hot.call(
        "HMGET", aging.container.hot.keys.chat(aging.chat), "seq", "ts"
    )

    assert head is not None
    assert (int(seq), int(ts)) == (head.seq, head.ts) == (60, aging.old(60).ts)
    assert not await aging.container.older_tiers.fill_hole(aging.chat, 30, aging.old(30).ts)
    assert await aging.warm_seqs() == []


async def test_messages_of_a_user_are_found_in_both_tiers(aging: World) -> None:
    """Erasures and exports include archived messages in their current state."""
    user = f"u-{secrets.token_hex(4)}"
    by_user = [aging.old(seq, sender=user if seq % 3 == 0 else "alice") for seq in range(1, 91)]
    young = aging.old(91, sender=user, ts=int(time.time() + 3600) * 1_000_000)
    await aging.put(*by_user, young)
    await aging.visit()
    entry = aging.old(92, kind="delete", body="", target=3)
    await aging.container.message_changes.apply(aging.chat, by_user[2].ts, [entry])

    messages = [
        each
        async for page in aging.container.get(PrivacyContainer).user_messages.iter_entries(user)
        for each in page
    ]
    found = {each.seq: each for each in messages}
    archived = await aging.container.get(PrivacyContainer).user_messages.find_entry(
        aging.chat, by_user[5].ts
    )

    assert sorted(each.seq for each in messages) == [*range(3, 91, 3), 91]
    assert [seq for seq, each in found.items() if not has_text(each)] == [3]
    assert archived == by_user[5]
    assert await aging.container.get(PrivacyContainer).user_messages.list_chats(user) == [
        aging.chat
    ]
    await aging.container.get(PrivacyContainer).rows.remove_rows(user)
    assert await aging.container.get(PrivacyContainer).user_messages.list_chats(user) == [
        aging.chat
    ]
    await aging.container.get(PrivacyContainer).rows.remove_archive_pointers(user)
    assert await aging.container.get(PrivacyContainer).user_messages.list_chats(user) == []


async def test_chat_with_an_unavailable_archive_can_be_loaded(aging: World) -> None:
    """The position is in DynamoDB; only reads of archived messages fail."""
    await make_chat(aging)
    await aging.put(*aging.texts(20))
    await aging.visit()
    for segment in await aging.segments():
        await aging.store.call("delete_object", Key=segment.key)

    await aging.container.chat_loader.load_chat(aging.chat)

    key = aging.container.hot.keys.chat(aging.chat)
    assert int(await aging.container.hot.call("HGET", key, "seq")) == 20
    with pytest.raises(Unavailable):
        await aging.container.older_tiers.read_run(aging.chat, 21, None, 10, None)
