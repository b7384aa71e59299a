"""Gateway streams: many records per entry, no data for dead gateways, reported losses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chatserver.domain.ids import GatewayId, UserId
from chatserver.hot.bus.gateway_stream import (
    STREAM_TTL_S,
    AnyRecord,
    CallResult,
    GatewayStream,
    GatewayStreamWriter,
    NewSeq,
)
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from tests.integration.hot.support import cancel_task, redis_settings
from tests.support.servers.processes import StartRedis, eventually, redis_url_of

GATEWAY = GatewayId("gw1")
KEY = "{gw:gw1}:stream"


class Owner:
    """A gateway that reads its stream."""

    def __init__(self, hot: HotClient) -> None:
        self.gateway_stream = GatewayStream(hot, GATEWAY)
        self.batches: list[list[AnyRecord]] = []
        self.losses = 0

    @property
    def seqs(self) -> list[int]:
        """Return the seqs of the notifications in order."""
        return [r.seq for batch in self.batches for r in batch if isinstance(r, NewSeq)]

    async def read(self) -> None:
        """Read until cancelled."""
        async for batch in self.gateway_stream.iter_records():
            if batch is None:
                self.losses += 1
            elif batch:
                self.batches.append(batch)


@contextlib.asynccontextmanager
async def reading(hot: HotClient) -> AsyncIterator[Owner]:
    """Start a reader; yield it once it is reading."""
    owner = Owner(hot)
    task = asyncio.create_task(owner.read())
    try:
        await eventually(lambda: owner.losses == 1)
        yield owner
    finally:
        await cancel_task(task)


async def test_records_of_one_tick_share_an_entry(hot: HotClient) -> None:
    """A group message needs one call for all its members on a gateway."""
    async with reading(hot) as owner:
        writer = GatewayStreamWriter(hot)
        before = await hot.call("XLEN", KEY)
        for seq in range(50):
            writer.send(GATEWAY, NewSeq("alice", seq))

        await eventually(lambda: len(owner.seqs) == 50)

        assert owner.seqs == list(range(50))
        assert len(owner.batches) == 1
        assert await hot.call("XLEN", KEY) == before + 1


async def test_records_of_many_ticks_keep_their_order(hot: HotClient) -> None:
    """Records are read once and in the order of sending."""
    async with reading(hot) as owner:
        writer = GatewayStreamWriter(hot)
        for seq in range(1_000):
            writer.send(GATEWAY, NewSeq("alice", seq))
            if seq % 3 == 0:
                await asyncio.sleep(0)

        await eventually(lambda: len(owner.seqs) >= 1_000)

        assert owner.seqs == list(range(1_000))
        assert owner.losses == 1


async def test_reader_starts_with_a_loss(hot: HotClient) -> None:
    """The gateway does not know earlier records, so it compares every inbox once."""
    owner = GatewayStream(hot, GATEWAY)
    await owner.renew()
    GatewayStreamWriter(hot).send(GATEWAY, NewSeq("alice", 1))
    await hot.call("PING")

    records = owner.iter_records()

    assert await anext(records) is None
    await records.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_records_for_a_dead_gateway_are_reported_and_not_written(hot: HotClient) -> None:
    """A dead gateway uses no memory. Users with notifications are reported once."""
    writer, reported = GatewayStreamWriter(hot), list[set[UserId]]()
    writer.on_dead_gateway.append(reported.append)

    writer.send(GATEWAY, NewSeq("alice", 1))
    writer.send(GATEWAY, NewSeq("bob", 1))
    writer.send(GATEWAY, CallResult("id", "", b""))
    await eventually(lambda: reported)

    assert reported == [{"alice", "bob"}]
    assert await hot.call("EXISTS", KEY) == 0


async def test_records_for_a_live_gateway_are_not_reported(hot: HotClient) -> None:
    """A gateway is dead only if its stream is missing."""
    await GatewayStream(hot, GATEWAY).renew()
    writer, reported = GatewayStreamWriter(hot), list[set[UserId]]()
    writer.on_dead_gateway.append(reported.append)

    writer.send(GATEWAY, NewSeq("alice", 1))
    await asyncio.sleep(0)
    await hot.call("PING")

    assert reported == []


async def test_gateway_stream_expires_unless_it_is_renewed(hot: HotClient) -> None:
    """The stream of a dead gateway expires; a live gateway renews its own."""
    gateway_stream = GatewayStream(hot, GATEWAY)
    await gateway_stream.renew()
    assert STREAM_TTL_S / 2 < await hot.call("TTL", KEY) <= STREAM_TTL_S
    await hot.call("EXPIRE", KEY, STREAM_TTL_S // 3)

    await gateway_stream.renew()

    assert await hot.call("TTL", KEY) > STREAM_TTL_S / 2
    await gateway_stream.remove()
    assert await hot.call("EXISTS", KEY) == 0


async def test_gateway_stream_that_expired_is_created_again(hot: HotClient) -> None:
    """A gateway that was paused past the expiry continues to read."""
    async with reading(hot) as owner:
        await hot.call("UNLINK", KEY)
        await owner.gateway_stream.renew()

        GatewayStreamWriter(hot).send(GATEWAY, NewSeq("alice", 7))

        await eventually(lambda: owner.seqs == [7])


async def post_raw(hot: HotClient, count: int, start: int = 0) -> None:
    """Write entries with one notification each into the stream."""
    writer: Any = GatewayStreamWriter(hot)
    for seq in range(start, start + count):
        writer._out = {GATEWAY: [NewSeq("alice", seq)]}
        writer._flush()
    await hot.call("PING")


@pytest.mark.constants({"chatserver.hot.bus.gateway_stream.STREAM_ENTRIES_MAX": 1000})
async def test_bursts_of_records_are_no_loss_while_the_reader_keeps_up(redis_url: str) -> None:
    """Trimming of records that were read is not a loss."""
    async with open_hot(redis_settings(redis_url)) as hot, reading(hot) as owner:
        for start in range(0, 4_000, 400):
            await post_raw(hot, 400, start)
            await eventually(lambda: len(owner.seqs) == start + 400)  # noqa: B023  # at once

        assert owner.seqs == list(range(4_000))
        assert owner.losses == 1


@pytest.mark.constants({"chatserver.hot.bus.gateway_stream.STREAM_ENTRIES_MAX": 500})
async def test_gateway_stream_is_bounded_and_a_slow_reader_gets_a_loss(
    redis_url: str,
) -> None:
    """Dropped records are reported, so the gateway compares every inbox."""
    async with open_hot(redis_settings(redis_url)) as hot:
        owner = Owner(hot)
        records = owner.gateway_stream.iter_records()
        assert await anext(records) is None  # the reader reads once, then pauses

        await post_raw(hot, 3_000)

        assert await hot.call("XLEN", KEY) < 700
        assert await anext(records) is None
        await post_raw(hot, 1, start=9_999)
        assert await anext(records) == [NewSeq("alice", 9_999)]
        await records.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_reader_continues_after_redis_was_down(start_redis: StartRedis) -> None:
    """The reader waits until Redis is back, and reports a possible loss."""
    server = start_redis("always")
    async with open_hot(redis_settings(redis_url_of(server))) as hot, reading(hot) as owner:
        server.kill()
        server.start()
        await eventually(lambda: owner.losses >= 2 and hot.is_up)
        await owner.gateway_stream.renew()

        GatewayStreamWriter(hot).send(GATEWAY, NewSeq("alice", 3))

        await eventually(lambda: owner.seqs == [3])


async def test_records_sent_while_the_reader_was_disconnected_are_read(hot: HotClient) -> None:
    """Records posted during the disconnect are not lost."""
    async with reading(hot) as owner:
        GatewayStreamWriter(hot).send(GATEWAY, NewSeq("alice", 1))
        await eventually(lambda: owner.seqs == [1])

        await kill_readers(hot)
        GatewayStreamWriter(hot).send(GATEWAY, NewSeq("alice", 2))

        await eventually(lambda: owner.seqs == [1, 2])
        assert owner.losses > 1


async def test_records_written_while_redis_is_full_are_delivered(start_redis: StartRedis) -> None:
    """A full Redis accepts responses and `stored`. A lost stream is created again."""
    server = start_redis("no")
    async with open_hot(redis_settings(redis_url_of(server))) as hot, reading(hot) as owner:
        await hot.call("CONFIG", "SET", "maxmemory", 1)
        GatewayStreamWriter(hot).send(GATEWAY, NewSeq("alice", 1))
        await eventually(lambda: 1 in owner.seqs)
        await hot.call("UNLINK", KEY)
        await kill_readers(hot)
        await eventually(lambda: owner.losses >= 2)

        async def is_received() -> bool:
            GatewayStreamWriter(hot).send(GATEWAY, NewSeq("alice", 2))
            await hot.call("PING")
            return 2 in owner.seqs

        await eventually(is_received)


@pytest.mark.parametrize("ticks", range(12))
async def test_gateway_stream_reader_cancelled_at_any_moment_ends(
    hot: HotClient, ticks: int
) -> None:
    """The reader of a stopping gateway ends, however busy the stream is."""
    owner = Owner(hot)
    task = asyncio.create_task(owner.read())
    await eventually(lambda: owner.losses == 1)
    GatewayStreamWriter(hot).send(GATEWAY, NewSeq("alice", 1))
    while not owner.batches:
        await asyncio.sleep(0)
    for _ in range(ticks):
        await asyncio.sleep(0)

    task.cancel()
    done, _ = await asyncio.wait([task], timeout=20)
    await cancel_task(task)

    assert done, "the reader did not end after its cancellation"


async def kill_readers(hot: HotClient) -> None:
    """Kill every blocked connection, once there is at least one."""

    async def kill() -> int:
        killed = 0
        clients = (await hot.call("CLIENT", "LIST", "TYPE", "normal")).decode()
        for line in clients.splitlines():
            fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
            if "b" in fields["flags"]:
                killed += await hot.call("CLIENT", "KILL", "ID", fields["id"])
        return killed

    # A reader's connection is not blocked between two reads.
    await eventually(kill)
