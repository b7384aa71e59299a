"""Factory for the configured Redis client: a single server or a Redis Cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from chatserver import config
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.cluster import ClusterClient
from chatserver.hot.redis.single_server import SingleClient


def make_hot(settings: config.Redis, *, is_read_only: bool = False) -> HotClient:
    """Return an unconnected client for the configured Redis; see `HotClient` for `is_read_only`.

    Raises:
        ConfigError: the address is invalid.
    """
    if settings.cluster:
        return ClusterClient(settings, is_read_only=is_read_only)
    return SingleClient(settings, is_read_only=is_read_only)


@contextlib.asynccontextmanager
async def open_hot(settings: config.Redis) -> AsyncIterator[HotClient]:
    """Open a client and keep it connected; close it on exit.

    Raises:
        Unavailable: there is no Redis at the address.
        ConfigError: the server cannot be used with these settings.
    """
    client = make_hot(settings)
    try:
        await client.connect()
        helpers = [
            asyncio.create_task(client.maintain_connection(), name="hot-keeper"),
            asyncio.create_task(client.watch_epochs(), name="hot-epochs"),
        ]
        try:
            yield client
        finally:
            for helper in helpers:
                helper.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await helper
    finally:
        await client.close()
