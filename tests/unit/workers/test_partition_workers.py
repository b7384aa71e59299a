"""One worker per partition: a failed one is restarted, the others continue."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from chatserver.errors import Unavailable
from workers.partition_workers import run_partitions


def hot_of(partitions: int) -> Any:
    """Return the attributes of the hot tier that the runner uses."""
    return SimpleNamespace(is_up=True, keys=SimpleNamespace(partitions=partitions))


async def test_failed_partition_is_restarted_and_others_continue() -> None:
    """A cluster node that is down stops only its own partitions."""
    started: list[int] = []
    is_back = asyncio.Event()

    async def work(partition: int) -> None:
        started.append(partition)
        if partition == 1 and started.count(1) == 1:
            raise Unavailable("its node is down")
        if partition == 1:
            is_back.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run_partitions(hot_of(3), "test", work))
    async with asyncio.timeout(20):
        await is_back.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

    assert sorted(started) == [0, 1, 1, 2]


async def test_partitions_end_when_the_hot_tier_is_down() -> None:
    """The caller restarts the worker and logs the reason."""
    hot = hot_of(2)

    async def work(partition: int) -> None:
        if partition == 0:
            hot.is_up = False
            raise Unavailable("redis at nowhere: down")
        await asyncio.Event().wait()

    with pytest.raises(Unavailable, match="nowhere"):
        await run_partitions(hot, "test", work)
