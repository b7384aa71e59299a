"""A thousand clients that stop reading: all are closed, memory is bounded, and others can chat."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Callable

import psutil
import pytest

from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually, free_port
from tests.support.stack import NewName, Stack, read_metric
from tests.support.wire import RawSocket

USERS, DEVICES = 50, 20
QUEUE_BYTES_MAX = 65_536
WRITE_HIGH_WATER = 65_536  # the transport's own buffer, before the send queue
MESSAGES = 48  # of 16 KB: twice what the send queue and the kernel's buffers hold
SLOW = 3001
DEADLINE_S = 240.0  # a thousand clients take long on a slow machine


async def open_stalled(stack: Stack, port: int, user: str, device: str) -> RawSocket:
    """Connect a device that sends hello, reads `welcome`, and then stops reading."""
    ws = await RawSocket.open(port, receive_bytes=4096)
    hello = {"type": "hello", "v": 1, "token": stack.token(user), "device": device}
    await ws.send_json(hello)
    assert (await ws.recv_json(DEADLINE_S))["type"] == "welcome"
    return ws


async def send_message(device: RawChat, chat: str, body: str) -> None:
    """Send a message and wait for its ack."""
    pending = await device.send_nowait(chat, body)
    assert pending.attempt is not None
    async with asyncio.timeout(DEADLINE_S):
        await pending.attempt


async def chat_until_stopped(
    alice: RawChat, bob: RawChat, chat: str, is_stopped: asyncio.Event
) -> int:
    """Exchange messages one at a time until the event is set; return their number."""
    count = 0
    while not is_stopped.is_set():
        await send_message(alice, chat, f"n{count}")
        await bob.expect(lambda me, seen=count: len(me.messages(chat)) > seen, DEADLINE_S)
        count += 1
        await asyncio.sleep(0.02)
    return count


@pytest.mark.timeout(900)
async def test_thousand_clients_that_stop_reading_are_closed_and_others_are_not_affected(
    stack: Stack,
    new_name: NewName,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    """Each is closed with `slow`, and memory grows by at most the bounds of the queues."""
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 2 * USERS * DEVICES
    metrics_port = free_port()
    gateway = stack.start_gateway(
        CHAT_GATEWAY_SEND_QUEUE_BYTES_MAX=str(QUEUE_BYTES_MAX),
        CHAT_GATEWAY_SESSIONS_PER_USER_MAX=str(DEVICES),
        CHAT_TELEMETRY_METRICS_PORT=str(metrics_port),
        # Stalled clients do not answer pings either, and opening all of them may take long.
        CHAT_GATEWAY_PING_INTERVAL_S="600",
        CHAT_GATEWAY_PONG_TIMEOUT_S="300",
    )
    assert gateway.process is not None
    process = psutil.Process(gateway.process.pid)
    users = [new_name("stalled") for _ in range(USERS)]
    sender, alice = (
        stack.chat_of(new_name("sender"), port=gateway.port),
        stack.chat_of(new_name("a")),
    )
    bob = stack.chat_of(new_name("b"), port=gateway.port)
    await stack.add_users(users)
    async with sender, alice, bob:
        group = await sender.create_group(users)
        pair = await alice.open_direct(bob.user)
        stalled: list[RawSocket] = []
        for user in users:
            opening = [open_stalled(stack, gateway.port, user, f"d{n}") for n in range(DEVICES)]
            stalled += await asyncio.gather(*opening)
        before = peak = process.memory_info().rss
        is_stopped = asyncio.Event()
        chatting = asyncio.create_task(chat_until_stopped(alice, bob, pair, is_stopped))

        async def count_closed() -> float:
            return await read_metric(metrics_port, f'closes_total{{code="{SLOW}"}}')

        body = "\U0001f600" * 4000  # 16 KB
        for _ in range(MESSAGES):
            await send_message(sender, group, body)
            peak = max(peak, process.memory_info().rss)

        async def are_all_closed() -> bool:
            nonlocal peak
            peak = max(peak, process.memory_info().rss)
            closed = await count_closed()
            assert closed == len(stalled), f"{closed:g} of {len(stalled)} were closed"
            return True

        await eventually(are_all_closed, DEADLINE_S, "all slow clients are closed")
        await eventually(lambda: chatting.done() or len(bob.messages(pair)) > 5, DEADLINE_S)
        is_stopped.set()
        exchanged = await chatting

        closed = await count_closed()
        for ws in stalled:
            with contextlib.suppress(ConnectionError):
                await ws.abort()
    gateway.kill()
    stack.gateways.remove(gateway)

    growth = peak - before
    record_testsuite_property(f"kb_used_by_{len(stalled)}_slow_clients", growth // 1024)
    record_testsuite_property("messages_of_others_meanwhile", exchanged)
    assert closed == len(stalled)
    assert growth <= len(stalled) * (QUEUE_BYTES_MAX + WRITE_HIGH_WATER + 16_384)
