"""Blocking wait for stream entries."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.errors import Unavailable
from chatserver.hot.bus.stream_waiter import FIRST, StreamWaiter
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from tests.integration.hot.support import redis_settings
from tests.support.servers.processes import StartRedis, redis_url_of

LONG_MS = 60_000


async def append(hot: HotClient, key: str) -> str:
    """Append an entry and return its id."""
    name: bytes = await hot.call("XADD", key, "*", "f", "v")
    return name.decode()


async def test_wait_returns_an_entry_appended_during_the_wait(hot: HotClient) -> None:
    """The wait ends when the entry arrives and not at its deadline."""
    waiter = StreamWaiter(hot, "s")
    waiting = asyncio.create_task(waiter.wait_after(FIRST, LONG_MS))
    entry = await append(hot, "s")

    assert await waiting == entry

    await waiter.close()


async def test_wait_returns_an_existing_entry_at_once(hot: HotClient) -> None:
    """Only entries after the given one count."""
    waiter = StreamWaiter(hot, "s")
    first, second = await append(hot, "s"), await append(hot, "s")

    assert await waiter.wait_after(FIRST, LONG_MS) == first
    assert await waiter.wait_after(first, LONG_MS) == second
    assert await waiter.wait_after(second, 1) is None

    await waiter.close()


async def test_wait_fails_when_redis_goes_down(start_redis: StartRedis) -> None:
    """Workers then restart and reconnect."""
    server = start_redis()
    async with open_hot(redis_settings(redis_url_of(server))) as hot:
        waiter = StreamWaiter(hot, "s")
        assert await waiter.wait_after(FIRST, 1) is None  # the waiter is connected
        waiting = asyncio.create_task(waiter.wait_after(FIRST, LONG_MS))
        await asyncio.sleep(0)
        server.kill()

        with pytest.raises(Unavailable):
            await waiting

        await waiter.close()
