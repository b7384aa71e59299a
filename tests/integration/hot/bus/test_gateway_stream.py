"""Gateway streams: many records per entry, nothing kept for dead gateways, losses reported."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chatserver.domain.ids import GatewayId, UserId
from chatserver.hot.bus.gateway_stream import (
    STREAM_TTL_S,
    Answer,
    AnyRecord,
    GatewayStream,
    GatewayStreamWriter,
    NewSeq,
)
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from tests.integration.hot.support import patient
from tests.support.servers.processes import StartRedis, eventually, redis_url_of

pytest_plugins = ["tests.integration.hot.fixtures"]

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
        """The notifications, in order."""
        return [r.seq for batch in self.batches for r in batch if isinstance(r, NewSeq)]

    async def read(self) -> None:
        """Read until cancelled."""
        async for batch in self.gateway_stream.iter_records():
            if batch is None:
                self.losses += 1
            elif batch:
                self.batches.append(batch)


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a reader for good."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.2)


@contextlib.asynccontextmanager
async def reading(hot: HotClient) -> AsyncIterator[Owner]:
    """An owner that has begun to read."""
    owner = Owner(hot)
    task = asyncio.create_task(owner.read())
    try:
        await eventually(lambda: owner.losses == 1)
        yield owner
    finally:
        await end(task)


async def test_mail_of_one_tick_shares_an_entry(hot: HotClient) -> None:
    """A group's message costs one call for all its members on a gateway."""
    async with reading(hot) as owner:
        postman = GatewayStreamWriter(hot)
        before = await hot.call("XLEN", KEY)
        for seq in range(50):
            postman.post(GATEWAY, NewSeq("alice", seq))

        await eventually(lambda: len(owner.seqs) == 50)

        assert owner.seqs == list(range(50))
        assert len(owner.batches) == 1
        assert await hot.call("XLEN", KEY) == before + 1


async def test_mail_of_many_ticks_keeps_its_order(hot: HotClient) -> None:
    """Records are read in the order of posting, each once."""
    async with reading(hot) as owner:
        postman = GatewayStreamWriter(hot)
        for seq in range(1_000):
            postman.post(GATEWAY, NewSeq("alice", seq))
            if seq % 3 == 0:
                await asyncio.sleep(0)

        await eventually(lambda: len(owner.seqs) >= 1_000)

        assert owner.seqs == list(range(1_000))
        assert owner.losses == 1


async def test_mail_begins_with_a_loss_that_makes_the_owner_look(hot: HotClient) -> None:
    """Earlier records are unknown, so every inbox is compared once."""
    owner = GatewayStream(hot, GATEWAY)
    await owner.renew()
    GatewayStreamWriter(hot).post(GATEWAY, NewSeq("alice", 1))
    await hot.call("PING")

    records = owner.iter_records()

    assert await anext(records) is None
    await records.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_mail_to_a_gateway_that_is_gone_writes_nothing_and_is_told(hot: HotClient) -> None:
    """A dead gateway costs no memory; its users are reported once, except for responses."""
    postman, gone = GatewayStreamWriter(hot), list[set[UserId]]()
    postman.on_gone = gone.append

    postman.post(GATEWAY, NewSeq("alice", 1))
    postman.post(GATEWAY, NewSeq("bob", 1))
    postman.post(GATEWAY, Answer("id", "", b""))
    await eventually(lambda: gone)

    assert gone == [{"alice", "bob"}]
    assert await hot.call("EXISTS", KEY) == 0


async def test_mail_to_an_owner_that_is_there_is_not_told_as_gone(hot: HotClient) -> None:
    """Only an absent gateway stream counts."""
    await GatewayStream(hot, GATEWAY).renew()
    postman, gone = GatewayStreamWriter(hot), list[set[UserId]]()
    postman.on_gone = gone.append

    postman.post(GATEWAY, NewSeq("alice", 1))
    await asyncio.sleep(0)
    await hot.call("PING")

    assert gone == []


async def test_gateway_stream_expires_unless_it_is_kept(hot: HotClient) -> None:
    """The stream of a dead gateway expires; a live gateway refreshes its own."""
    gateway_stream = GatewayStream(hot, GATEWAY)
    await gateway_stream.renew()
    assert STREAM_TTL_S / 2 < await hot.call("TTL", KEY) <= STREAM_TTL_S
    await hot.call("EXPIRE", KEY, STREAM_TTL_S // 3)

    await gateway_stream.renew()

    assert await hot.call("TTL", KEY) > STREAM_TTL_S / 2
    await gateway_stream.remove()
    assert await hot.call("EXISTS", KEY) == 0


async def test_gateway_stream_that_vanished_is_made_again(hot: HotClient) -> None:
    """An owner that slept past the expiry goes on reading when it is back."""
    async with reading(hot) as owner:
        await hot.call("UNLINK", KEY)
        await owner.gateway_stream.renew()

        GatewayStreamWriter(hot).post(GATEWAY, NewSeq("alice", 7))

        await eventually(lambda: owner.seqs == [7])


async def post_raw(hot: HotClient, count: int, start: int = 0) -> None:
    """Put entries with one notification each into the stream, all at once."""
    postman: Any = GatewayStreamWriter(hot)
    for seq in range(start, start + count):
        postman._out = {GATEWAY: [NewSeq("alice", seq)]}
        postman._flush()
    await hot.call("PING")


@pytest.mark.constants({"chatserver.hot.bus.gateway_stream.STREAM_ENTRIES_MAX": 1000})
async def test_mail_in_bursts_is_no_loss_while_the_owner_keeps_up(redis_url: str) -> None:
    """However much has passed through the stream before: only what is trimmed is lost."""
    async with open_hot(patient(redis_url)) as hot, reading(hot) as owner:
        for start in range(0, 4_000, 400):
            await post_raw(hot, 400, start)
            await eventually(lambda: len(owner.seqs) == start + 400)  # noqa: B023  # at once

        assert owner.seqs == list(range(4_000))
        assert owner.losses == 1


@pytest.mark.constants({"chatserver.hot.bus.gateway_stream.STREAM_ENTRIES_MAX": 500})
async def test_gateway_stream_is_bounded_and_an_owner_that_fell_behind_is_told(
    redis_url: str,
) -> None:
    """Dropped records are not skipped silently: the owner compares every inbox."""
    async with open_hot(patient(redis_url)) as hot:
        owner = Owner(hot)
        records = owner.gateway_stream.iter_records()
        assert await anext(records) is None  # it reads, and then is busy

        await post_raw(hot, 3_000)

        assert await hot.call("XLEN", KEY) < 700
        assert await anext(records) is None
        await post_raw(hot, 1, start=9_999)
        assert await anext(records) == [NewSeq("alice", 9_999)]
        await records.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_mail_goes_on_after_redis_was_away(start_redis: StartRedis) -> None:
    """The reader waits until Redis is back, and reports a possible loss."""
    server = start_redis("always")
    async with open_hot(patient(redis_url_of(server))) as hot, reading(hot) as owner:
        server.kill()
        server.start()
        await eventually(lambda: owner.losses >= 2 and hot.is_up)
        await owner.gateway_stream.renew()

        GatewayStreamWriter(hot).post(GATEWAY, NewSeq("alice", 3))

        await eventually(lambda: owner.seqs == [3])


async def test_mail_sent_while_the_owner_s_link_was_down_is_read_afterwards(hot: HotClient) -> None:
    """Records posted during the disconnect are not lost."""
    async with reading(hot) as owner:
        GatewayStreamWriter(hot).post(GATEWAY, NewSeq("alice", 1))
        await eventually(lambda: owner.seqs == [1])

        await kill_readers(hot)
        GatewayStreamWriter(hot).post(GATEWAY, NewSeq("alice", 2))

        await eventually(lambda: owner.seqs == [1, 2])
        assert owner.losses > 1


async def test_records_written_while_redis_is_full_are_delivered(start_redis: StartRedis) -> None:
    """A full Redis accepts responses and `stored`; a lost stream is created again (F10, F45)."""
    server = start_redis("no")
    async with open_hot(patient(redis_url_of(server))) as hot, reading(hot) as owner:
        await hot.call("CONFIG", "SET", "maxmemory", 1)
        GatewayStreamWriter(hot).post(GATEWAY, NewSeq("alice", 1))
        await eventually(lambda: 1 in owner.seqs)
        await hot.call("UNLINK", KEY)
        await kill_readers(hot)
        await eventually(lambda: owner.losses >= 2)

        async def is_received() -> bool:
            GatewayStreamWriter(hot).post(GATEWAY, NewSeq("alice", 2))
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
    GatewayStreamWriter(hot).post(GATEWAY, NewSeq("alice", 1))
    while not owner.batches:
        await asyncio.sleep(0)
    for _ in range(ticks):
        await asyncio.sleep(0)

    task.cancel()
    done, _ = await asyncio.wait([task], timeout=20)
    await end(task)

    assert done, "the cancellation was swallowed"


async def kill_readers(hot: HotClient) -> None:
    """Cut every connection that waits for something, once there is one."""

    async def kill() -> int:
        killed = 0
        clients = (await hot.call("CLIENT", "LIST", "TYPE", "normal")).decode()
        for line in clients.splitlines():
            fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
            if "b" in fields["flags"]:
                killed += await hot.call("CLIENT", "KILL", "ID", fields["id"])
        return killed

    # Between two reads, and after what it read last, a reader does not wait for a moment.
    await eventually(kill)
