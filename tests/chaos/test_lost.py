"""Data loss in Redis, of the latest writes or of everything, while users keep chatting."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis.asyncio

from tests.chaos.world import World
from tests.support.stack import Stack, start_async

in_partitions = pytest.mark.parametrize("stack", [1, 4], indirect=True)


def find_aof(stack: Stack) -> Path:
    """Return Redis's current append-only file."""
    files = [
        *stack.redis.launch.folder.rglob("*.incr.aof"),
        *stack.redis.launch.folder.glob("*.aof"),
    ]
    return max(files, key=lambda path: path.stat().st_mtime_ns)


def truncate(path: Path, size: int) -> None:
    """Truncate a file, as after a power loss."""
    with path.open("r+b") as file:
        file.truncate(size)


@in_partitions
async def test_redis_log_truncation_never_reassigns_a_seq(world: World, stack: Stack) -> None:
    """Entries that Redis lost but DynamoDB has keep their seqs; new entries get higher seqs."""
    async with world:
        await world.wait_for_acks(60)
        await world.quiesce_until_stored()
        stack.redis.kill()
        path = find_aof(stack)
        truncate(path, path.stat().st_size - 12_000)
        await start_async(stack.redis)
        world.resume()
        await world.wait_for_acks(40)
        await world.finish_and_check()


async def test_unstored_messages_are_sent_again_after_log_truncation(
    world: World, stack: Stack
) -> None:
    """The senders still have the unstored messages, so none is lost or duplicated."""
    path = find_aof(stack)
    async with world:
        await world.wait_for_acks(30)
        stack.workers["persist"].send_signal(signal.SIGSTOP)
        await world.wait_for_acks(10)
        start = path.stat().st_size
        await world.wait_for_acks(60)
        world.record_loss("log truncation")
        stack.redis.kill()
        acked = len(world.history.acks())
        truncate(path, (start + path.stat().st_size) // 2)
        await start_async(stack.redis)
        stack.workers["persist"].send_signal(signal.SIGCONT)
        await world.wait_for_acks(40)
        await world.finish_and_check()

    acks = world.history.acks()
    mids = {(seen.user, seen.ref): seen.mid for seen in acks[:acked]}
    resent = [ack for ack in acks[acked:] if mids.get((ack.user, ack.ref), ack.mid) != ack.mid]
    assert resent, "no message was lost and sent again, so the run tested nothing"


async def flush(stack: Stack) -> None:
    """Empty Redis while all users are connected."""
    client = redis.asyncio.Redis.from_url(stack.redis_url, socket_timeout=60)
    await client.flushall()
    await client.aclose()


async def restart_without_data(stack: Stack) -> None:
    """Kill Redis, and start it again without its data."""
    stack.redis.kill()
    folder = stack.redis.launch.folder
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix != ".log":
            path.unlink()
    await start_async(stack.redis)


@pytest.mark.parametrize("lose", [flush, restart_without_data])
async def test_redis_data_loss_with_connected_clients_is_recovered(
    world: World, stack: Stack, lose: Callable[[Stack], Awaitable[None]]
) -> None:
    """All clients reach the same state and read all persisted messages."""
    async with world:
        await world.wait_for_acks(60)
        await world.quiesce_until_stored()
        before = world.epochs()
        await lose(stack)
        await world.wait_for_restarts(before)
        world.resume()
        await world.wait_for_acks(40)
        await world.finish_and_check()
