"""Runs one worker per partition. A failed worker is restarted without affecting the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError
from chatserver.hot.redis.client import HotClient
from chatserver.task_groups import open_task_group

log = structlog.get_logger()

RESTART_S_MAX = 1.0


async def run_partitions(hot: HotClient, name: str, work: Callable[[int], Awaitable[None]]) -> None:
    """Run `work` for each partition, until cancelled.

    Raises:
        Unavailable: the whole hot tier is unavailable; restart the worker.
    """
    async with open_task_group() as group:
        for partition in range(hot.keys.partitions):
            task = run_with_restarts(hot, name, partition, work)
            group.create_task(task, name=f"{name}-{partition}")


async def run_with_restarts(
    hot: HotClient, name: str, partition: int, work: Callable[[int], Awaitable[None]]
) -> None:
    """Run `work` for a partition, and restart it when it fails, until cancelled.

    Raises:
        Unavailable: the whole hot tier is unavailable; restart the worker.
    """
    wait_s = 0.1
    loop = asyncio.get_running_loop()
    while True:
        started = loop.time()
        try:
            await work(partition)
        except ChatError as exc:
            if not hot.is_up:
                raise
            log.warning(
                "worker.partition_failed", worker=name, partition=partition, error=exc.message
            )
        if loop.time() - started > 30:
            wait_s = 0.1
        await asyncio.sleep(add_jitter(wait_s))
        wait_s = min(wait_s * 2, RESTART_S_MAX)
