"""Long bodies are S3 objects: reads return them, and changes leave no orphans."""

from __future__ import annotations

import asyncio
import random
import secrets

import pytest

from chatserver.cold.long_bodies import BodyFiles
from chatserver.cold.segment_objects import SegmentObjects
from chatserver.domain.ids import UserId
from chatserver.errors import Unavailable
from chatserver.features.privacy.warm.user_data import PersonalRows
from chatserver.protocol.frames import Attachment
from chatserver.service.history.cold_log import ColdLog
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.telemetry import metrics
from chatserver.warm.messages import long_bodies
from chatserver.warm.messages.message_indexes import MessageIndexes
from chatserver.warm.messages.messages import PersistItem
from tests.integration.warm.messages.long_bodies_support import LONG, LongBodyWorld
from tests.integration.workers.archive.support import encoded

pytest_plugins = ["tests.integration.warm.messages.long_bodies_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


# reading


async def test_long_body_is_an_object_and_every_query_returns_it(world: LongBodyWorld) -> None:
    """The item has the reference, size and checksum. Readers get the complete text."""
    user, other = UserId(f"a-{secrets.token_hex(4)}"), UserId(f"b-{secrets.token_hex(4)}")
    files = [Attachment("f1", "a.png", "image/png", 3)]
    sent = [
        world.recent(1, "short", sender=user),
        world.recent(2, LONG, sender=user, attachments=files),
        world.recent(3, LONG + "!", sender=user),
    ]
    await world.container.messages.put_batch([PersistItem(m, other) for m in sent], 20)

    items = {int(item["seq"]["N"]): item for item in await world.items()}
    assert items[1]["body"]["S"] == "short" and "body_sha256" not in items[1]
    assert items[2]["body"]["S"] == "" and int(items[2]["body_bytes"]["N"]) == len(LONG.encode())
    await world.assert_consistent()
    assert len(await world.keys()) == 2
    clock = world.container.clock
    patterns = MessageIndexes(world.client, clock, bodies=world.container.long_bodies)
    lists = {
        "down": await world.container.messages.list_before(world.chat, None, 10),
        "up": await world.container.messages.list_after(world.chat, 0, 10),
        "chat": (await patterns.list_chat(world.chat, limit=10, newest_first=False)).items,
        "sent": (await patterns.list_sent(user, limit=10, newest_first=False)).items,
        "received": (await patterns.list_received(other, limit=10, newest_first=False)).items,
        "active": (await patterns.list_active(world.chat, limit=10, newest_first=False)).items,
        "archivable": await world.archivable_with_bodies().list_between(world.chat, 0, 2**53 - 1),
    }
    for name, found in lists.items():
        assert encoded(list(found)) == encoded(sent), name
    assert encoded((await patterns.list_with_files(world.chat, limit=9)).items) == encoded(
        sent[1:2]
    )
    assert encoded(list((await patterns.get_many([(world.chat, sent[2].ts)])).values())) == encoded(
        sent[2:]
    )
    personal = PersonalRows(world.client, bodies=world.container.long_bodies)
    assert [encoded(page) async for page in personal.iter_entries(user)] == [encoded(sent)]
    entry = await personal.find_entry(world.chat, sent[1].ts)
    assert entry is not None and entry.body == LONG


async def test_page_reads_its_objects_concurrently_up_to_a_limit(world: LongBodyWorld) -> None:
    """A page of long messages is fast, and its memory and connections are limited."""
    sent = [world.recent(seq, f"{seq} {LONG}") for seq in range(1, 41)]
    await world.put(*sent)
    in_flight = in_flight_max = 0

    class CountingFiles(BodyFiles):
        async def read(self, key: str, size_max: int) -> bytes:
            nonlocal in_flight, in_flight_max
            in_flight += 1
            in_flight_max = max(in_flight_max, in_flight)
            try:
                return await super().read(key, size_max)
            finally:
                in_flight -= 1

    found = await world.repository(CountingFiles(world.store)).list_after(world.chat, 0, 50)

    assert encoded(found) == encoded(sent)
    assert 1 < in_flight_max <= long_bodies.TRANSFERS_MAX


@pytest.mark.parametrize("damage", ["missing", "other text", "longer"])
async def test_body_with_a_lost_object_is_unavailable_and_never_empty(
    world: LongBodyWorld, damage: str
) -> None:
    """The reader gets an error, and a metric counts it. Other messages are still readable."""
    await world.put(world.recent(1, "short"), world.recent(2, LONG), world.recent(3, "end"))
    (key,) = await world.keys()
    if damage == "missing":
        await world.container.body_files.remove(key)
    else:
        data = LONG.encode()[:-1] + b"?" if damage == "other text" else LONG.encode() * 2
        await world.container.body_files.put(key, data)
    gaps = metrics.HISTORY_GAPS.labels("body")
    before = gaps._value.get()

    with pytest.raises(Unavailable, match="message 2"):
        await world.container.messages.list_after(world.chat, 0, 10)

    assert gaps._value.get() == before + 1
    assert encoded(await world.container.messages.list_after(world.chat, 2, 10))
    assert (await world.container.messages.list_before(world.chat, 2, 10))[0].body == "short"


async def test_change_of_a_message_with_a_lost_object_is_applied(
    world: LongBodyWorld,
) -> None:
    """An edit or deletion does not read the old text, so the worker does not fail."""
    sent = [world.recent(1, LONG), world.recent(2, LONG)]
    await world.put(*sent)
    for key in await world.keys():
        await world.container.body_files.remove(key)

    await world.changes().apply(world.chat, sent[0].ts, [world.entry(3, "edit", 1, "new")])
    await world.changes().apply(world.chat, sent[1].ts, [world.entry(4, "delete", 2)])

    found = await world.container.messages.list_after(world.chat, 0, 10)
    assert [(m.body, m.deleted) for m in found] == [("new", False), ("", True)]


async def test_read_during_an_edit_returns_a_complete_text(
    world: LongBodyWorld,
) -> None:
    """The edit removes the object between the two reads, so the item is read again."""
    sent = world.recent(1, LONG)
    await world.put(sent)
    edits = [world.entry(2, "edit", 1, LONG + " again")]

    class InterruptedFiles(BodyFiles):
        async def read(self, key: str, size_max: int) -> bytes:
            if edits:
                await world.changes().apply(world.chat, sent.ts, [edits.pop()])
            return await super().read(key, size_max)

    found = await world.repository(InterruptedFiles(world.store)).list_after(world.chat, 0, 10)

    assert [m.body for m in found] == [LONG + " again"]
    await world.assert_consistent()


async def test_read_during_archiving_of_a_long_message_continues_in_the_archive(
    world: LongBodyWorld,
) -> None:
    """Item and object move to a segment between the two reads, and the page is complete."""
    sent = [world.old(seq, body=f"{seq} {LONG}") for seq in range(1, 9)]
    await world.put(*sent)
    visits = [1]

    class InterruptedFiles(BodyFiles):
        async def read(self, key: str, size_max: int) -> bytes:
            if visits:
                visits.pop()
                await world.archive_old()
            return await super().read(key, size_max)

    cold = ColdLog(
        manifests=world.container.manifests,
        segments=SegmentObjects(world.store, world.container.settings.archive),
        items=world.archivable_with_bodies(),
        clock=world.container.clock,
    )
    older = WarmAndColdLog(world.repository(InterruptedFiles(world.store)), cold)
    run = await older.read_run(world.chat, None, 0, 50, None)

    assert run.tier == "cold"
    assert encoded(run.messages) == encoded(sent)


# changing


@pytest.mark.parametrize("seed", range(3))
async def test_random_changes_leave_no_orphaned_object(world: LongBodyWorld, seed: int) -> None:
    """The changes are edits to long and short texts, reactions, deletions and blanked edits."""
    rng = random.Random(seed)
    wanted: dict[int, str] = {}
    edits: dict[int, int] = {}  # maps each message to its newest edit
    for seq in range(1, 5):
        wanted[seq] = rng.choice(("short", f"{seq} {LONG}"))
        await world.put(world.recent(seq, wanted[seq]))
    for seq in range(5, 35):
        target, kind = rng.randint(1, 4), rng.choice(("edit", "edit", "reaction", "delete"))
        if kind == "delete" and (rng.random() < 0.7 or not wanted[target]):
            continue
        if kind == "edit" and not wanted[target]:
            continue
        body = {"edit": rng.choice(("brief", f"{seq} {LONG}")), "reaction": "x"}.get(kind, "")
        change = world.entry(seq, kind, target, body)
        await world.put(change)
        times = rng.choice((1, 2))  # a change may be applied twice
        for _ in range(times):
            ts = world.recent(target, "").ts
            await world.changes().apply(world.chat, ts, [change])
            if kind in ("edit", "delete") and target in edits:
                blanked = world.recent(edits[target], "").ts
                await world.changes().clear_edit(world.chat, blanked, seq)
        if kind == "edit":
            wanted[target], edits[target] = body, seq
        elif kind == "delete":
            wanted[target] = ""
            edits.pop(target, None)

    found = await world.archivable_with_bodies().list_between(world.chat, 0, 2**53 - 1)
    texts = {m.seq: m.body for m in found}
    assert {seq: texts[seq] for seq in wanted} == wanted
    newest = {edits.get(target) for target in wanted}
    for entry in found:
        if entry.kind == "edit":
            assert bool(entry.body) == (entry.seq in newest)
    await world.assert_consistent()


async def test_body_stays_in_its_item_while_s3_is_unavailable(world: LongBodyWorld) -> None:
    """Persisting does not wait for S3. These bodies are read without it (P9)."""
    attempts: list[str] = []

    class UnavailableFiles(BodyFiles):
        async def put(self, key: str, data: bytes) -> None:
            attempts.append(key)
            raise Unavailable("S3 is down")

    repository = world.repository(UnavailableFiles(world.store))
    huge = "x" * 262_144
    sent = [world.recent(seq, LONG if seq < 4 else huge) for seq in range(1, 7)]

    await repository.put_batch([PersistItem(m, None) for m in sent[:3]], 20)
    count = len(attempts)
    await repository.put_batch([PersistItem(m, None) for m in sent[3:]], 20)

    assert count and len(attempts) == count  # s3 is not retried for a while
    assert await world.keys() == set()
    assert encoded(await repository.list_after(world.chat, 0, 10)) == encoded(sent)
    await world.put(*sent)  # s3 is available again, and the next write moves the bodies
    assert len(await world.keys()) == 6
    assert encoded(await world.container.messages.list_after(world.chat, 0, 10)) == encoded(sent)


@pytest.mark.constants({"chatserver.warm.messages.long_bodies.BODY_PUT_TIMEOUT_S": 0.05})
async def test_hanging_s3_delays_a_write_only_by_its_own_timeout(
    world: LongBodyWorld,
) -> None:
    """The timeout of an object write is shorter than the timeout of the persist worker's batch."""

    class HangingFiles(BodyFiles):
        async def put(self, key: str, data: bytes) -> None:
            await asyncio.Event().wait()

    sent = world.recent(1, LONG)
    repository = world.repository(HangingFiles(world.store))
    await repository.put_batch([PersistItem(sent, None)], 20)

    (item,) = await world.items()
    assert item["body"]["S"] == LONG
