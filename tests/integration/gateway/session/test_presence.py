"""Presence on the wire: who receives which changes, at one gateway and at several."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from chatserver.dev.servers import Server
from tests.support.rawchat import RawChat
from tests.support.stack import Stack

pytest_plugins = ["tests.support.stack_fixtures"]

GRACE_S = 6.0  # to come back in time must be possible on a slow machine
AWAY_S = 1.0
TTL_S = 3
LATE_S = 45.0  # a slow machine is late, not wrong
FAST = {
    "CHAT_PRESENCE_OFFLINE_GRACE_S": str(GRACE_S),
    "chatserver.service.presence.subscriptions.SUBSCRIBED_USERS_MAX": "5",
    # A gateway that is held up for longer is dead for the others, and they say so.
    "CHAT_GATEWAY_ONLINE_TTL_S": "15",
}


@pytest.fixture(scope="module")
def east(stack: Stack) -> Iterator[Server]:
    """A gateway that is soon sure that somebody has left."""
    yield stack.start_gateway(**FAST)


@pytest.fixture(scope="module")
def west(stack: Stack) -> Iterator[Server]:
    """Another one."""
    yield stack.start_gateway(**FAST)


@pytest.fixture(scope="module")
def drowsy(stack: Stack) -> Iterator[Server]:
    """Another one, where users are soon taken for idle, too."""
    yield stack.start_gateway(**FAST, CHAT_PRESENCE_AWAY_AFTER_S=str(AWAY_S))


@pytest.fixture(scope="module")
def brief(stack: Stack) -> Iterator[Server]:
    """A gateway at which users are offline as soon as they leave."""
    yield stack.start_gateway(**{**FAST, "CHAT_PRESENCE_OFFLINE_GRACE_S": "0"})


@pytest.fixture
async def alice(
    stack: Stack, east: Server, new_name: Callable[[str], str]
) -> AsyncIterator[RawChat]:
    """The subscriber, on the east gateway."""
    async with stack.chat_of(new_name("alice"), port=east.port) as chat:
        yield chat


def device(stack: Stack, user: str, gateway: Server, name: str = "1") -> RawChat:
    """A device of a user at a gateway."""
    return stack.chat_of(user, port=gateway.port, device=f"{user}-{name}")


def states_of(alice: RawChat, user: str) -> list[str]:
    """States of a user that alice received so far."""
    return [
        signal["state"] for signal in alice.of_type("signal", kind="presence", **{"from": user})
    ]


@pytest.fixture
async def bob(stack: Stack, alice: RawChat, brief: Server, new_name: Callable[[str], str]) -> str:
    """A user who has written to alice, not connected; the chat is in her list."""
    name = new_name("bob")
    await stack.add_users([name])
    async with stack.chat_of(name, port=brief.port) as phone:
        chat = (await phone.ask("open_direct", user=alice.user))["chat"]["chat"]
        await phone.say(chat, "hello")
    await alice.expect(lambda me: me.messages(chat), LATE_S)
    return name


async def test_watch_tells_the_present_state_at_once_and_each_change(
    stack: Stack, alice: RawChat, bob: str, west: Server
) -> None:
    """Shown, hidden, shown, gone: as a user at another gateway does it."""
    async with device(stack, bob, west) as phone:
        await alice.tell("watch", users=[bob])
        await alice.expect(lambda me: states_of(me, bob), LATE_S)
        await alice.expect(lambda me: states_of(me, bob)[-1] == "online", LATE_S)
        told = len(states_of(alice, bob))
        await phone.tell("state", state="bg")
        await alice.expect(lambda me: len(states_of(me, bob)) > told, LATE_S)
        await phone.tell("state", state="fg")
        await alice.expect(lambda me: len(states_of(me, bob)) > told + 1, LATE_S)

    await alice.expect(lambda me: states_of(me, bob)[-1] == "offline", LATE_S)
    assert states_of(alice, bob)[told - 1 : told + 2] == ["online", "away", "online"]
    last = alice.of_type("signal", kind="presence", state="offline")[-1]
    assert last["last_seen"] > 1_700_000_000_000_000


async def test_watch_of_strangers_is_never_answered(
    stack: Stack, alice: RawChat, bob: str, east: Server, new_name: Callable[[str], str]
) -> None:
    """Opening a chat with somebody who never wrote in it reveals nothing about them."""
    async with device(stack, new_name("carol"), east) as carol:
        await alice.ask("open_direct", user=carol.user)
        await alice.tell("watch", users=[carol.user, "nobody-there", alice.user, bob])
        await alice.expect(lambda me: states_of(me, bob), LATE_S)
        await carol.tell("state", state="bg")
        async with device(stack, bob, east):
            await alice.expect(lambda me: states_of(me, bob)[-1] == "online", LATE_S)

    assert {signal["from"] for signal in alice.of_type("signal", kind="presence")} == {bob}


async def test_watch_of_fellow_members_of_a_group_is_answered(
    stack: Stack, alice: RawChat, east: Server, new_name: Callable[[str], str]
) -> None:
    """A group in common is enough."""
    async with device(stack, new_name("dora"), east) as dora:
        await alice.ask("create_chat", ref=new_name("g"), members=[dora.user], name="Trip")

        await alice.tell("watch", users=[dora.user])

        await alice.expect(lambda me: "online" in states_of(me, dora.user), LATE_S)
        await dora.tell("state", state="bg")
        await alice.expect(lambda me: states_of(me, dora.user)[-1] == "away", LATE_S)


async def test_reconnect_within_the_grace_is_told_to_nobody(
    stack: Stack, alice: RawChat, bob: str, east: Server, west: Server
) -> None:
    """At the same gateway or at another one."""
    async with device(stack, bob, east) as phone:
        await alice.tell("watch", users=[bob])
        await alice.expect(lambda me: states_of(me, bob)[-1:] == ["online"], LATE_S)
        told = len(states_of(alice, bob))
        for gateway in (east, west):
            await phone.reconnect(gateway.port)
        await phone.tell("state", state="bg")
        await alice.expect(lambda me: len(states_of(me, bob)) > told, LATE_S)

        assert states_of(alice, bob)[told:] == ["away"]


async def test_user_on_two_gateways_is_as_present_as_the_best_device(
    stack: Stack, alice: RawChat, bob: str, east: Server, west: Server
) -> None:
    """Hiding one of two devices changes nothing; hiding both does."""
    async with device(stack, bob, east) as phone, device(stack, bob, west, "2") as laptop:
        await laptop.tell("state", state="bg")
        await alice.tell("watch", users=[bob])
        await alice.expect(lambda me: states_of(me, bob)[-1:] == ["online"], LATE_S)
        told = len(states_of(alice, bob))
        await phone.tell("state", state="bg")
        await alice.expect(lambda me: len(states_of(me, bob)) > told, LATE_S)

        assert states_of(alice, bob)[told:] == ["away"]


async def test_idle_user_is_away_until_the_next_message(
    stack: Stack, alice: RawChat, bob: str, drowsy: Server
) -> None:
    """A connected but unused device is not presence; a send is."""
    async with device(stack, bob, drowsy) as phone:
        chat = (await phone.ask("open_direct", user=alice.user))["chat"]["chat"]
        await alice.tell("watch", users=[bob])
        await alice.expect(lambda me: states_of(me, bob)[-1:] == ["away"], LATE_S)
        told = len(states_of(alice, bob))

        while len(states_of(alice, bob)) == told:  # the test's own timeout is the deadline
            await phone.say(chat, "still here")
            await asyncio.sleep(0.2)  # there and back within a second is not told

        assert states_of(alice, bob)[told] == "online"


async def test_flapping_is_told_once_a_second_and_ends_in_the_truth(
    stack: Stack, alice: RawChat, bob: str, east: Server
) -> None:
    """However often a device changes, subscribers get few signals, and the last one is right."""
    async with device(stack, bob, east) as phone:
        await alice.tell("watch", users=[bob])
        await alice.expect(lambda me: states_of(me, bob)[-1:] == ["online"], LATE_S)
        told, start = len(states_of(alice, bob)), asyncio.get_running_loop().time()
        for _ in range(20):
            await phone.tell("state", state="bg")
            await phone.tell("state", state="fg")
        await phone.tell("state", state="bg")
        await alice.expect(lambda me: states_of(me, bob)[-1] == "away", LATE_S)
        took_s = asyncio.get_running_loop().time() - start

        assert len(states_of(alice, bob)) - told <= 2 + took_s


async def test_unwatch_ends_it(stack: Stack, alice: RawChat, bob: str, east: Server) -> None:
    """Later changes are not sent."""
    await alice.tell("watch", users=[bob])
    await alice.expect(lambda me: states_of(me, bob), LATE_S)
    told = len(states_of(alice, bob))

    await alice.tell("unwatch", users=[bob])
    await alice.ask("chats")  # answered after what was told before it
    async with device(stack, bob, east) as phone:
        await phone.tell("state", state="bg")
        await alice.ask("chats")
        await asyncio.sleep(0.2)  # nothing to wait for: it would have come by now

    assert len(states_of(alice, bob)) == told


async def test_watch_beyond_the_bound_is_refused_whole(alice: RawChat, bob: str) -> None:
    """The frame is answered with the bound, and the session goes on."""
    await alice.tell("watch", users=[bob, *(f"u{n}" for n in range(5))])

    error = await alice.expect_frame("error")

    assert error["code"] == "bad_request"
    assert error["message"] == "users: a session may subscribe to at most 5 users"
    assert states_of(alice, bob) == []
    await alice.tell("watch", users=[bob])
    await alice.expect(lambda me: states_of(me, bob), LATE_S)


async def test_users_of_a_killed_gateway_are_offline_within_the_ttl(
    stack: Stack, alice: RawChat, bob: str
) -> None:
    """The users do not log out: subscribers are notified all the same."""
    dying = stack.start_gateway(**{**FAST, "CHAT_GATEWAY_ONLINE_TTL_S": str(TTL_S)})
    phone = device(stack, bob, dying)
    await phone.start()
    await alice.tell("watch", users=[bob])
    await alice.expect(lambda me: states_of(me, bob)[-1:] == ["online"], LATE_S)

    dying.kill()
    await alice.expect(lambda me: states_of(me, bob)[-1] == "offline", LATE_S)

    with contextlib.suppress(Exception):
        await phone.abort()
    stack.gateways.remove(dying)
