"""Rate limits on the wire: a fast client gets a retry time, at every gateway."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chatserver.dev.servers import Server
from tests.support.rawchat import Failed, Fields, RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import Stack
from tests.support.wire import TEXT, Ended, RawSocket, Refused, Response

pytest_plugins = ["tests.support.stack_fixtures"]

BURST, RATE = 20, 8.0
BLOCK = 2  # a quarter of a second's worth
REPLACED, OVERLOADED = 3004, 3002
STRICT = {
    "CHAT_LIMITS_SENDS": f"{RATE}/s burst {BURST}",
    "CHAT_LIMITS_REQUESTS": "4/s burst 64",
    "CHAT_LIMITS_MEMORY": "1/s burst 300000",
    "CHAT_LIMITS_CONNECTIONS": "0.5/s burst 5",
    "CHAT_LIMITS_FAILURES": "0.2/s burst 3",
    "CHAT_GATEWAY_TRUSTED_PROXIES": '["127.0.0.1"]',
    "CHAT_GATEWAY_SESSIONS_PER_USER_MAX": "3",
}


@pytest.fixture(scope="module")
def east(stack: Stack) -> Iterator[Server]:
    """A gateway that lets little through, behind a proxy: each test comes from its own address."""
    yield stack.start_gateway(**STRICT)


@pytest.fixture(scope="module")
def west(stack: Stack) -> Iterator[Server]:
    """Another one."""
    yield stack.start_gateway(**STRICT)


_addresses = (f"203.0.113.{n}" for n in range(1, 255))


async def connect(port: int, address: str) -> RawSocket:
    """Connect as a proxy does for a client."""
    return await RawSocket.open(port, more=[("X-Forwarded-For", f"6.6.6.6, {address}")])


async def fail_hello(ws: RawSocket) -> None:
    """Say hello in vain, and see the end."""
    with contextlib.suppress(Ended):  # it may be closed already, as one too many
        await ws.send_json({"type": "hello", "v": 1, "token": "no", "device": "d"})
        await ws.drain_to_close()
    await ws.abort()


async def may_stay(ws: RawSocket, token: str) -> bool:
    """Say whether a connection that was opened is welcome; if not, it is closed with 3002."""
    with contextlib.suppress(Ended):  # it may be closed already
        await ws.send_json({"type": "hello", "v": 1, "token": token, "device": "d"})
    frame = await ws.recv()
    while frame.opcode == TEXT and b'"bye"' in frame.payload:
        frame = await ws.recv()
    await ws.abort()
    assert frame.opcode == TEXT or frame.close_code == OVERLOADED
    return frame.opcode == TEXT


class Sender:
    """A user who sends without waiting, on a bare socket."""

    def __init__(self, stack: Stack, user: str, device: str) -> None:
        self.stack, self.user, self.device = stack, user, device
        self.ws: Any = None
        self.refs: dict[int, str] = {}  # of the sends of the last `ask`, by number

    async def start(self, server: Server) -> None:
        """Connect and be welcomed."""
        self.ws = await connect(server.port, next(_addresses))
        hello = {"type": "hello", "v": 1, "token": self.stack.token(self.user)}
        await self.ws.send_json({**hello, "device": self.device})
        assert (await self.ws.recv_json())["type"] == "welcome"

    async def ask(self, count: int, **fields: Any) -> list[Fields]:
        """Send frames at once; return their answers, by number."""
        for number in range(count):
            frame = {"id": number, **fields}
            if fields["type"] == "send":
                ref = f"{self.device}-{time.monotonic_ns()}"
                frame = {"ref": ref, "body": f"{number}", **frame}
                self.refs[number] = frame["ref"]
            await self.ws.send_json(frame)
        answers: dict[int, Fields] = {}
        while len(answers) < count:
            frame = await self.ws.recv_json()
            if frame["type"] in ("ack", "error", "page"):
                answers[frame["id"]] = frame
        return [answers[number] for number in range(count)]

    async def ask_until_refused(self, count: int, **fields: Any) -> list[Fields]:
        """Ask again and again, until some are refused: a slow machine refills as it asks."""
        answers: list[Fields] = []
        while not any(answer["type"] == "error" for answer in answers):
            answers += await self.ask(count, **fields)
        return answers


@pytest.fixture
async def chat(stack: Stack, new_name: Callable[[str], str]) -> tuple[str, str]:
    """A user, and a chat of that user with another one."""
    user, other = new_name("fast"), new_name("bob")
    await stack.add_users([other])
    async with stack.chat_of(user) as device:
        answer = await device.ask("open_direct", user=other)
    return user, answer["chat"]["chat"]


async def test_sends_beyond_the_burst_are_refused_until_retry_after(
    stack: Stack, east: Server, chat: tuple[str, str]
) -> None:
    """The burst is sent in order; the rest is refused with a retry time, and then sent."""
    sender = Sender(stack, chat[0], "d1")
    await sender.start(east)
    start = time.monotonic()

    answers = await sender.ask_until_refused(40, type="send", chat=chat[1])

    acks = [answer for answer in answers if answer["type"] == "ack"]
    errors = [answer for answer in answers if answer["type"] == "error"]
    assert BURST <= len(acks) <= BURST + RATE * (time.monotonic() - start) + BLOCK
    assert answers[:BURST] == acks[:BURST], "the first ones go through"
    assert [ack["seq"] for ack in acks] == sorted(ack["seq"] for ack in acks)
    assert {(error["code"], error["temporary"]) for error in errors} == {("rate_limited", True)}
    assert all(0 < error["retry_after_ms"] <= 1000 / RATE + 1 for error in errors)
    await asyncio.sleep(max(error["retry_after_ms"] for error in errors) / 1000)
    first = {"ref": sender.refs[errors[0]["id"]], "body": str(errors[0]["id"])}
    (again,) = await sender.ask(1, type="send", chat=chat[1], **first)
    assert again["type"] == "ack"
    await sender.ws.abort()


async def test_bytes_beyond_what_a_user_may_leave_in_redis_are_refused(
    stack: Stack, east: Server, chat: tuple[str, str]
) -> None:
    """Long messages use up the memory budget long before the number of sends."""
    sender = Sender(stack, chat[0], "d1")
    await sender.start(east)

    answers = await sender.ask(18, type="send", chat=chat[1], body="🙂" * 3_750)

    acks = [answer for answer in answers if answer["type"] == "ack"]
    errors = [answer for answer in answers if answer["type"] == "error"]
    assert len(acks) == 15, "each costs 19 KB of 300"
    assert {(error["code"], error["temporary"]) for error in errors} == {("rate_limited", True)}
    # The others wait for the first refused one, so that order holds.
    assert "limits.memory" in errors[0]["message"]
    assert errors[0]["retry_after_ms"] > 1000
    await sender.ws.abort()


async def test_sends_of_one_user_at_two_gateways_share_the_limit(
    stack: Stack, east: Server, west: Server, chat: tuple[str, str]
) -> None:
    """Two devices at two gateways get no more than one, but for a block at each."""
    senders = [Sender(stack, chat[0], f"d{n}") for n in range(2)]
    for sender, server in zip(senders, (east, west), strict=True):
        await sender.start(server)
    start = time.monotonic()

    found = await asyncio.gather(*(each.ask(40, type="send", chat=chat[1]) for each in senders))

    acked = sum(answer["type"] == "ack" for answers in found for answer in answers)
    assert acked >= BURST - 2 * BLOCK
    assert acked <= BURST + RATE * (time.monotonic() - start) + 2 * BLOCK
    for sender in senders:
        await sender.ws.abort()


async def test_requests_beyond_the_burst_are_refused(
    stack: Stack, east: Server, chat: tuple[str, str]
) -> None:
    """Requests are charged by cost, here ten times six of 64 tokens; sends go on."""
    sender = Sender(stack, chat[0], "d1")
    await sender.start(east)

    answers = await sender.ask_until_refused(30, type="chats")

    assert [answer["type"] for answer in answers[:10]] == ["page"] * 10
    refused = [answer for answer in answers if answer["type"] == "error"]
    assert {answer["code"] for answer in refused} == {"rate_limited"}
    (ack,) = await sender.ask(1, type="send", chat=chat[1])
    assert ack["type"] == "ack"
    await sender.ws.abort()


async def test_creating_large_groups_beyond_the_burst_is_refused(
    stack: Stack, east: Server, chat: tuple[str, str]
) -> None:
    """A group of 256 costs as much as sixty cheap requests: the second is refused."""
    sender = Sender(stack, chat[0], "d1")
    await sender.start(east)
    members = [f"nobody{n}" for n in range(255)]

    one, other = await sender.ask(2, type="create_chat", ref="g", members=members)

    assert one["code"] == "not_found"
    assert other["code"] == "rate_limited"
    assert other["retry_after_ms"] > 5_000
    await sender.ws.abort()


async def test_connections_beyond_the_burst_of_an_address_are_refused(
    stack: Stack, east: Server, west: Server
) -> None:
    """At once with 429 where it is known, else closed with 3002; other addresses do not notice."""
    address, paid, turned_away, start = next(_addresses), 0, 0, time.monotonic()
    # Ten at least, and on until one is turned away: a slow machine refills as it connects.
    for number in itertools.count():
        if number >= 10 and turned_away:
            break
        try:
            ws = await connect((east, west)[number % 2].port, address)
        except Refused as refused:
            assert refused.response.status == 429
            assert 1 <= int(refused.response.headers["retry-after"]) <= 2
            turned_away += 1
        else:
            paid += await may_stay(ws, stack.token(f"u{number}"))
    took_s = time.monotonic() - start

    assert 4 <= paid <= 5 + 0.5 * took_s + 2  # a block is one connection
    assert turned_away
    assert await may_stay(await connect(east.port, next(_addresses)), stack.token("other"))


async def test_bodies_and_pages_are_as_short_as_the_settings_say(
    stack: Stack, new_name: Callable[[str], str]
) -> None:
    """`welcome` contains the limits, and the limits are enforced."""
    terse = stack.start_gateway(
        CHAT_CHATS_BODY_CHARS_MAX="10",
        CHAT_CHATS_BODY_BYTES_MAX="20",
        **{"chatserver.domain.page_limits.ITEMS_MAX": "2"},
    )
    alice, bob = (stack.chat_of(new_name(stem), port=terse.port) for stem in ("alice", "bob"))
    async with alice, bob:
        assert alice.welcome is not None
        told = alice.welcome["limits"]
        chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
        for number in range(3):
            await alice.say(chat, f"text {number}")
        refused = []
        for body in ("x" * 11, "🙂" * 6):
            for type_, target in (("send", {}), ("edit", {"seq": 1})):
                with pytest.raises(Failed) as caught:
                    await alice.ask(type_, chat=chat, ref=new_name("r"), body=body, **target)
                refused.append((caught.value.code, caught.value.message))
        page = await alice.ask("history", chat=chat, limit=50)
        events = await alice.ask("sync", cursor={"epoch": alice.welcome["epoch"], "seq": 0})
    terse.stop()
    stack.gateways.remove(terse)

    assert (told["body_chars_max"], told["body_bytes_max"], told["page_max"]) == (10, 20, 2)
    assert refused == [
        *[("too_large", "body: must be at most 10 characters")] * 2,
        *[("too_large", "body: must be at most 20 bytes of UTF-8")] * 2,
    ]
    assert [message["seq"] for message in page["messages"]] == [2, 3]
    assert (page["more"], len(events["events"]), events["more"]) == (True, 2, True)


async def test_refused_hellos_of_an_address_end_in_429(east: Server, west: Server) -> None:
    """Guessing tokens is slow at all gateways: each notices with its next failure."""
    address = next(_addresses)

    async def fail_until_refused(server: Server) -> tuple[int, Response]:
        for failures in range(50):
            try:
                ws = await connect(server.port, address)
            except Refused as refused:
                return failures, refused.response
            await fail_hello(ws)
        raise AssertionError("never refused")

    failures, here = await fail_until_refused(east)
    late, there = await fail_until_refused(west)

    # A gateway asks Redis whether the bucket is empty while it answers the next ones: how many of
    # them there are is a matter of speed. That each of them counts: see test_gateway_admission.py.
    assert failures >= 3
    assert late >= 1
    assert here.status == there.status == 429
    assert 1 <= int(here.headers["retry-after"]) <= 5


async def test_forwarded_address_from_an_untrusted_hop_is_ignored(stack: Stack) -> None:
    """Without trusted proxies the header is noise: the peer's own address counts."""
    server = stack.start_gateway(**{**STRICT, "CHAT_GATEWAY_TRUSTED_PROXIES": "[]"})
    with pytest.raises(Refused) as refused:
        for _ in range(50):  # as above: how many pass is a matter of speed
            await fail_hello(await connect(server.port, next(_addresses)))

    assert refused.value.response.status == 429
    server.kill()
    stack.gateways.remove(server)


# places


async def end_of(chat: RawChat) -> int | None:
    """How the server closed a device; None: it has not."""
    if not chat.ended.is_set():
        return None
    return None if chat.close_frame is None else chat.close_frame.close_code


async def test_device_that_connects_elsewhere_replaces_its_older_session(
    stack: Stack, new_name: Callable[[str], str]
) -> None:
    """The older session is closed with 3004, and no message is lost in between (F43)."""
    one, two = stack.port, stack.start_gateway().port
    user, friend = new_name("alice"), new_name("bob")
    async with stack.chat_of(friend, port=one) as bob:
        async with stack.chat_of(user, port=one) as old:
            chat = (await old.ask("open_direct", user=friend))["chat"]["chat"]
            await bob.say(chat, "before")
            await old.expect_bodies(chat, ["before"])
            new = stack.chat_of(user, port=two, device=old.device)
            await new.start(cursor=old.cursor)
            bye = await old.expect_close(REPLACED)
            assert bye is not None and bye["code"] == REPLACED
        await bob.say(chat, "after")
        await new.expect_bodies(chat, ["after"])
        await new.stop()


async def test_sessions_beyond_the_limit_close_the_oldest_wherever_it_is(
    stack: Stack, east: Server, west: Server, new_name: Callable[[str], str]
) -> None:
    """Three may stay; the fourth, at another gateway, costs the first one its place."""
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


async def race(stack: Stack, user: str, ports: tuple[int, int]) -> None:
    """Connect one device at both gateways at the same time, and see one of the two stay."""
    chats = [stack.chat_of(user, port=port, device=f"{user}-phone") for port in ports]
    await asyncio.gather(*(chat.start() for chat in chats), return_exceptions=True)

    async def is_one_left() -> bool:
        return [await end_of(chat) for chat in chats].count(REPLACED) == 1

    await eventually(is_one_left, what="one of two sessions is left")
    (left,) = [chat for chat in chats if not chat.ended.is_set()]
    await left.ask("chats")
    assert await end_of(left) is None
    for chat in chats:
        await chat.abort()


async def test_device_connecting_at_two_gateways_at_once_has_one_session(
    stack: Stack, new_name: Callable[[str], str]
) -> None:
    """Fifty races: never two, never none (F43)."""
    ports = (stack.port, stack.start_gateway().port)
    for _ in range(10):
        await asyncio.gather(*(race(stack, new_name("racer"), ports) for _ in range(5)))
