"""Push notifications to users whose devices have just disconnected, with real processes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.features.push.warm.subscriptions import PushSubscriptions
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.support.servers.processes import eventually, redis_client
from tests.support.servers.push_service import Browser, PushService, open_push_service
from tests.support.servers.tcp_proxy import TcpProxy
from tests.support.stack import Stack, open_stack

SETTINGS = {
    "CHAT_PRESENCE_OFFLINE_GRACE_S": "2",
    "CHAT_GATEWAY_PING_INTERVAL_S": "2",
    "CHAT_GATEWAY_PONG_TIMEOUT_S": "1.5",
    "CHAT_GATEWAY_ONLINE_TTL_S": "6",
}
DISCONNECTED = [f"disconnected-{n}" for n in range(4)]


@pytest.fixture
async def push_service() -> AsyncIterator[PushService]:
    """A push service."""
    async with open_push_service() as made:
        yield made


@pytest.fixture
async def push_stack(tmp_path: Path, push_service: PushService) -> AsyncIterator[Stack]:
    """A gateway and all workers; the notify worker sends to the push service."""
    notify = {f"CHAT_NOTIFY_{k}".upper(): str(v) for k, v in push_service.settings().items()}
    outbound = {"CHAT_OUTBOUND_ALLOW_PRIVATE": json.dumps(["127.0.0.0/8"])}
    workers = (("persist", "repair", "rpc", "notify"),)
    with open_stack(tmp_path, workers=workers, env=SETTINGS | notify | outbound) as stack:
        yield stack


async def subscribe(stack: Stack, service: PushService, users: list[str]) -> dict[str, Browser]:
    """Register a browser of each user."""
    browsers = {user: service.new_browser() for user in users}
    async with open_dynamodb(stack.warm) as client:
        subscriptions = PushSubscriptions(client, 10)
        for user, browser in browsers.items():
            await subscriptions.put(browser.subscription_of(UserId(user)), SystemClock().time())
    return browsers


async def test_push_is_sent_once_to_disconnected_users_and_not_to_connected_ones(
    push_stack: Stack, push_service: PushService
) -> None:
    """A closed or half-open session that still counts as online does not suppress a push."""
    stack = push_stack
    users = [*DISCONNECTED, "half-open", "present"]
    await stack.add_users(["sender", *users])
    browsers = await subscribe(stack, push_service, users)
    async with AsyncExitStack() as opened:
        proxy = await opened.enter_async_context(TcpProxy(stack.port))
        sender = await opened.enter_async_context(stack.chat_of("sender"))
        chats = {}
        devices = {}
        for user in users:
            port = proxy.port if user == "half-open" else stack.port
            devices[user] = await stack.chat_of(user, port=port).start()
            opened.push_async_callback(devices[user].abort)
            chats[user] = await sender.open_direct(user)

        proxy.blackhole()
        for user in users:
            if user in DISCONNECTED:
                await devices[user].stop()
            await sender.send(chats[user], f"to {user}")
        for user in [*DISCONNECTED, "half-open"]:
            (notice,) = await browsers[user].wait_for(1)
            assert notice["text"] == f"to {user}"
        with redis_client(stack.redis_url) as client:
            await eventually(lambda: client.zcard("{p0}:due") == 0, what="no push is due")
    assert {user: len(browser.taken) for user, browser in browsers.items()} == {
        **dict.fromkeys([*DISCONNECTED, "half-open"], 1),
        "present": 0,
    }
