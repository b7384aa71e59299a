"""A distant Redis: round trips of 250 ms with the default settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.rawchat import Failed
from tests.support.servers.processes import HOST, eventually, redis_client
from tests.support.servers.tcp_proxy import TcpProxy
from tests.support.stack import Stack, open_stack, start_async
from tests.support.wire import Ended

ROUND_TRIP_S = 0.25
DEADLINE_S = 60.0


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[tuple[TcpProxy, Stack]]:
    """Redis and DynamoDB, with a slow link to Redis."""
    with open_stack(tmp_path, gateways=0, workers=(), fsync="everysec") as stack:
        async with TcpProxy(stack.redis.port) as proxy:
            proxy.latency_s = ROUND_TRIP_S / 2  # each way
            yield proxy, stack


async def test_stack_with_redis_latency_of_250_ms_works(
    proxy: tuple[TcpProxy, Stack],
) -> None:
    """Gateway, worker and API start, messages are delivered and stored, and no lease is lost."""
    link, stack = proxy
    # This blocking call must come before the proxy is used: both share an event loop.
    await stack.add_users(["alice", "bob"])
    far = {"CHAT_REDIS_URL": f"redis://{HOST}:{link.port}/0"}
    await start_async(stack.add_gateway(**far))
    worker = await stack.start_worker_async("persist", "repair", "rpc", **far)
    await start_async(api := stack.add_api(**far))
    async with stack.chat_of("alice") as alice, stack.chat_of("bob") as bob:
        chat = await alice.open_direct("bob")
        for number in range(10):
            await alice.send(chat, f"m{number}")
        await bob.expect_bodies(chat, [f"m{number}" for number in range(10)])
        page = await bob.read_page(chat, after=0, limit=20)
        assert len(page["messages"]) == 10
        stored = await alice.send(chat, "stored", durability="stored")
        assert stored["durability"] == "stored"
    with redis_client(stack.redis_url) as admin:
        # A lease that changed hands would have a higher token than its first one.
        assert admin.hget("{p0}:lease:persist", "token") == b"1"
        # A busy machine may pause the holder of this lease of 2 s. Latency would lose it every
        # time.
        assert int(admin.hget("{p0}:lease:repair", "token") or 0) in (1, 2, 3)
    for process in (worker.process, api.process):
        assert process is not None and process.poll() is None

    made = link.connections_made
    link.reset()
    await eventually(lambda: link.connections_made > made)

    async def is_served() -> bool:
        try:
            async with stack.chat_of("bob", device="second") as again:
                return bool((await again.read_page(chat, after=0, limit=20))["messages"])
        except (Failed, Ended):
            return False

    await eventually(is_served, DEADLINE_S)
