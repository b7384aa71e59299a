"""Long bodies: objects beside the table, which no reader notices and no death leaves behind."""

from __future__ import annotations

import asyncio
import random
import secrets

import pytest

from chatserver.cold.archive import SegmentObjects
from chatserver.cold.long_bodies import BodyFiles
from chatserver.domain.ids import UserId
from chatserver.errors import Unavailable
from chatserver.features.privacy.warm.user_data import PersonalRows
from chatserver.protocol.frames import Attachment
from chatserver.service.history.cold_log import ColdLog
from chatserver.service.history.warm_and_cold_log import OlderTiers
from chatserver.telemetry import metrics
from chatserver.warm.messages import long_bodies
from chatserver.warm.messages.chat_files import ChatFiles
from chatserver.warm.messages.message_queries import MessageIndexes
from chatserver.warm.messages.store import PersistItem
from tests.integration.warm.messages.long_bodies_support import LONG, Shelf
from tests.integration.workers.archive.support import encoded

pytest_plugins = ["tests.integration.warm.messages.long_bodies_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


# reading


async def test_long_body_is_an_object_and_read_by_every_door(shelf: Shelf) -> None:
    """The item keeps a pointer, its size and its checksum; readers get the whole text."""
    user, other = UserId(f"a-{secrets.token_hex(4)}"), UserId(f"b-{secrets.token_hex(4)}")
    files = [Attachment("f1", "a.png", "image/png", 3)]
    sent = [
        shelf.recent(1, "short", sender=user),
        shelf.recent(2, LONG, sender=user, attachments=files),
        shelf.recent(3, LONG + "!", sender=user),
    ]
    await shelf.container.messages.put_batch([PersistItem(m, other) for m in sent], 20)

    items = {int(item["seq"]["N"]): item for item in await shelf.items()}
    assert items[1]["body"]["S"] == "short" and "body_sha256" not in items[1]
    assert items[2]["body"]["S"] == "" and int(items[2]["body_bytes"]["N"]) == len(LONG.encode())
    await shelf.assert_tidy()
    assert len(await shelf.keys()) == 2
    warm, clock = shelf.container.settings.warm, shelf.container.clock
    patterns = MessageIndexes(shelf.client, warm, clock, bodies=shelf.container.long_bodies)
    lists = {
        "down": await shelf.container.messages.list_before(shelf.chat, None, 10),
        "up": await shelf.container.messages.list_after(shelf.chat, 0, 10),
        "chat": (await patterns.list_chat(shelf.chat, limit=10, newest_first=False)).items,
        "sent": (await patterns.list_sent(user, limit=10, newest_first=False)).items,
        "received": (await patterns.list_received(other, limit=10, newest_first=False)).items,
        "active": (await patterns.list_active(shelf.chat, limit=10, newest_first=False)).items,
        "aged": await shelf.aged_with_bodies().list_between(shelf.chat, 0, 2**53 - 1),
    }
    for name, found in lists.items():
        assert encoded(list(found)) == encoded(sent), name
    with_files = ChatFiles(shelf.client, warm, clock, bodies=shelf.container.long_bodies)
    assert encoded((await with_files.list_with_files(shelf.chat, limit=9)).items) == encoded(
        sent[1:2]
    )
    assert encoded(list((await patterns.get_many([(shelf.chat, sent[2].ts)])).values())) == encoded(
        sent[2:]
    )
    personal = PersonalRows(client=shelf.client, settings=warm, bodies=shelf.container.long_bodies)
    assert [encoded(page) async for page in personal.iter_entries(user)] == [encoded(sent)]
    found = await personal.find_entry(shelf.chat, sent[1].ts)
    assert found is not None and found.body == LONG


async def test_page_reads_its_objects_side_by_side_and_no_more_than_so_many(shelf: Shelf) -> None:
    """A page of long messages takes as long as a few of them; memory and connections are bound."""
    sent = [shelf.recent(seq, f"{seq} {LONG}") for seq in range(1, 41)]
    await shelf.put(*sent)
    at_once = most = 0

    class Counted(BodyFiles):
        async def read(self, key: str, size_max: int) -> bytes:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            try:
                return await super().read(key, size_max)
            finally:
                at_once -= 1

    found = await shelf.repository(Counted(shelf.store)).list_after(shelf.chat, 0, 50)

    assert encoded(found) == encoded(sent)
    assert 1 < most <= long_bodies.TRANSFERS_MAX


@pytest.mark.parametrize("damage", ["gone", "other text", "longer"])
async def test_body_whose_object_is_lost_is_unavailable_and_never_empty(
    shelf: Shelf, damage: str
) -> None:
    """The reader gets an error and the metric counts it; the rest of the chat is served."""
    await shelf.put(shelf.recent(1, "short"), shelf.recent(2, LONG), shelf.recent(3, "end"))
    (key,) = await shelf.keys()
    if damage == "gone":
        await shelf.container.body_files.remove(key)
    else:
        data = LONG.encode()[:-1] + b"?" if damage == "other text" else LONG.encode() * 2
        await shelf.container.body_files.put(key, data)
    gaps = metrics.HISTORY_GAPS.labels("body")
    before = gaps._value.get()

    with pytest.raises(Unavailable, match="message 2"):
        await shelf.container.messages.list_after(shelf.chat, 0, 10)

    assert gaps._value.get() == before + 1
    assert encoded(await shelf.container.messages.list_after(shelf.chat, 2, 10))
    assert (await shelf.container.messages.list_before(shelf.chat, 2, 10))[0].body == "short"


async def test_change_of_a_message_whose_object_is_lost_is_made_all_the_same(
    shelf: Shelf,
) -> None:
    """Replacing or deleting a text needs no read of it: the worker continues."""
    sent = [shelf.recent(1, LONG), shelf.recent(2, LONG)]
    await shelf.put(*sent)
    for key in await shelf.keys():
        await shelf.container.body_files.remove(key)

    await shelf.changes().apply(shelf.chat, sent[0].ts, [shelf.entry(3, "edit", 1, "new")])
    await shelf.changes().apply(shelf.chat, sent[1].ts, [shelf.entry(4, "delete", 2)])

    found = await shelf.container.messages.list_after(shelf.chat, 0, 10)
    assert [(m.body, m.deleted) for m in found] == [("new", False), ("", True)]


async def test_reader_who_comes_while_a_body_is_replaced_gets_one_or_the_other(
    shelf: Shelf,
) -> None:
    """An edit may remove the object between two reads: then the item is read again."""
    sent = shelf.recent(1, LONG)
    await shelf.put(sent)
    edits = [shelf.entry(2, "edit", 1, LONG + " again")]

    class Late(BodyFiles):
        async def read(self, key: str, size_max: int) -> bytes:
            if edits:
                await shelf.changes().apply(shelf.chat, sent.ts, [edits.pop()])
            return await super().read(key, size_max)

    found = await shelf.repository(Late(shelf.store)).list_after(shelf.chat, 0, 10)

    assert [m.body for m in found] == [LONG + " again"]
    await shelf.assert_tidy()


async def test_reader_who_comes_while_a_long_message_is_archived_goes_on_in_the_archive(
    shelf: Shelf,
) -> None:
    """Between the item and its object both may have left for a segment: the page is whole."""
    sent = [shelf.old(seq, body=f"{seq} {LONG}") for seq in range(1, 9)]
    await shelf.put(*sent)
    left = [1]

    class Late(BodyFiles):
        async def read(self, key: str, size_max: int) -> bytes:
            if left:
                left.pop()
                await shelf.visit()
            return await super().read(key, size_max)

    cold = ColdLog(
        manifests=shelf.container.manifests,
        segments=SegmentObjects(shelf.store, shelf.container.settings.archive),
        items=shelf.aged_with_bodies(),
        clock=shelf.container.clock,
    )
    older = OlderTiers(shelf.repository(Late(shelf.store)), cold)
    run = await older.read_run(shelf.chat, None, 0, 50, None)

    assert run.tier == "cold"
    assert encoded(run.messages) == encoded(sent)


# changing


@pytest.mark.parametrize("seed", range(3))
async def test_bodies_whatever_happens_to_messages_leave_no_object_behind(
    shelf: Shelf, seed: int
) -> None:
    """Edits both ways, reactions, deletions, blanked edits: the texts, and no object too much."""
    dice = random.Random(seed)
    wanted: dict[int, str] = {}
    edits: dict[int, int] = {}  # message -> its newest edit
    for seq in range(1, 5):
        wanted[seq] = dice.choice(("short", f"{seq} {LONG}"))
        await shelf.put(shelf.recent(seq, wanted[seq]))
    for seq in range(5, 35):
        target, kind = dice.randint(1, 4), dice.choice(("edit", "edit", "reaction", "delete"))
        if kind == "delete" and (dice.random() < 0.7 or not wanted[target]):
            continue
        if kind == "edit" and not wanted[target]:
            continue
        body = {"edit": dice.choice(("brief", f"{seq} {LONG}")), "reaction": "x"}.get(kind, "")
        change = shelf.entry(seq, kind, target, body)
        await shelf.put(change)
        times = dice.choice((1, 2))  # a change may be made again
        for _ in range(times):
            ts = shelf.recent(target, "").ts
            await shelf.changes().apply(shelf.chat, ts, [change])
            if kind in ("edit", "delete") and target in edits:
                blanked = shelf.recent(edits[target], "").ts
                await shelf.changes().blank(shelf.chat, blanked, seq)
        if kind == "edit":
            wanted[target], edits[target] = body, seq
        elif kind == "delete":
            wanted[target] = ""
            edits.pop(target, None)

    found = await shelf.aged_with_bodies().list_between(shelf.chat, 0, 2**53 - 1)
    texts = {m.seq: m.body for m in found}
    assert {seq: texts[seq] for seq in wanted} == wanted
    newest = {edits.get(target) for target in wanted}
    for entry in found:
        if entry.kind == "edit":
            assert bool(entry.body) == (entry.seq in newest)
    await shelf.assert_tidy()


async def test_body_stays_in_its_item_while_the_bucket_is_away(shelf: Shelf) -> None:
    """Persisting does not wait for S3; bodies stored meanwhile are read without it (P9)."""
    asked: list[str] = []

    class Away(BodyFiles):
        async def put(self, key: str, data: bytes) -> None:
            asked.append(key)
            raise Unavailable("S3: does not answer")

    repository = shelf.repository(Away(shelf.store))
    huge = "x" * 262_144
    sent = [shelf.recent(seq, LONG if seq < 4 else huge) for seq in range(1, 7)]

    await repository.put_batch([PersistItem(m, None) for m in sent[:3]], 20)
    tries = len(asked)
    await repository.put_batch([PersistItem(m, None) for m in sent[3:]], 20)

    assert tries and len(asked) == tries  # it is not asked again for a while
    assert await shelf.keys() == set()
    assert encoded(await repository.list_after(shelf.chat, 0, 10)) == encoded(sent)
    await shelf.put(*sent)  # back again: whoever writes it next takes it out
    assert len(await shelf.keys()) == 6
    assert encoded(await shelf.container.messages.list_after(shelf.chat, 0, 10)) == encoded(sent)


@pytest.mark.constants({"chatserver.warm.messages.long_bodies.BODY_PUT_TIMEOUT_S": 0.05})
async def test_bucket_that_hangs_holds_a_write_up_for_a_moment_only(
    shelf: Shelf,
) -> None:
    """A deadline of its own: the persister's write must not run out of time for it."""

    class Hanging(BodyFiles):
        async def put(self, key: str, data: bytes) -> None:
            await asyncio.Event().wait()

    sent = shelf.recent(1, LONG)
    hasty = shelf.repository(Hanging(shelf.store))
    await hasty.put_batch([PersistItem(sent, None)], 20)

    (item,) = await shelf.items()
    assert item["body"]["S"] == LONG
