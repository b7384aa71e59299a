"""Idle workers make few calls to Redis, and a wake-up ends their wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import SystemClock
from chatserver.features.social.hot import PostWakeUp
from chatserver.hot.redis.client import HotClient
from tests.integration.workers.support import running, with_attributes
from tests.support.servers.processes import eventually
from workers import delivery_repair
from workers.delivery_repair import RepairWorker

SPAN_S = 60.0


class Elapsed(Exception):
    """Raised at the end of the virtual time span."""


class VirtualClock(SystemClock):
    """A clock that advances only while a worker sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """Return the virtual seconds."""
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Advance the clock without waiting; end the worker after `SPAN_S`."""
        self.now_s += seconds
        if self.now_s >= SPAN_S:
            raise Elapsed
        await asyncio.sleep(0)


def count_calls(hot: HotClient, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the name of each call to Redis in the returned list."""
    calls: list[Any] = []
    send = hot.send

    def counted(on_reply: Any, *args: Any) -> None:
        calls.append(args[0])
        send(on_reply, *args)

    monkeypatch.setattr(hot, "send", counted)
    return calls


async def test_idle_repair_worker_sends_few_redis_calls(
    container: StorageContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renews the lease and reads twice each second, and checks evictions every five seconds."""
    clock = VirtualClock()
    monkeypatch.setattr(delivery_repair, "sleep_aligned", clock.sleep)
    worker = RepairWorker(with_attributes(container, clock=clock), 0, "w1")
    calls = count_calls(container.hot, monkeypatch)

    with pytest.raises(Elapsed):
        await worker.run()

    assert len(calls) <= 3.5 * SPAN_S


async def test_repair_worker_with_a_pending_fan_out_checks_every_half_second(
    container: StorageContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fan-out that is not overdue yet is repaired within 1.5 s of its commit."""
    seconds, _ = await container.hot.call("TIME")
    listed = container.hot.keys.undelivered(0)
    await container.hot.call("ZADD", listed, (int(seconds) + 3600) * 1000, "chat")
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        raise Elapsed

    monkeypatch.setattr(delivery_repair, "sleep_aligned", sleep)

    with pytest.raises(Elapsed):
        await RepairWorker(container, 0, "w1").run()

    assert waits == [0.5]


async def test_standby_repair_worker_claims_the_lease_every_half_second(
    container: StorageContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replaces a crashed worker soon after the lease expires."""
    assert await RepairWorker(container, 0, "w1")._lease.claim()
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        raise Elapsed

    monkeypatch.setattr(delivery_repair, "sleep_aligned", sleep)
    monkeypatch.setattr(delivery_repair, "LEASE_S", 60.0)

    with pytest.raises(Elapsed):
        await RepairWorker(container, 0, "w2").run()

    assert waits == [0.5]


async def test_post_wakes_up_all_waiting_shards(container: StorageContainer) -> None:
    """Waiting makes no calls to Redis, because one blocking read serves all shards."""
    wake_up = PostWakeUp(container.hot)
    async with running(wake_up.listen()):
        waits = [asyncio.create_task(wake_up.wait(0, 3600.0)) for _ in range(3)]
        await PostWakeUp(container.hot).notify()
        await asyncio.gather(*waits)

        assert wake_up.version == 1
        await wake_up.wait(0, 3600.0)  # returns at once, because the version is above 0

        await PostWakeUp(container.hot).notify()
        await eventually(lambda: wake_up.version == 2)


async def test_wake_up_before_the_listener_starts_is_not_lost(container: StorageContainer) -> None:
    """A post between the first poll and the first blocking read ends the wait."""
    await PostWakeUp(container.hot).notify()
    wake_up = PostWakeUp(container.hot)

    async with running(wake_up.listen()):
        await wake_up.wait(0, 3600.0)

    assert wake_up.version == 1
