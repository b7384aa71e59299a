"""Rate limits: a client above its limit gets a retry time, at every gateway."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator

import pytest

from chatserver.dev.servers import Server
from tests.integration.gateway.session.limits_support import (
    ADDRESSES,
    BURST,
    RATE,
    STRICT,
    Sender,
    connect,
)
from tests.support.rawchat import RawChat, get_refusal
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack
from tests.support.wire import TEXT, Ended, RawSocket, Refused, Response

BLOCK = 2  # tokens that a gateway reserves at once: those of a quarter of a second
REPLACED, OVERLOADED = 3004, 3002


@pytest.fixture(scope="module")
def east(stack: Stack) -> Iterator[Server]:
    """A gateway with low limits behind a proxy; each test uses its own client address."""
    yield stack.start_gateway(**STRICT)


@pytest.fixture(scope="module")
def west(stack: Stack) -> Iterator[Server]:
    """Another gateway with the same settings."""
    yield stack.start_gateway(**STRICT)


async def fail_hello(ws: RawSocket) -> None:
    """Send a hello with an invalid token and wait for the close."""
    with contextlib.suppress(Ended):  # may be closed, above the connection limit
        await ws.send_json({"type": "hello", "v": 1, "token": "no", "device": "d"})
        await ws.drain_to_close()
    await ws.abort()


async def is_accepted(ws: RawSocket, token: str) -> bool:
    """Send hello; return whether it gets `welcome`, otherwise check the close code."""
    with contextlib.suppress(Ended):  # may be closed
        await ws.send_json({"type": "hello", "v": 1, "token": token, "device": "d"})
    frame = await ws.recv_answer()
    while frame.opcode == TEXT and b'"bye"' in frame.payload:
        frame = await ws.recv_answer()
    await ws.abort()
    assert frame.opcode == TEXT or frame.close_code == OVERLOADED
    return frame.opcode == TEXT


@pytest.fixture
async def chat(stack: Stack, new_name: NewName) -> tuple[str, str]:
    """A user and a direct chat of that user."""
    user, other = new_name("fast"), new_name("bob")
    await stack.add_users([other])
    async with stack.chat_of(user) as device:
        return user, await device.open_direct(other)


async def test_sends_beyond_the_burst_are_refused_until_retry_after(
    stack: Stack, east: Server, chat: tuple[str, str]
) -> None:
    """The burst is accepted in order; a refused send is accepted after its retry time."""
    sender = Sender(stack, chat[0], "d1")
    await sender.start(east)
    start = time.monotonic()

    answers = await sender.send_until_refused(40, type="send", chat=chat[1])

    acks = [answer for answer in answers if answer["type"] == "ack"]
    errors = [answer for answer in answers if answer["type"] == "error"]
    assert BURST <= len(acks) <= BURST + RATE * (time.monotonic() - start) + BLOCK
    assert answers[:BURST] == acks[:BURST], "the burst must be accepted"
    assert [ack["seq"] for ack in acks] == sorted(ack["seq"] for ack in acks)
    assert {(error["code"], error["temporary"]) for error in errors} == {("rate_limited", True)}
    assert all(0 < error["retry_after_ms"] <= 1000 / RATE + 1 for error in errors)
    assert {sender.refs[error["id"]] == error["ref"] for error in errors} == {True}
    await asyncio.sleep(max(error["retry_after_ms"] for error in errors) / 1000)
    first = {"ref": errors[0]["ref"], "body": str(errors[0]["id"])}
    (again,) = await sender.send_many(1, type="send", chat=chat[1], **first)
    assert again["type"] == "ack"
    await sender.ws.abort()


async def test_sends_above_the_memory_limit_are_refused(
    stack: Stack, east: Server, chat: tuple[str, str]
) -> None:
    """Long messages exceed the memory limit before the limit on the number of sends."""
    sender = Sender(stack, chat[0], "d1")
    await sender.start(east)

    answers = await sender.send_many(18, type="send", chat=chat[1], body="🙂" * 3_750)

    acks = [answer for answer in answers if answer["type"] == "ack"]
    errors = [answer for answer in answers if answer["type"] == "error"]
    assert len(acks) == 15, "each message costs 19 KB of 300 KB"
    assert {(error["code"], error["temporary"]) for error in errors} == {("rate_limited", True)}
    # Later sends are refused because of the first refused one, so that the order is kept.
    assert "limits.memory" in errors[0]["message"]
    assert errors[0]["retry_after_ms"] > 1000
    await sender.ws.abort()


async def test_sends_of_one_user_at_two_gateways_share_the_limit(
    stack: Stack, east: Server, west: Server, chat: tuple[str, str]
) -> None:
    """Two devices get no more than one device, except for the reserved block of each gateway."""
    senders = [Sender(stack, chat[0], f"d{n}") for n in range(2)]
    for sender, server in zip(senders, (east, west), strict=True):
        await sender.start(server)
    start = time.monotonic()

    found = await asyncio.gather(
        *(each.send_many(40, type="send", chat=chat[1]) for each in senders)
    )

    acked = sum(answer["type"] == "ack" for answers in found for answer in answers)
    assert acked >= BURST - 2 * BLOCK
    assert acked <= BURST + RATE * (time.monotonic() - start) + 2 * BLOCK
    for sender in senders:
        await sender.ws.abort()


async def test_requests_beyond_the_burst_are_refused(
    stack: Stack, east: Server, chat: tuple[str, str]
) -> None:
    """A request takes as many tokens as it costs, here 6 of 64. Sends are not affected."""
    sender = Sender(stack, chat[0], "d1")
    await sender.start(east)

    answers = await sender.send_until_refused(30, type="chats")

    assert [answer["type"] for answer in answers[:10]] == ["page"] * 10
    refused = [answer for answer in answers if answer["type"] == "error"]
    assert {answer["code"] for answer in refused} == {"rate_limited"}
    (ack,) = await sender.send_many(1, type="send", chat=chat[1])
    assert ack["type"] == "ack"
    await sender.ws.abort()


async def test_creating_large_groups_beyond_the_burst_is_refused(
    stack: Stack, east: Server, chat: tuple[str, str]
) -> None:
    """A group of 256 costs as much as sixty cheap requests, so a second one is refused."""
    sender = Sender(stack, chat[0], "d1")
    await sender.start(east)
    members = [f"nobody{n}" for n in range(255)]

    first, second = await sender.send_many(2, type="create_chat", ref="g", members=members)

    assert first["code"] == "not_found"
    assert second["code"] == "rate_limited"
    assert second["retry_after_ms"] > 5_000
    await sender.ws.abort()


async def test_connections_beyond_the_burst_of_an_address_are_refused(
    stack: Stack, east: Server, west: Server
) -> None:
    """The error is 429, or 3002 if the gateway detects it later.

    Other addresses are not affected.
    """
    address, accepted, refusals, start = next(ADDRESSES), 0, 0, time.monotonic()
    # At least ten, and more until one is refused: on a slow machine the bucket refills meanwhile.
    for number in itertools.count():
        if number >= 10 and refusals:
            break
        try:
            ws = await connect((east, west)[number % 2].port, address)
        except Refused as refused:
            assert refused.response.status == 429
            assert 1 <= int(refused.response.headers["retry-after"]) <= 2
            refusals += 1
        else:
            accepted += await is_accepted(ws, stack.token(f"u{number}"))
    took_s = time.monotonic() - start

    assert 4 <= accepted <= 5 + 0.5 * took_s + 2  # a block is one connection
    assert refusals
    assert await is_accepted(await connect(east.port, next(ADDRESSES)), stack.token("other"))


async def test_body_and_page_limits_follow_the_settings(stack: Stack, new_name: NewName) -> None:
    """`welcome` has the configured limits, and they are enforced."""
    gateway = stack.start_gateway(
        CHAT_CHATS_BODY_CHARS_MAX="10",
        CHAT_CHATS_BODY_BYTES_MAX="20",
        **{"chatserver.domain.page_limits.ITEMS_MAX": "2"},
    )
    alice, bob = (stack.chat_of(new_name(stem), port=gateway.port) for stem in ("alice", "bob"))
    async with alice, bob:
        assert alice.welcome is not None
        limits = alice.welcome["limits"]
        chat = await alice.open_direct(bob.user)
        for number in range(3):
            await alice.send(chat, f"text {number}")
        refused = []
        for body in ("x" * 11, "🙂" * 6):
            for type_, target in (("send", {}), ("edit", {"seq": 1})):
                failed = await get_refusal(
                    alice.request(type_, chat=chat, ref=new_name("r"), body=body, **target)
                )
                refused.append((failed.code, failed.message))
        page = await alice.request("history", chat=chat, limit=50)
        events = await alice.request("sync", cursor={"epoch": alice.welcome["epoch"], "seq": 0})
    gateway.stop()
    stack.gateways.remove(gateway)

    assert (limits["body_chars_max"], limits["body_bytes_max"], limits["page_max"]) == (10, 20, 2)
    assert refused == [
        *[("too_large", "body: must be at most 10 characters")] * 2,
        *[("too_large", "body: must be at most 20 bytes of UTF-8")] * 2,
    ]
    assert [message["seq"] for message in page["messages"]] == [2, 3]
    assert (page["more"], len(events["events"]), events["more"]) == (True, 2, True)


async def test_address_with_too_many_failed_hellos_gets_429(east: Server, west: Server) -> None:
    """Guessing tokens is limited at all gateways. Each gateway detects it at its next failure."""
    address = next(ADDRESSES)

    async def fail_until_refused(server: Server) -> tuple[int, Response]:
        for failures in range(50):
            try:
                ws = await connect(server.port, address)
            except Refused as refused:
                return failures, refused.response
            await fail_hello(ws)
        raise AssertionError("never refused")

    failures, first = await fail_until_refused(east)
    later_failures, second = await fail_until_refused(west)

    # A gateway reads the bucket from Redis while it answers the next hellos, so their number
    # depends on the machine. test_admission_control.py tests that each failure counts.
    assert failures >= 3
    assert later_failures >= 1
    assert first.status == second.status == 429
    assert 1 <= int(first.headers["retry-after"]) <= 5


async def test_forwarded_address_from_an_untrusted_hop_is_ignored(stack: Stack) -> None:
    """Without trusted proxies the header is ignored; the address of the peer counts."""
    server = stack.start_gateway(**{**STRICT, "CHAT_GATEWAY_TRUSTED_PROXIES": "[]"})
    with pytest.raises(Refused) as refused:
        for _ in range(50):  # the number depends on the machine, as above
            await fail_hello(await connect(server.port, next(ADDRESSES)))

    assert refused.value.response.status == 429
    server.kill()
    stack.gateways.remove(server)


# sessions


async def get_close_code(chat: RawChat) -> int | None:
    """Return the code with which the server closed a device, or None if it did not."""
    if not chat.ended.is_set():
        return None
    return None if chat.close_frame is None else chat.close_frame.close_code


async def test_device_that_connects_to_another_gateway_replaces_its_older_session(
    stack: Stack, new_name: NewName
) -> None:
    """The older session is closed with 3004, and no message is lost."""
    first_port, second_port = stack.port, stack.start_gateway().port
    user, friend = new_name("alice"), new_name("bob")
    async with stack.chat_of(friend, port=first_port) as bob:
        async with stack.chat_of(user, port=first_port) as old:
            chat = await old.open_direct(friend)
            await bob.send(chat, "before")
            await old.expect_bodies(chat, ["before"])
            new = stack.chat_of(user, port=second_port, device=old.device)
            await new.start(cursor=old.cursor)
            bye = await old.expect_close(REPLACED)
            assert bye is not None and bye["code"] == REPLACED
        await bob.send(chat, "after")
        await new.expect_bodies(chat, ["after"])
        await new.stop()


async def test_sessions_above_the_limit_close_the_oldest_at_any_gateway(
    stack: Stack, east: Server, west: Server, new_name: NewName
) -> None:
    """The limit is three; the fourth session, at another gateway, closes the first one."""
    user = new_name("alice")
    sockets = []
    for number in range(4):
        sender = Sender(stack, user, f"d{number}")
        await sender.start((east, west)[number % 2])
        sockets.append(sender.ws)

    before, frame = await sockets[0].drain_to_close()

    assert frame.close_code == REPLACED
    assert b'"code":3004' in before[-1].payload
    for ws in sockets[1:]:
        await ws.send_json({"type": "chats", "id": 7})
        while (await ws.recv_json())["type"] != "page":
            pass
    for ws in sockets:
        await ws.abort()


async def connect_concurrently(stack: Stack, user: str, ports: tuple[int, int]) -> None:
    """Connect one device to both gateways at once; check that one session remains."""
    chats = [stack.chat_of(user, port=port, device=f"{user}-phone") for port in ports]
    await asyncio.gather(*(chat.start() for chat in chats), return_exceptions=True)

    async def is_one_left() -> bool:
        return [await get_close_code(chat) for chat in chats].count(REPLACED) == 1

    await eventually(is_one_left, what="one of two sessions is left")
    (left,) = [chat for chat in chats if not chat.ended.is_set()]
    await left.request("chats")
    assert await get_close_code(left) is None
    for chat in chats:
        await chat.abort()


async def test_device_that_connects_to_two_gateways_at_once_has_one_session(
    stack: Stack, new_name: NewName
) -> None:
    """Exactly one session remains in each of fifty races."""
    ports = (stack.port, stack.start_gateway().port)
    for _ in range(10):
        await asyncio.gather(
            *(connect_concurrently(stack, new_name("racer"), ports) for _ in range(5))
        )
