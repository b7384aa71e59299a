"""Memory usage of each Redis server."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import redis.exceptions

from chatserver.errors import REDIS_DOWN, Unavailable
from chatserver.hot.redis.client import HotClient


@dataclasses.dataclass(frozen=True, slots=True)
class ServerMemory:
    """Memory usage (bytes, including overhead) and number of keys of one master."""

    server: str
    bytes: int
    keys: int


async def list_memory(hot: HotClient) -> list[ServerMemory]:
    """Return the memory usage of each master that has a partition.

    Raises:
        Unavailable: a master does not respond.
    """
    memory: dict[str, ServerMemory] = {}
    for partition in range(hot.keys.partitions):
        client = hot.create_blocking_client(hot.keys.epoch(partition))
        try:
            address = client.connection_pool.connection_kwargs
            server = str(address.get("path") or f"{address.get('host')}:{address.get('port')}")
            if server not in memory:
                memory[server] = await _read_memory(hot, client, server)
        finally:
            await client.aclose()
    return list(memory.values())


async def _read_memory(hot: HotClient, client: Any, server: str) -> ServerMemory:
    try:
        async with asyncio.timeout(hot.settings.call_timeout_s):
            info = await client.info()
    except (redis.exceptions.RedisError, OSError, TimeoutError) as exc:
        raise Unavailable(f"redis at {server}: {exc or 'timed out'}", public=REDIS_DOWN) from exc
    keys = sum(database["keys"] for name, database in info.items() if name.startswith("db"))
    return ServerMemory(server, int(info["used_memory"]), keys)
