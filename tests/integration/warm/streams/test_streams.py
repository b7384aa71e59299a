"""The reader of the Stream: shards, leases and places, on a server that does what AWS does.

What it does with what TTL removed is in `test_archive_ttl.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from chatserver.config import Warm
from chatserver.errors import ConfigError, Unavailable
from chatserver.telemetry import metrics
from chatserver.warm.dynamo.client import Item, open_dynamodb, open_dynamodb_streams
from chatserver.warm.messages.store import PersistItem, encode_item
from chatserver.warm.schema.provisioning import apply_tables
from chatserver.warm.schema.tables import MESSAGES
from chatserver.warm.streams.checkpoints import LeaseLost, StreamRows
from chatserver.warm.streams.reader import Streams
from tests.integration.warm.schema.migration_support import JumpClock
from tests.integration.warm.support import Faults, Tables, message, settings_for
from tests.support.servers.processes import eventually
from tests.support.servers.stream_server import FakeShard, StreamServer
from workers.archive import stream_reader
from workers.archive.stream_reader import StreamReader

pytestmark = pytest.mark.asyncio(loop_scope="session")

LEASE_S = 60.0
DAY_S = 86_400.0


class Seen:
    """Records the seqs that the readers report as removed by TTL, in order."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.fails = 0

    async def handle(self, removed: Sequence[Item]) -> None:
        if self.fails:
            self.fails -= 1
            raise Unavailable("told to")
        self.seqs += [int(item["seq"]["N"]) for item in removed]


@dataclasses.dataclass
class Stage:
    """A server of Streams, rows on a real DynamoDB, and what readers saw."""

    server: StreamServer
    tables: Tables
    streams: Streams
    seen: Seen
    clock: JumpClock
    sent: int = 0

    def reader(self, name: str = "r1", poll_s: float = 0.02) -> StreamReader:
        """A reader process."""
        return StreamReader(self.streams, self.rows, self.seen, name, self.clock, poll_s, LEASE_S)

    @property
    def rows(self) -> StreamRows:
        """The stored rows of the shards."""
        return StreamRows(self.tables.client, self.tables.settings, LEASE_S)

    def remove(self, count: int, shard: FakeShard | None = None) -> list[int]:
        """Have TTL remove so many messages; return which."""
        first = self.sent + 1
        self.sent += count
        for seq in range(first, self.sent + 1):
            self.server.remove(encode_item(PersistItem(message(seq), None)), shard)
        return list(range(first, self.sent + 1))

    async def until_seen(self, seqs: Sequence[int]) -> None:
        """Wait until all these were handled."""
        await eventually(lambda: set(seqs) <= set(self.seen.seqs), what=f"{seqs} are handled")

    async def until_done(self, *shards: FakeShard) -> None:
        """Wait until shards are noted as wholly read."""

        async def are_done() -> bool:
            known = (await self.rows.list_known(self.clock.time())).standings
            done = {name.rpartition("/")[2] for name, each in known.items() if each.is_done}
            return {shard.id for shard in shards} <= done

        await eventually(are_done, what="shards are done")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stream_tables(dynamodb: str) -> AsyncIterator[Tables]:
    """Tables for all tests here."""
    settings = settings_for(dynamodb)
    async with open_dynamodb(settings) as client:
        await apply_tables(client, settings, poll_s=0.01)
        yield Tables(client, settings, Faults(client))


@pytest_asyncio.fixture(loop_scope="session")
async def stage(stream_tables: Tables) -> AsyncIterator[Stage]:
    """A stream with one shard and no reader."""
    tables = stream_tables
    name = tables.settings.table_prefix + "directory"
    for row in await tables.scan("directory"):
        if row["PK"]["S"] == "stream":
            key = {"PK": row["PK"], "SK": row["SK"]}
            await tables.client.call("delete_item", {"TableName": name, "Key": key})
    server = StreamServer(MESSAGES.name_in(tables.settings))
    async with server.serve():
        settings = tables.settings.model_copy(update={"streams_endpoint": server.endpoint})
        async with open_dynamodb_streams(settings) as client:
            streams = Streams(client, settings)
            yield Stage(server, tables, streams, Seen(), JumpClock())


@contextlib.asynccontextmanager
async def reading(*readers: StreamReader) -> AsyncIterator[None]:
    """Let readers read beside the block; then end them in order."""
    tasks = [asyncio.create_task(reader.run()) for reader in readers]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def kill(reader: StreamReader, task: asyncio.Task[None]) -> None:
    """End a reader as a killed process ends: it gives nothing back."""
    shards = list(reader._tasks.values())
    reader._tasks = {}
    for each in (*shards, task):
        each.cancel()


async def test_removals_by_ttl_are_handled_in_order_and_others_passed_over(stage: Stage) -> None:
    """A split shard before those that continue it, over several pages of the list."""
    server = stage.server
    server.page_records = 3
    first = stage.remove(7)
    server.remove({"seq": {"N": "999"}}, is_by_ttl=False)
    children = server.split(server.first)
    second = stage.remove(4, children[1]) + stage.remove(4, children[0])
    more = [child for parent in children for child in server.split(parent)]
    third = [seq for shard in more for seq in stage.remove(2, shard)]

    async with reading(stage.reader()):
        await stage.until_seen(first + second + third)
        await stage.until_done(*children, server.first)
        late = stage.remove(2, more[3])
        await stage.until_seen(late)

    assert sorted(stage.seen.seqs) == list(range(1, stage.sent + 1))
    seqs = stage.seen.seqs
    assert seqs[:7] == first
    for parent, child in zip(
        (children[0], children[0], children[1], children[1]), more, strict=True
    ):
        of_parent, of_child = (
            [seqs.index(int(r["dynamodb"]["OldImage"]["seq"]["N"])) for r in each.records]
            for each in (parent, child)
        )
        assert of_parent == sorted(of_parent)
        assert max(of_parent) < min(of_child)
    described = [body for name, body in server.asked if name == "DescribeStream"]
    assert any("ExclusiveStartShardId" in body for body in described)


@pytest.mark.parametrize(
    "step", ["stream.after_read", "stream.before_record", "stream.after_record"]
)
async def test_reader_that_dies_at_a_step_is_followed_by_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Unrecorded items are handled again, recorded ones are not; none is skipped."""
    stage.server.page_records = 4
    sent = stage.remove(10)
    reader, dead = stage.reader("r1"), asyncio.Event()
    monkeypatch.setattr(stream_reader, "NOTE_S", 0.0)

    def failpoint(name: str) -> None:
        if name == step and not dead.is_set() and (len(stage.seen.seqs) >= 4 or "read" in name):
            dead.set()
            reader._tasks.clear()
            raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(stream_reader, "failpoint", failpoint)
        patch.setattr(stream_reader._Reading, "save", noting(dead))
        task = asyncio.create_task(reader.run())
        async with asyncio.timeout(60):
            await dead.wait()
        await kill(reader, task)
        await asyncio.wait([task])
    before = list(stage.seen.seqs)
    stage.clock.ahead_s += LEASE_S + 1
    async with reading(stage.reader("r2")):
        await stage.until_seen(sent)

    assert sorted(set(stage.seen.seqs)) == sent
    again = stage.seen.seqs[len(before) :]
    assert again[0] == {"stream.after_read": 1, "stream.before_record": 1}.get(step, 5)
    assert again == list(range(again[0], 11))


def noting(dead: asyncio.Event):  # type: ignore[no-untyped-def]  # stands for a method
    """The method of before, until the process is dead."""
    note = stream_reader._Reading.save

    async def note_if_alive(self: stream_reader._Reading, *, keep: bool) -> None:
        if not dead.is_set():
            await note(self, keep=keep)

    return note_if_alive


async def test_places_that_expire_and_calls_that_fail_lose_nothing(stage: Stage) -> None:
    """Throttled, answered with 500, or asked too late: it goes on where it was."""
    server = stage.server
    first = stage.remove(3)
    server.fail("ListStreams", "InternalServerError", 1, 500)
    server.fail("DescribeStream", "InternalServerError", 2, 500)
    server.fail("GetShardIterator", "InternalServerError", 1, 500)
    server.fail("GetRecords", "LimitExceededException", 3)

    async with reading(stage.reader()):
        await stage.until_seen(first)
        for _ in range(3):
            server.expire_places()
            await stage.until_seen(stage.remove(3))
        stage.seen.fails = 2
        await stage.until_seen(stage.remove(3))

    assert stage.seen.seqs == list(range(1, stage.sent + 1))


async def test_readers_share_the_shards_and_one_that_ends_gives_its_own_back(stage: Stage) -> None:
    """Two read about as many each; when one goes, the other has them all without a wait."""
    shards = stage.server.split(stage.server.first, 6)
    one, two = stage.reader("r1"), stage.reader("r2")

    async with reading(one):
        await eventually(lambda: len(one._tasks) == 6)
        async with reading(two):
            await eventually(lambda: (len(one._tasks), len(two._tasks)) == (3, 3))
            both = [seq for shard in shards for seq in stage.remove(2, shard)]
            await stage.until_seen(both)
        await eventually(lambda: len(one._tasks) == 6)
        await stage.until_seen([seq for shard in shards for seq in stage.remove(2, shard)])

    assert sorted(stage.seen.seqs) == list(range(1, stage.sent + 1))


async def test_reader_that_slept_past_its_lease_notes_nothing(stage: Stage) -> None:
    """Its lease is lost; only its successor may record."""
    (shard,) = await stage.streams.list_shards()
    rows, now = stage.rows, stage.clock.time()
    old = await rows.claim(shard, "r1", now)
    assert old is not None
    assert await rows.claim(shard, "r2", now + 1) is None
    new = await rows.claim(shard, "r2", now + LEASE_S + 1)
    assert new is not None
    await rows.save(new._replace(place="7"), now + LEASE_S + 2)

    with pytest.raises(LeaseLost):
        await rows.save(old._replace(place="3"), now + LEASE_S + 3)

    known = await rows.list_known(now + LEASE_S + 3)
    assert (known.standings[shard.name].place, known.standings[shard.name].holder) == ("7", "r2")
    await rows.save(new._replace(place="9"), now, is_done=True)
    assert await rows.claim(shard, "r3", now + DAY_S) is None


async def lost_count() -> float:
    """How often records may have been lost."""
    value: float = metrics.STREAM_LOST._value.get()
    return value


async def test_reader_that_was_away_too_long_says_so_and_goes_on(stage: Stage) -> None:
    """Never silence: an error and a metric, for a shard that was trimmed and one that is gone."""
    server, shard = stage.server, stage.server.first
    (other,) = server.split(shard, 1)
    async with reading(stage.reader()):
        await stage.until_seen(stage.remove(2, other))
    before = await lost_count()
    stage.clock.ahead_s += 2 * DAY_S
    stage.remove(3, other)
    server.trim(other)
    server.forget(shard)
    kept = stage.remove(2, other)

    async with reading(stage.reader("r2")):
        await stage.until_seen(kept)
    after_trim = await lost_count()
    (third,) = server.split(other, 1)
    server.forget(other)
    stage.clock.ahead_s += 2 * DAY_S
    async with reading(stage.reader("r3")):
        await stage.until_seen(stage.remove(2, third))

    assert after_trim == before + 1
    # That shard, and the beginning of the one that continues it.
    assert await lost_count() == before + 3
    assert not {3, 4, 5} & set(stage.seen.seqs)


async def test_quiet_shard_whose_last_record_is_gone_by_age_is_no_loss(stage: Stage) -> None:
    """It was read to its end all the time; there is nothing behind what was trimmed."""
    async with reading(stage.reader()):
        await stage.until_seen(stage.remove(2))
    before = await lost_count()
    stage.server.trim(stage.server.first)
    async with reading(stage.reader("r2")):
        await stage.until_seen(stage.remove(1))

    assert await lost_count() == before
    assert stage.seen.seqs == [1, 2, 3]


async def test_lag_is_the_age_of_what_is_not_handled(stage: Stage) -> None:
    """Also while no reader can read the shard: the alert comes long before a day."""
    async with reading(stage.reader()):
        await stage.until_seen(stage.remove(1))
    stage.seen.fails = 10_000
    stage.remove(1)
    stage.clock.ahead_s += 3600

    reader = stage.reader("r2")
    await reader.rebalance()
    await reader._stop(list(reader._tasks))
    await reader.rebalance()
    await reader._stop(list(reader._tasks))

    assert 3500 < metrics.STREAM_LAG._value.get() < 3700
    assert metrics.STREAM_LIST_TIME._value.get() > stage.clock.time() - 60


@pytest.mark.parametrize("seed", [1, 2])
async def test_stream_that_splits_under_readers_that_are_killed_is_handled_whole(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each record at least once, in the order of its shard, parents before children."""
    dice, server = random.Random(seed), stage.server
    server.page_records = 2
    monkeypatch.setattr(stream_reader, "NOTE_S", 0.0)
    parents: dict[str, str | None] = {server.first.id: None}
    open_ = [server.first]
    tasks: list[tuple[StreamReader, asyncio.Task[None]]] = []
    for number in range(40):
        shard = dice.choice(open_)
        match dice.choice(("put", "put", "split", "start", "kill", "expire", "fail")):
            case "put":
                stage.remove(dice.randint(1, 4), shard)
            case "split" if len(parents) < 16:
                open_.remove(shard)
                made = server.split(shard, dice.randint(1, 3))
                parents |= {child.id: shard.id for child in made}
                open_ += made
            case "start" if len(tasks) < 3:
                reader = stage.reader(f"r{number}", 0.01)
                tasks.append((reader, asyncio.create_task(reader.run())))
            case "kill" if tasks:
                await kill(*tasks.pop(dice.randrange(len(tasks))))
                if not tasks:
                    stage.clock.ahead_s += LEASE_S + 1
            case "expire":
                server.expire_places()
            case "fail":
                server.fail("GetRecords", "InternalServerError", 1, 500)
        await asyncio.sleep(0.005)
    for reader, task in tasks:
        await kill(reader, task)
    stage.clock.ahead_s += LEASE_S + 1
    async with reading(stage.reader("last", 0.01)):
        await stage.until_seen(range(1, stage.sent + 1))

    assert stage.sent > 5
    order = stage.seen.seqs
    of_shard = {
        shard.id: [int(r["dynamodb"]["OldImage"]["seq"]["N"]) for r in shard.records]
        for shard in server.shards.values()
    }
    for name, parent in parents.items():
        first = [order.index(seq) for seq in of_shard[name]]
        assert first == sorted(first)
        if parent is not None and of_shard[parent] and first:
            assert max(order.index(seq) for seq in of_shard[parent]) < first[0]


async def test_table_without_a_stream_is_named(stage: Stage) -> None:
    """It is a setting that is missing, not a server that is down."""
    stage.server.table = "another"

    with pytest.raises(ConfigError, match=r"Streams are off; set CHAT_WARM_STREAM"):
        await stage.reader().rebalance()


@pytest_asyncio.fixture(loop_scope="session")
async def real(dynamodb: str) -> AsyncIterator[tuple[Tables, Warm]]:
    """Tables whose stream is that of the real server."""
    settings = settings_for(dynamodb, stream=True)
    async with open_dynamodb(settings) as client:
        await apply_tables(client, settings, poll_s=0.01)
        yield Tables(client, settings, Faults(client)), settings


async def test_stream_of_the_real_server_is_read_and_removals_by_others_are_none_of_ours(
    real: tuple[Tables, Warm], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inserts, changes and deletions come in order; none of them was made by TTL."""
    monkeypatch.setattr(stream_reader, "NOTE_S", 0.0)
    tables, settings = real
    name = MESSAGES.name_in(settings)
    for seq in range(1, 6):
        item = encode_item(PersistItem(message(seq), None))
        await tables.client.call("put_item", {"TableName": name, "Item": item})
    key = {each: item[each] for each in MESSAGES.key.names}
    await tables.client.call("delete_item", {"TableName": name, "Key": key})
    seen = Seen()
    async with open_dynamodb_streams(settings) as client:
        streams = Streams(client, settings)
        (shard,) = await streams.list_shards()
        page = await streams.read(await streams.open_iterator(shard, None))
        middle = page.records[2].sequence
        rest = await streams.read(await streams.open_iterator(shard, middle))
        rows = StreamRows(tables.client, settings, LEASE_S)
        reader = StreamReader(streams, rows, seen, "r1", JumpClock(), 0.02, LEASE_S)

        async def is_read() -> bool:
            known = (await rows.list_known(JumpClock().time())).standings
            return any(each.place == page.records[-1].sequence for each in known.values())

        async with reading(reader):
            await eventually(is_read)

    assert [each.removed for each in page.records] == [None] * 6
    assert rest.records == page.records[3:]
    assert all(each.created_s > 0 for each in page.records)
    assert seen.seqs == []
