"""Support of the Redis Cluster tests: settings and background calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from chatserver.config import Redis
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.slot_routes import HELD_MAX
from tests.integration.hot.support import redis_settings
from tests.support.servers.redis_cluster import ClusterNode, RedisCluster

PARTITIONS = 64


def settings_of(redis_cluster: RedisCluster, **changes: Any) -> Redis:
    """Return settings for the cluster."""
    return redis_settings(
        redis_cluster.url, **{"cluster": True, "partitions": PARTITIONS, **changes}
    )


def find_other_master(cluster: RedisCluster, key: str) -> ClusterNode:
    """Return a master that does not serve a key."""
    owner = cluster.owner_of(key)
    return next(node for node in cluster.masters() if node is not owner)


class Traffic:
    """Appends numbers to a list, with many calls in flight, and records the replies."""

    def __init__(self, hot: HotClient, key: str) -> None:
        self._hot = hot
        self._key = key
        self.sent = 0
        self.answered: list[int] = []  # in the order of the replies
        self.failed: list[tuple[int, str]] = []

    async def run(self) -> None:
        """Append numbers until canceled."""
        while True:
            # Fewer than may wait for a slot, even if a slow machine moves it slowly.
            if self.sent - len(self.answered) - len(self.failed) < HELD_MAX // 4:
                for _ in range(5):
                    self._send(self.sent)
                    self.sent += 1
            await asyncio.sleep(0.001)

    def _send(self, number: int) -> None:
        def on_reply(reply: Any) -> None:
            if isinstance(reply, Exception):
                self.failed.append((number, str(reply)))
            else:
                self.answered.append(number)

        self._hot.send(on_reply, "RPUSH", self._key, number)


@contextlib.asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    """Run a coroutine in the background."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
