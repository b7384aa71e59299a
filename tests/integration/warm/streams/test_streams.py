"""The stream reader: shards, leases and checkpoints, with a stub of DynamoDB Streams.

`tests/integration/workers/archive/test_ttl.py` tests the handling of deleted items.
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
from chatserver.warm.dynamo.client import Item
from chatserver.warm.dynamo.connections import open_dynamodb, open_dynamodb_streams
from chatserver.warm.messages.messages import PersistItem, encode_item
from chatserver.warm.schema.tables import MESSAGES
from chatserver.warm.streams.checkpoints import ShardLeaseLost, StreamCheckpoints
from chatserver.warm.streams.reader import StreamReader
from tests.integration.warm.schema.migration_support import JumpClock
from tests.integration.warm.support import Faults, Tables, create_tables, message, settings_for
from tests.support.servers.processes import eventually
from tests.support.servers.stream_server import FakeShard, StreamServer
from workers.archive import ttl_stream_reader
from workers.archive.ttl_stream_reader import TtlStreamReader

pytestmark = pytest.mark.asyncio(loop_scope="session")

LEASE_S = 60.0
DAY_S = 86_400.0


class RemovalRecorder:
    """Records the seqs of items that readers report as deleted by TTL, in order."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.failures_left = 0

    async def handle(self, removed: Sequence[Item]) -> None:
        if self.failures_left:
            self.failures_left -= 1
            raise Unavailable("simulated failure")
        self.seqs += [int(item["seq"]["N"]) for item in removed]


@dataclasses.dataclass
class StreamWorld:
    """A stub server of Streams, checkpoints on a real DynamoDB, and the handled removals."""

    server: StreamServer
    tables: Tables
    streams: StreamReader
    recorder: RemovalRecorder
    clock: JumpClock
    sent: int = 0

    def reader(self, name: str = "r1", poll_s: float = 0.02) -> TtlStreamReader:
        """Create the reader of a worker process."""
        return TtlStreamReader(
            streams=self.streams,
            rows=self.rows,
            handler=self.recorder,
            name=name,
            clock=self.clock,
            poll_s=poll_s,
            lease_s=LEASE_S,
        )

    @property
    def rows(self) -> StreamCheckpoints:
        """The stored checkpoints of the shards."""
        return StreamCheckpoints(self.tables.client, LEASE_S)

    def remove(self, count: int, shard: FakeShard | None = None) -> list[int]:
        """Add `count` deletions by TTL to the stream; return the seqs."""
        first = self.sent + 1
        self.sent += count
        for seq in range(first, self.sent + 1):
            self.server.remove(encode_item(PersistItem(message(seq), None)), shard)
        return list(range(first, self.sent + 1))

    async def wait_until_handled(self, seqs: Sequence[int]) -> None:
        """Wait until the deletions of all these seqs are handled."""
        await eventually(lambda: set(seqs) <= set(self.recorder.seqs), what=f"{seqs} are handled")

    async def wait_until_read(self, *shards: FakeShard) -> None:
        """Wait until the shards are recorded as completely read."""

        async def are_done() -> bool:
            known = (await self.rows.get_state(self.clock.time())).progress
            done = {name.rpartition("/")[2] for name, each in known.items() if each.is_done}
            return {shard.id for shard in shards} <= done

        await eventually(are_done, what="all shards are read")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stream_tables(dynamodb: str) -> AsyncIterator[Tables]:
    """Tables for all tests of this module."""
    settings = settings_for(dynamodb)
    async with open_dynamodb(settings) as client:
        create_tables(settings)
        yield Tables(client, settings, Faults(client))


@pytest_asyncio.fixture(loop_scope="session")
async def world(stream_tables: Tables) -> AsyncIterator[StreamWorld]:
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
            streams = StreamReader(client, settings)
            yield StreamWorld(server, tables, streams, RemovalRecorder(), JumpClock())


@contextlib.asynccontextmanager
async def reading(*readers: TtlStreamReader) -> AsyncIterator[None]:
    """Run readers during the block; then stop them gracefully."""
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


async def kill(reader: TtlStreamReader, task: asyncio.Task[None]) -> None:
    """Stop a reader like a killed process, without releasing its leases."""
    shards = list(reader._tasks.values())
    reader._tasks = {}
    for each in (*shards, task):
        each.cancel()


async def test_deletions_by_ttl_are_handled_in_order_and_others_ignored(world: StreamWorld) -> None:
    """A parent shard is read before its children, over several pages of the shard list."""
    server = world.server
    server.page_records = 3
    first = world.remove(7)
    server.remove({"seq": {"N": "999"}}, is_by_ttl=False)
    children = server.split(server.first)
    second = world.remove(4, children[1]) + world.remove(4, children[0])
    more = [child for parent in children for child in server.split(parent)]
    third = [seq for shard in more for seq in world.remove(2, shard)]

    async with reading(world.reader()):
        await world.wait_until_handled(first + second + third)
        await world.wait_until_read(*children, server.first)
        late = world.remove(2, more[3])
        await world.wait_until_handled(late)

    assert sorted(world.recorder.seqs) == list(range(1, world.sent + 1))
    seqs = world.recorder.seqs
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
async def test_reader_that_crashes_is_replaced_without_skipping_records(
    world: StreamWorld, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Records after the last checkpoint are handled again. Earlier ones are not."""
    world.server.page_records = 4
    sent = world.remove(10)
    reader, crashed = world.reader("r1"), asyncio.Event()
    monkeypatch.setattr(ttl_stream_reader, "CHECKPOINT_S", 0.0)

    def failpoint(name: str) -> None:
        if (
            name == step
            and not crashed.is_set()
            and (len(world.recorder.seqs) >= 4 or "read" in name)
        ):
            crashed.set()
            reader._tasks.clear()
            raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(ttl_stream_reader, "failpoint", failpoint)
        patch.setattr(ttl_stream_reader._ShardReader, "save", save_until(crashed))
        task = asyncio.create_task(reader.run())
        async with asyncio.timeout(60):
            await crashed.wait()
        await kill(reader, task)
        await asyncio.wait([task])
    before = list(world.recorder.seqs)
    world.clock.ahead_s += LEASE_S + 1
    async with reading(world.reader("r2")):
        await world.wait_until_handled(sent)

    assert sorted(set(world.recorder.seqs)) == sent
    again = world.recorder.seqs[len(before) :]
    assert again[0] == {"stream.after_read": 1, "stream.before_record": 1}.get(step, 5)
    assert again == list(range(again[0], 11))


def save_until(crashed: asyncio.Event):  # type: ignore[no-untyped-def]  # stands for a method
    """Return the original method `save`, which does nothing after the crash."""
    save = ttl_stream_reader._ShardReader.save

    async def save_if_running(self: ttl_stream_reader._ShardReader, *, keep: bool) -> None:
        if not crashed.is_set():
            await save(self, keep=keep)

    return save_if_running


async def test_expired_iterators_and_failed_calls_lose_nothing(world: StreamWorld) -> None:
    """After throttling, a 500 or an expired iterator, the reader continues at its position."""
    server = world.server
    first = world.remove(3)
    server.fail("ListStreams", "InternalServerError", 1, 500)
    server.fail("DescribeStream", "InternalServerError", 2, 500)
    server.fail("GetShardIterator", "InternalServerError", 1, 500)
    server.fail("GetRecords", "LimitExceededException", 3)

    async with reading(world.reader()):
        await world.wait_until_handled(first)
        for _ in range(3):
            server.expire_iterators()
            await world.wait_until_handled(world.remove(3))
        world.recorder.failures_left = 2
        await world.wait_until_handled(world.remove(3))

    assert world.recorder.seqs == list(range(1, world.sent + 1))


async def test_readers_share_the_shards_and_a_stopped_one_releases_its_own(
    world: StreamWorld,
) -> None:
    """Two readers have equal shares. When one stops, the other gets all shards at once."""
    shards = world.server.split(world.server.first, 6)
    one, two = world.reader("r1"), world.reader("r2")

    async with reading(one):
        await eventually(lambda: len(one._tasks) == 6)
        async with reading(two):
            await eventually(lambda: (len(one._tasks), len(two._tasks)) == (3, 3))
            both = [seq for shard in shards for seq in world.remove(2, shard)]
            await world.wait_until_handled(both)
        await eventually(lambda: len(one._tasks) == 6)
        await world.wait_until_handled([seq for shard in shards for seq in world.remove(2, shard)])

    assert sorted(world.recorder.seqs) == list(range(1, world.sent + 1))


async def test_reader_with_an_expired_lease_cannot_save(world: StreamWorld) -> None:
    """Only the new lease holder may save a checkpoint."""
    (shard,) = await world.streams.list_shards()
    rows, now = world.rows, world.clock.time()
    old = await rows.claim(shard, "r1", now)
    assert old is not None
    assert await rows.claim(shard, "r2", now + 1) is None
    new = await rows.claim(shard, "r2", now + LEASE_S + 1)
    assert new is not None
    await rows.save(new._replace(position="7"), now + LEASE_S + 2)

    with pytest.raises(ShardLeaseLost):
        await rows.save(old._replace(position="3"), now + LEASE_S + 3)

    known = await rows.get_state(now + LEASE_S + 3)
    assert (known.progress[shard.name].position, known.progress[shard.name].holder) == ("7", "r2")
    await rows.save(new._replace(position="9"), now, is_done=True)
    assert await rows.claim(shard, "r3", now + DAY_S) is None


async def get_lost_count() -> float:
    """Return the metric of shards whose records may be lost."""
    value: float = metrics.STREAM_LOST._value.get()
    return value


async def test_records_lost_by_a_long_outage_are_counted_and_reading_continues(
    world: StreamWorld,
) -> None:
    """A trimmed shard and a removed one are counted in a metric."""
    server, shard = world.server, world.server.first
    (other,) = server.split(shard, 1)
    async with reading(world.reader()):
        await world.wait_until_handled(world.remove(2, other))
    before = await get_lost_count()
    world.clock.ahead_s += 2 * DAY_S
    world.remove(3, other)
    server.trim(other)
    server.remove_shard(shard)
    kept = world.remove(2, other)

    async with reading(world.reader("r2")):
        await world.wait_until_handled(kept)
    after_trim = await get_lost_count()
    (third,) = server.split(other, 1)
    server.remove_shard(other)
    world.clock.ahead_s += 2 * DAY_S
    async with reading(world.reader("r3")):
        await world.wait_until_handled(world.remove(2, third))

    assert after_trim == before + 1
    # The removed shard, and the first records of its child.
    assert await get_lost_count() == before + 3
    assert not {3, 4, 5} & set(world.recorder.seqs)


async def test_idle_shard_with_a_trimmed_last_record_is_no_loss(world: StreamWorld) -> None:
    """All its records were read before they were trimmed."""
    async with reading(world.reader()):
        await world.wait_until_handled(world.remove(2))
    before = await get_lost_count()
    world.server.trim(world.server.first)
    async with reading(world.reader("r2")):
        await world.wait_until_handled(world.remove(1))

    assert await get_lost_count() == before
    assert world.recorder.seqs == [1, 2, 3]


async def test_lag_metric_is_the_age_of_the_oldest_unhandled_record(world: StreamWorld) -> None:
    """It also increases while no reader can read the shard, so that an alert fires within a day."""
    async with reading(world.reader()):
        await world.wait_until_handled(world.remove(1))
    world.recorder.failures_left = 10_000
    world.remove(1)
    world.clock.ahead_s += 3600

    reader = world.reader("r2")
    await reader.rebalance()
    await reader._stop(list(reader._tasks))
    await reader.rebalance()
    await reader._stop(list(reader._tasks))

    assert 3500 < metrics.STREAM_LAG._value.get() < 3700
    assert metrics.STREAM_LIST_TIME._value.get() > world.clock.time() - 60


@pytest.mark.parametrize("seed", [1, 2])
async def test_stream_with_splits_and_killed_readers_is_handled_completely(
    world: StreamWorld, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each record is handled at least once, in shard order, and parents before children."""
    rng, server = random.Random(seed), world.server
    server.page_records = 2
    monkeypatch.setattr(ttl_stream_reader, "CHECKPOINT_S", 0.0)
    parents: dict[str, str | None] = {server.first.id: None}
    open_ = [server.first]
    tasks: list[tuple[TtlStreamReader, asyncio.Task[None]]] = []
    for number in range(40):
        shard = rng.choice(open_)
        match rng.choice(("put", "put", "split", "start", "kill", "expire", "fail")):
            case "put":
                world.remove(rng.randint(1, 4), shard)
            case "split" if len(parents) < 16:
                open_.remove(shard)
                made = server.split(shard, rng.randint(1, 3))
                parents |= {child.id: shard.id for child in made}
                open_ += made
            case "start" if len(tasks) < 3:
                reader = world.reader(f"r{number}", 0.01)
                tasks.append((reader, asyncio.create_task(reader.run())))
            case "kill" if tasks:
                await kill(*tasks.pop(rng.randrange(len(tasks))))
                if not tasks:
                    world.clock.ahead_s += LEASE_S + 1
            case "expire":
                server.expire_iterators()
            case "fail":
                server.fail("GetRecords", "InternalServerError", 1, 500)
        await asyncio.sleep(0.005)
    for reader, task in tasks:
        await kill(reader, task)
    world.clock.ahead_s += LEASE_S + 1
    async with reading(world.reader("last", 0.01)):
        await world.wait_until_handled(range(1, world.sent + 1))

    assert world.sent > 5
    order = world.recorder.seqs
    of_shard = {
        shard.id: [int(r["dynamodb"]["OldImage"]["seq"]["N"]) for r in shard.records]
        for shard in server.shards.values()
    }
    for name, parent in parents.items():
        first = [order.index(seq) for seq in of_shard[name]]
        assert first == sorted(first)
        if parent is not None and of_shard[parent] and first:
            assert max(order.index(seq) for seq in of_shard[parent]) < first[0]


async def test_table_without_a_stream_raises_config_error(world: StreamWorld) -> None:
    """The error names the missing setting."""
    world.server.table = "another"

    with pytest.raises(ConfigError, match=r"Streams are off; set CHAT_WARM_STREAM"):
        await world.reader().rebalance()


@pytest_asyncio.fixture(loop_scope="session")
async def real(dynamodb: str) -> AsyncIterator[tuple[Tables, Warm]]:
    """Tables with a stream on the real server."""
    settings = settings_for(dynamodb, stream=True)
    async with open_dynamodb(settings) as client:
        create_tables(settings)
        yield Tables(client, settings, Faults(client)), settings


async def test_stream_of_the_real_server_is_read_and_other_deletions_ignored(
    real: tuple[Tables, Warm], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inserts and deletions arrive in order, and none was made by TTL."""
    monkeypatch.setattr(ttl_stream_reader, "CHECKPOINT_S", 0.0)
    tables, settings = real
    name = MESSAGES.name_in(settings)
    for seq in range(1, 6):
        item = encode_item(PersistItem(message(seq), None))
        await tables.client.call("put_item", {"TableName": name, "Item": item})
    key = {each: item[each] for each in MESSAGES.key.names}
    await tables.client.call("delete_item", {"TableName": name, "Key": key})
    recorder = RemovalRecorder()
    async with open_dynamodb_streams(settings) as client:
        streams = StreamReader(client, settings)
        (shard,) = await streams.list_shards()
        page = await streams.read(await streams.open_iterator(shard, None))
        middle = page.records[2].sequence
        rest = await streams.read(await streams.open_iterator(shard, middle))
        rows = StreamCheckpoints(tables.client, LEASE_S)
        reader = TtlStreamReader(
            streams=streams,
            rows=rows,
            handler=recorder,
            name="r1",
            clock=JumpClock(),
            poll_s=0.02,
            lease_s=LEASE_S,
        )

        async def is_read() -> bool:
            known = (await rows.get_state(JumpClock().time())).progress
            return any(each.position == page.records[-1].sequence for each in known.values())

        async with reading(reader):
            await eventually(is_read)

    assert [each.removed for each in page.records] == [None] * 6
    assert rest.records == page.records[3:]
    assert all(each.created_s > 0 for each in page.records)
    assert recorder.seqs == []
