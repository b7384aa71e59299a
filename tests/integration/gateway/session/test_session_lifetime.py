"""chat.v1: heartbeats, slow clients, draining and the loss of a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time

import pytest

from chatserver.dev.servers import Server
from tests.support.servers.processes import free_port
from tests.support.stack import WORKERS, NewName, Stack, read_metric
from tests.support.wire import CLOSE, PING, PONG, TEXT, Ended, RawSocket, Refused

SHUTDOWN, SLOW, NO_PONG = 3000, 3001, 3003


# ── heartbeats ────────────────────────────────────────────────────────────────────────────────────


async def test_peer_that_answers_pings_stays_connected(
    stack: Stack, fast_ping_gateway: Server, new_name: NewName
) -> None:
    """Pongs are enough to stay connected, even if the peer sends nothing else."""

    async def stays_connected() -> bool:
        """Return False if the connection was closed because this test sent its own pong late."""
        with contextlib.suppress(Ended):
            async with await stack.open_live(fast_ping_gateway.port, new_name("alice")) as ws:
                pongs, ponged_at = 0, time.monotonic()
                while (frame := await ws.recv()).opcode == PING:
                    await ws.send(PONG, frame.payload)
                    pongs, ponged_at = pongs + 1, time.monotonic()
                    if pongs == 4:
                        await ws.send_json({"type": "chats", "id": 1})
                if frame.opcode == TEXT:
                    assert b'"id":1' in frame.payload
                    return True
                # The close may be correct only if this test stalled after its last pong.
                assert time.monotonic() - ponged_at < 1.0, "closed a peer that answered in time"
        return False

    for _ in range(5):
        if await stays_connected():
            return
    raise AssertionError("closed in all five attempts")


async def test_peer_that_does_not_answer_pings_is_closed(
    stack: Stack, fast_ping_gateway: Server, new_name: NewName
) -> None:
    """A peer that disappeared without a close is detected by missing pongs."""
    async with await stack.open_live(fast_ping_gateway.port, new_name("alice")) as ws:
        _, frame = await ws.drain_to_close()

        assert frame.close_code == NO_PONG


async def test_peer_that_sends_frames_but_no_pongs_is_closed(
    stack: Stack, fast_ping_gateway: Server, new_name: NewName
) -> None:
    """Only a pong answers a ping; other frames do not."""
    async with await stack.open_live(fast_ping_gateway.port, new_name("alice")) as ws:

        async def keep_sending() -> None:
            while True:
                await ws.send_json({"type": "state", "state": "fg"})
                await asyncio.sleep(0.05)  # this simulates a busy peer

        sending = asyncio.create_task(keep_sending())
        try:
            frames, close = await ws.drain_to_close()
            await ws.expect_end()  # the close comes although this peer never answers it
        finally:
            sending.cancel()

    assert close.close_code == NO_PONG
    assert {frame.opcode for frame in frames} <= {PING, TEXT}


# ── slow clients ──────────────────────────────────────────────────────────────────────────────────


async def test_peer_that_does_not_read_is_closed_and_others_are_not_affected(
    stack: Stack, new_name: NewName
) -> None:
    """A full send queue closes only the slow device, which gets the missed events on resume."""
    metrics_port = free_port()
    gateway = stack.start_gateway(
        CHAT_GATEWAY_SEND_QUEUE_BYTES_MAX="65536", CHAT_TELEMETRY_METRICS_PORT=str(metrics_port)
    )
    alice = await stack.chat_of(new_name("alice"), port=gateway.port).start()
    bob = await stack.chat_of(new_name("bob"), port=gateway.port, device="good").start()
    chat = await alice.open_direct(bob.user)
    await bob.request("open_direct", user=alice.user)
    slow = await RawSocket.open(gateway.port, receive_bytes=4096)
    hello = {"type": "hello", "v": 1, "token": stack.token(bob.user), "device": "slow"}
    await slow.send_json(hello)
    welcome = await slow.recv_json()

    body = "\U0001f600" * 4000  # 16 KB
    count = 120  # 2 MB: more than the send queue and the kernel's buffers can hold
    for _ in range(count):
        await alice.send(chat, body)

    while await read_metric(metrics_port, f'closes_total{{code="{SLOW}"}}') == 0:
        await asyncio.sleep(0.05)  # the timeout of the test is the deadline
    await bob.expect(lambda me: len(me.messages(chat)) == count)
    with pytest.raises(Ended):
        while True:
            frame = await slow.recv()
            assert frame.opcode in (TEXT, PING, CLOSE)
    await slow.abort()
    # At a gateway with the default queue: one page of 2 MB would fill the small one, too.
    back = stack.chat_of(bob.user, device="slow")
    await back.start(cursor=(welcome["epoch"], welcome["seq"]))
    await back.expect(lambda me: len(me.messages(chat)) == count)
    for device in (alice, bob, back):
        await device.stop()
    gateway.kill()
    stack.gateways.remove(gateway)


# ── drain and loss of a gateway ───────────────────────────────────────────────────────────────────


async def test_drain_answers_accepted_sends_then_sends_bye_and_exits(
    stack: Stack, new_name: NewName
) -> None:
    """SIGTERM: all accepted sends are acked before the close, and none is lost."""
    server = stack.start_gateway(CHAT_GATEWAY_DRAIN_S="60")  # enough for all responses
    alice = await stack.chat_of(new_name("alice"), port=server.port).start()
    bob = await stack.chat_of(new_name("bob")).start()
    chat = await alice.open_direct(bob.user)
    bodies = [f"m{number}" for number in range(60)]  # fewer than the limit of unanswered sends
    for body in bodies:
        await alice.send_nowait(chat, body)
    process = server.process
    assert process is not None

    server.send_signal(signal.SIGTERM)

    bye = await alice.expect_close(SHUTDOWN)
    assert bye is not None
    assert bye["code"] == SHUTDOWN
    assert 0 < bye["retry_after_ms"] <= 10_000
    assert alice.of_type("error") == []
    assert len(alice.of_type("ack")) == 60, "accepted sends must be acked before the bye"
    assert await asyncio.to_thread(process.wait, 30) == 0
    await alice.reconnect(port=stack.port)
    await alice.expect(lambda me: not me.pending)
    await bob.expect_bodies(chat, bodies)
    stack.gateways.remove(server)
    await alice.stop()
    await bob.stop()


async def test_drain_refuses_new_connections_and_fails_readiness(
    stack: Stack, new_name: NewName
) -> None:
    """While draining, /readyz returns 503 and new connections are refused."""
    server = stack.start_gateway(
        CHAT_GATEWAY_DRAIN_S="120",
        **{"chatserver.service.messaging.stored_waits.STORED_TIMEOUT_S": "60"},
    )
    alice = await stack.chat_of(new_name("alice"), port=server.port).start()
    bob = await stack.chat_of(new_name("bob"), port=server.port).start()
    chat = await alice.open_direct(bob.user)
    # This client never answers the close.
    unresponsive = await stack.open_live(server.port, new_name("unresponsive"))
    idle = await RawSocket.connect(server.port)
    process = server.process
    assert process is not None
    worker = stack.workers["-".join(WORKERS)]
    worker.send_signal(signal.SIGSTOP)
    try:
        # The drain waits for this answer, which comes only after the worker continues.
        pending = await bob.send_nowait(chat, "to be stored", durability="stored")

        server.send_signal(signal.SIGTERM)

        await alice.expect_close(SHUTDOWN)
        with pytest.raises(Refused) as refused:
            await RawSocket.open(server.port)
        probe = await RawSocket.connect(server.port)
        await probe.write(b"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
        answer = await probe.read_response()
    finally:
        worker.send_signal(signal.SIGCONT)
    await bob.expect_close(SHUTDOWN, 30)
    assert refused.value.response.status == 503
    assert refused.value.response.headers["retry-after"] == "1"
    assert (answer.status, answer.body) == (503, b"draining\n")
    assert pending.answer.result()["durability"] == "stored"
    assert await asyncio.to_thread(process.wait, 30) == 0
    stack.gateways.remove(server)
    for socket in (unresponsive, idle, probe):
        await socket.abort()


async def test_killed_gateway_loses_no_acked_message(stack: Stack, new_name: NewName) -> None:
    """`kill -9`: the device reconnects to another gateway; both users get each message once."""
    server = stack.start_gateway()
    alice = await stack.chat_of(new_name("alice"), port=server.port).start()
    bob = await stack.chat_of(new_name("bob")).start()
    chat = await alice.open_direct(bob.user)
    await alice.send(chat, "before")
    for number in range(30):
        await alice.send_nowait(chat, f"m{number}")

    server.kill()

    await alice.ended.wait()
    await alice.reconnect(port=stack.port)
    await alice.expect(lambda me: not me.pending)
    await bob.expect_bodies(chat, ["before", *(f"m{n}" for n in range(30))])
    stack.gateways.remove(server)
    await alice.stop()
    await bob.stop()
