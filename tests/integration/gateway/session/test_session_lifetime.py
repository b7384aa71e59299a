"""chat.v1: heartbeats, slow peers, and a gateway that leaves in an orderly way."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable

import pytest

from chatserver.dev.servers import Server
from tests.support.servers.processes import free_port
from tests.support.stack import WORKERS, Stack, read_metric
from tests.support.wire import CLOSE, PING, PONG, TEXT, Ended, RawSocket, Refused

pytest_plugins = ["tests.support.stack_fixtures"]

NewName = Callable[[str], str]
SHUTDOWN, SLOW, NO_PONG = 3000, 3001, 3003


# ── heartbeats ──────────────────────────────────────────────────────────────────────────────────


async def test_server_pings_and_keeps_who_answers(
    stack: Stack, pinging: Server, new_name: NewName
) -> None:
    """A peer that answers pings stays connected, even if it sends nothing else."""

    async def stays() -> bool:
        """Say whether it stayed; False: this test was held up, and so was silent."""
        with contextlib.suppress(Ended):
            async with await stack.open_live(pinging.port, new_name("alice")) as ws:
                pongs, ponged_at = 0, time.monotonic()
                while (frame := await ws.recv()).opcode == PING:
                    await ws.send(PONG, frame.payload)
                    pongs, ponged_at = pongs + 1, time.monotonic()
                    if pongs == 4:
                        await ws.send_json({"type": "chats", "id": 1})
                if frame.opcode == TEXT:
                    assert b'"id":1' in frame.payload
                    return True
                # It had come before the last pong went out.
                assert time.monotonic() - ponged_at < 1.0, "closed though it answered"
        return False

    for _ in range(5):
        if await stays():
            return
    raise AssertionError("closed five times")


async def test_peer_that_does_not_answer_pings_is_closed(
    stack: Stack, pinging: Server, new_name: NewName
) -> None:
    """A peer that is gone without a word is found by its silence."""
    async with await stack.open_live(pinging.port, new_name("alice")) as ws:
        _, frame = await ws.drain_to_close()

        assert frame.close_code == NO_PONG


async def test_peer_that_talks_but_does_not_pong_is_closed(
    stack: Stack, pinging: Server, new_name: NewName
) -> None:
    """A pong is owed; other frames do not stand for it."""
    async with await stack.open_live(pinging.port, new_name("alice")) as ws:

        async def keep_talking() -> None:
            while True:
                await ws.send_json({"type": "state", "state": "fg"})
                await asyncio.sleep(0.05)  # what is tested is a busy peer

        talk = asyncio.create_task(keep_talking())
        try:
            frames, close = await ws.drain_to_close()
            await ws.expect_end()  # though its close is never answered
        finally:
            talk.cancel()

    assert close.close_code == NO_PONG
    assert {frame.opcode for frame in frames} <= {PING, TEXT}


async def test_heartbeat_of_welcome_is_that_of_the_gateway(
    stack: Stack, pinging: Server, new_name: NewName
) -> None:
    """`heartbeat_ms` is what the gateway does."""
    async with stack.chat_of(new_name("alice"), port=pinging.port) as alice:
        assert alice.welcome["heartbeat_ms"] == 1600


# ── slow peers ──────────────────────────────────────────────────────────────────────────────────


async def test_peer_that_does_not_read_is_closed_and_others_do_not_notice(
    stack: Stack, new_name: NewName
) -> None:
    """A full send queue closes the slow device only; it reconnects and gets what it missed."""
    metrics_port = free_port()
    gateway = stack.start_gateway(
        CHAT_GATEWAY_SEND_QUEUE_BYTES_MAX="65536",
        **{"chatserver.gateway.transport.connection.SLOW_TIMEOUT_S": "1"},
        CHAT_TELEMETRY_METRICS_PORT=str(metrics_port),
    )
    alice = await stack.chat_of(new_name("alice"), port=gateway.port).start()
    bob = await stack.chat_of(new_name("bob"), port=gateway.port, device="good").start()
    chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
    await bob.ask("open_direct", user=alice.user)
    slow = await RawSocket.open(gateway.port, receive_bytes=4096)
    hello = {"type": "hello", "v": 1, "token": stack.token(bob.user), "device": "slow"}
    await slow.send_json(hello)
    welcome = await slow.recv_json()

    body = "\U0001f600" * 4000  # 16 KB
    count = 120  # 2 MB: more than the gateway's queue and the kernel's buffers hold
    for _ in range(count):
        await alice.say(chat, body)

    while await read_metric(metrics_port, f'closes_total{{code="{SLOW}"}}') == 0:
        await asyncio.sleep(0.05)  # the test's own timeout is the deadline
    await bob.expect(lambda me: len(me.messages(chat)) == count)
    with pytest.raises(Ended):
        while True:
            frame = await slow.recv()
            assert frame.opcode in (TEXT, PING, CLOSE)
    await slow.abort()
    back = stack.chat_of(bob.user, port=gateway.port, device="slow")
    await back.start(cursor=(welcome["epoch"], welcome["seq"]))
    await back.expect(lambda me: len(me.messages(chat)) == count)
    for device in (alice, bob, back):
        await device.stop()
    gateway.kill()
    stack.gateways.remove(gateway)


# ── leaving ─────────────────────────────────────────────────────────────────────────────────────


async def test_drain_says_bye_answers_what_was_taken_and_ends_in_time(
    stack: Stack, new_name: NewName
) -> None:
    """SIGTERM: every send is acked, or its connection is closed for a reconnect; no ack is lost."""
    server = stack.start_gateway(CHAT_GATEWAY_DRAIN_S="60")  # time enough for all answers
    alice = await stack.chat_of(new_name("alice"), port=server.port).start()
    bob = await stack.chat_of(new_name("bob")).start()
    chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
    bodies = [f"m{number}" for number in range(60)]  # fewer than may be in flight
    for body in bodies:
        await alice.post(chat, body)
    process = server.process
    assert process is not None

    server.send_signal(signal.SIGTERM)

    bye = await alice.expect_close(SHUTDOWN)
    assert bye is not None
    assert bye["code"] == SHUTDOWN
    assert 0 < bye["retry_after_ms"] <= 10_000
    assert alice.of_type("error") == []
    assert len(alice.of_type("ack")) == 60, "what had arrived is answered before the bye"
    assert await asyncio.to_thread(process.wait, 30) == 0
    await alice.reconnect(port=stack.port)
    await alice.expect(lambda me: not me.pending)
    await bob.expect_bodies(chat, bodies)
    stack.gateways.remove(server)
    await alice.stop()
    await bob.stop()


async def test_drain_refuses_newcomers_and_says_so(stack: Stack, new_name: NewName) -> None:
    """While draining, /readyz returns 503 and new connections are refused."""
    server = stack.start_gateway(
        CHAT_GATEWAY_DRAIN_S="120",
        **{"chatserver.service.messaging.stored_acks.STORED_TIMEOUT_S": "60"},
    )
    alice = await stack.chat_of(new_name("alice"), port=server.port).start()
    bob = await stack.chat_of(new_name("bob"), port=server.port).start()
    chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
    # Its close is never answered.
    sleeper = await stack.open_live(server.port, new_name("sleeper"))
    idle = await RawSocket.connect(server.port)
    process = server.process
    assert process is not None
    worker = stack.workers["-".join(WORKERS)]
    worker.send_signal(signal.SIGSTOP)
    try:
        # An answer is due, so the drain lasts until the worker goes on.
        kept = await bob.post(chat, "to be stored", durability="stored")

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
    assert kept.answer.result()["durability"] == "stored"
    assert await asyncio.to_thread(process.wait, 30) == 0
    stack.gateways.remove(server)
    for socket in (sleeper, idle, probe):
        await socket.abort()


async def test_gateway_killed_outright_loses_no_acked_message(
    stack: Stack, new_name: NewName
) -> None:
    """`kill -9`: the device reconnects elsewhere, and both users have everything once."""
    server = stack.start_gateway()
    alice = await stack.chat_of(new_name("alice"), port=server.port).start()
    bob = await stack.chat_of(new_name("bob")).start()
    chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
    await alice.say(chat, "before")
    for number in range(30):
        await alice.post(chat, f"m{number}")

    server.kill()

    await alice.ended.wait()
    await alice.reconnect(port=stack.port)
    await alice.expect(lambda me: not me.pending)
    await bob.expect_bodies(chat, ["before", *(f"m{n}" for n in range(30))])
    stack.gateways.remove(server)
    await alice.stop()
    await bob.stop()


async def test_event_reaches_a_device_on_another_gateway(stack: Stack, new_name: NewName) -> None:
    """Two gateways are one server: messages, marks and signals cross."""
    server = stack.start_gateway()
    alice = await stack.chat_of(new_name("alice")).start()
    bob = await stack.chat_of(new_name("bob"), port=server.port).start()
    chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
    await bob.ask("open_direct", user=alice.user)

    await alice.say(chat, "over there")
    await bob.expect_bodies(chat, ["over there"])
    await bob.ask("mark", chat=chat, read=1)
    await alice.expect_frame("event", kind="read")
    await bob.tell("typing", chat=chat, on=True)
    await alice.expect_frame("signal")

    await alice.stop()
    await bob.stop()
    server.stop()
    stack.gateways.remove(server)
