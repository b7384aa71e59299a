"""A thousand clients that stop reading: each is closed, the gateway stays small, others chat on."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Callable

import psutil
import pytest

from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually, free_port
from tests.support.stack import Stack, read_metric
from tests.support.wire import RawSocket

pytest_plugins = ["tests.support.stack_fixtures"]

USERS, DEVICES = 50, 20
QUEUE_BYTES_MAX = 65_536
WRITE_HIGH_WATER = 65_536  # what the transport holds before our own queue begins
MESSAGES = 48  # of 16 KB: twice what a queue and the kernel's buffers hold
SLOW = 3001
LATE_S = 240.0  # a thousand of them are much for a slow machine; it is not wrong


async def open_deaf(stack: Stack, port: int, user: str, device: str) -> RawSocket:
    """Connect a device that sends hello, reads `welcome`, and reads nothing more."""
    ws = await RawSocket.open(port, receive_bytes=4096)
    hello = {"type": "hello", "v": 1, "token": stack.token(user), "device": device}
    await ws.send_json(hello)
    assert (await ws.recv_json(LATE_S))["type"] == "welcome"
    return ws


async def say(device: RawChat, chat: str, body: str) -> None:
    """Send a message; return when it is acked, however late."""
    pending = await device.post(chat, body)
    assert pending.attempt is not None
    async with asyncio.timeout(LATE_S):
        await pending.attempt


async def chat_until(alice: RawChat, bob: RawChat, chat: str, is_over: asyncio.Event) -> int:
    """Exchange messages one after the other; return how many."""
    count = 0
    while not is_over.is_set():
        await say(alice, chat, f"n{count}")
        await bob.expect(lambda me, seen=count: len(me.messages(chat)) > seen, LATE_S)
        count += 1
        await asyncio.sleep(0.02)
    return count


@pytest.mark.timeout(900)
async def test_thousand_clients_that_stop_reading_are_closed_and_others_do_not_notice(
    stack: Stack,
    new_name: Callable[[str], str],
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    """Each gets `slow`; memory stays within the queues' bounds, which are shared bytes anyway."""
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 2 * USERS * DEVICES
    metrics_port = free_port()
    gateway = stack.start_gateway(
        CHAT_GATEWAY_SEND_QUEUE_BYTES_MAX=str(QUEUE_BYTES_MAX),
        CHAT_GATEWAY_SESSIONS_PER_USER_MAX=str(DEVICES),
        CHAT_TELEMETRY_METRICS_PORT=str(metrics_port),
        # The deaf do not pong either, and opening them all may take longer than that.
        CHAT_GATEWAY_PING_INTERVAL_S="600",
        CHAT_GATEWAY_PONG_TIMEOUT_S="300",
    )
    assert gateway.process is not None
    process = psutil.Process(gateway.process.pid)
    users = [new_name("deaf") for _ in range(USERS)]
    loud, alice = stack.chat_of(new_name("loud"), port=gateway.port), stack.chat_of(new_name("a"))
    bob = stack.chat_of(new_name("b"), port=gateway.port)
    await stack.add_users(users)
    async with loud, alice, bob:
        group = await loud.ask("create_chat", ref="g", members=users)
        crowd = group["chat"]["chat"]
        pair = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
        deaf: list[RawSocket] = []
        for user in users:
            opening = [open_deaf(stack, gateway.port, user, f"d{n}") for n in range(DEVICES)]
            deaf += await asyncio.gather(*opening)
        before = peak = process.memory_info().rss
        is_over = asyncio.Event()
        chatting = asyncio.create_task(chat_until(alice, bob, pair, is_over))

        async def count_closed() -> float:
            return await read_metric(metrics_port, f'closes_total{{code="{SLOW}"}}')

        body = "\U0001f600" * 4000  # 16 KB
        for _ in range(MESSAGES):
            await say(loud, crowd, body)
            peak = max(peak, process.memory_info().rss)

        async def are_all_closed() -> bool:
            nonlocal peak
            peak = max(peak, process.memory_info().rss)
            closed = await count_closed()
            assert closed == len(deaf), f"{closed:g} of {len(deaf)} are closed"
            return True

        await eventually(are_all_closed, LATE_S, "all slow clients are closed")
        await eventually(lambda: chatting.done() or len(bob.messages(pair)) > 5, LATE_S)
        is_over.set()
        exchanged = await chatting

        closed = await count_closed()
        for ws in deaf:
            with contextlib.suppress(ConnectionError):
                await ws.abort()
    gateway.kill()
    stack.gateways.remove(gateway)

    grown = peak - before
    record_testsuite_property(f"kb_that_{len(deaf)}_slow_clients_cost", grown // 1024)
    record_testsuite_property("messages_of_others_meanwhile", exchanged)
    assert closed == len(deaf)
    assert grown <= len(deaf) * (QUEUE_BYTES_MAX + WRITE_HIGH_WATER + 16_384)
