"""`kill -9` of one process at any time: every acked message arrives once and in order."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.chaos.world import DEADLINE_S, SECONDS, World
from tests.support.stack import Stack, start_async

in_partitions = pytest.mark.parametrize("stack", [1, 4], indirect=True)


@in_partitions
async def test_run_without_faults_keeps_all_guarantees(world: World, stack: Stack) -> None:
    """Self-test of the checkers: a run without faults passes."""
    async with world:
        await world.chat_for(SECONDS)
        await world.finish_and_check()


@in_partitions
async def test_gateway_killed_loses_and_repeats_nothing(world: World, stack: Stack) -> None:
    """One of two gateways is killed under load; its users reconnect to the other."""
    async with world:
        victim = world.random.choice(stack.gateways)
        await world.chat_for(SECONDS / 2)
        victim.kill()
        await world.wait_for_acks()
        await world.chat_for(SECONDS / 2)
        await start_async(victim)
        await world.finish_and_check()


@pytest.mark.parametrize(
    "point",
    [
        "persist.before_write",
        "persist.after_write",
        "persist.before_checkpoint",
        "persist.after_checkpoint",
    ],
)
async def test_persist_worker_killed_at_any_step_loses_and_repeats_nothing(
    world: World, stack: Stack, point: str
) -> None:
    """The worker is killed between two of its steps; the next one continues from the checkpoint."""
    await asyncio.to_thread(stack.workers["persist"].stop)
    times = world.random.randint(1, 4)
    worker = await stack.start_worker_async("persist", CHAT_FAILPOINT=f"{point}:kill:{times}")
    assert worker.process is not None
    async with world:
        code = await asyncio.to_thread(worker.process.wait, DEADLINE_S)
        assert code == -signal.SIGKILL
        await world.wait_for_acks()
        await stack.start_worker_async("persist")
        await world.finish_and_check()


@in_partitions
async def test_redis_killed_and_restarted_loses_and_repeats_nothing(
    world: World, stack: Stack
) -> None:
    """With AOF `always`, acked messages survive and users resume."""
    async with world:
        await world.chat_for(SECONDS / 2)
        stack.redis.kill()
        await world.chat_for(0.5)
        await start_async(stack.redis)
        await world.wait_for_acks()
        await world.chat_for(SECONDS / 2)
        await world.finish_and_check()
