"""Presence signals: which subscribers get which changes, at one and at several gateways."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from chatserver.dev.servers import Server
from tests.support.rawchat import RawChat
from tests.support.stack import NewName, Stack

GRACE_S = 6.0  # long enough to reconnect on a slow machine
AWAY_S = 1.0
TTL_S = 3
DEADLINE_S = 45.0  # for slow machines
FAST = {
    "CHAT_PRESENCE_OFFLINE_GRACE_S": str(GRACE_S),
    "chatserver.service.presence.subscriptions.SUBSCRIBED_USERS_MAX": "5",
    # A gateway that stalls longer counts as dead and its users as offline.
    "CHAT_GATEWAY_ONLINE_TTL_S": "15",
}


@pytest.fixture(scope="module")
def east(stack: Stack) -> Iterator[Server]:
    """A gateway with a short grace period before a user becomes offline."""
    yield stack.start_gateway(**FAST)


@pytest.fixture(scope="module")
def west(stack: Stack) -> Iterator[Server]:
    """Another gateway with the same settings."""
    yield stack.start_gateway(**FAST)


@pytest.fixture(scope="module")
def away_gateway(stack: Stack) -> Iterator[Server]:
    """A gateway that also sets users to away after a second without activity."""
    yield stack.start_gateway(**FAST, CHAT_PRESENCE_AWAY_AFTER_S=str(AWAY_S))


@pytest.fixture(scope="module")
def no_grace_gateway(stack: Stack) -> Iterator[Server]:
    """A gateway without a grace period: users are offline as soon as they disconnect."""
    yield stack.start_gateway(**{**FAST, "CHAT_PRESENCE_OFFLINE_GRACE_S": "0"})


@pytest.fixture
async def alice(stack: Stack, east: Server, new_name: NewName) -> AsyncIterator[RawChat]:
    """The subscriber's connected device, at the east gateway."""
    async with stack.chat_of(new_name("alice"), port=east.port) as chat:
        yield chat


def device(stack: Stack, user: str, gateway: Server, name: str = "1") -> RawChat:
    """A device of a user at a gateway."""
    return stack.chat_of(user, port=gateway.port, device=f"{user}-{name}")


def states_of(alice: RawChat, user: str) -> list[str]:
    """Return the presence states of a user that alice has received, in order."""
    return [
        signal["state"] for signal in alice.of_type("signal", kind="presence", **{"from": user})
    ]


@pytest.fixture
async def bob(stack: Stack, alice: RawChat, no_grace_gateway: Server, new_name: NewName) -> str:
    """A user who has written to alice and is not connected. Alice has the chat in her list."""
    name = new_name("bob")
    await stack.add_users([name])
    async with stack.chat_of(name, port=no_grace_gateway.port) as phone:
        chat = await phone.open_direct(alice.user)
        await phone.send(chat, "hello")
    await alice.expect(lambda me: me.messages(chat), DEADLINE_S)
    return name


async def test_watch_returns_the_current_state_and_then_each_change(
    stack: Stack, alice: RawChat, bob: str, west: Server
) -> None:
    """The user at another gateway goes to background, to foreground, and disconnects."""
    async with device(stack, bob, west) as phone:
        await alice.send_frame("watch", users=[bob])
        await alice.expect(lambda me: states_of(me, bob), DEADLINE_S)
        await alice.expect(lambda me: states_of(me, bob)[-1] == "online", DEADLINE_S)
        count = len(states_of(alice, bob))
        await phone.send_frame("state", state="bg")
        await alice.expect(lambda me: len(states_of(me, bob)) > count, DEADLINE_S)
        await phone.send_frame("state", state="fg")
        await alice.expect(lambda me: len(states_of(me, bob)) > count + 1, DEADLINE_S)

    await alice.expect(lambda me: states_of(me, bob)[-1] == "offline", DEADLINE_S)
    assert states_of(alice, bob)[count - 1 : count + 2] == ["online", "away", "online"]
    last = alice.of_type("signal", kind="presence", state="offline")[-1]
    assert last["last_seen"] > 1_700_000_000_000_000


async def test_watch_of_strangers_returns_nothing(
    stack: Stack, alice: RawChat, bob: str, east: Server, new_name: NewName
) -> None:
    """Opening a direct chat does not reveal the presence of a user who never wrote in it."""
    async with device(stack, new_name("carol"), east) as carol:
        await alice.request("open_direct", user=carol.user)
        await alice.send_frame("watch", users=[carol.user, "nobody-there", alice.user, bob])
        await alice.expect(lambda me: states_of(me, bob), DEADLINE_S)
        await carol.send_frame("state", state="bg")
        async with device(stack, bob, east):
            await alice.expect(lambda me: states_of(me, bob)[-1] == "online", DEADLINE_S)

    assert {signal["from"] for signal in alice.of_type("signal", kind="presence")} == {bob}


async def test_watch_of_members_of_a_common_group_returns_their_state(
    stack: Stack, alice: RawChat, east: Server, new_name: NewName
) -> None:
    """Members of a common group may see each other's presence."""
    async with device(stack, new_name("dora"), east) as dora:
        await alice.request("create_chat", ref=new_name("g"), members=[dora.user], name="Trip")

        await alice.send_frame("watch", users=[dora.user])

        await alice.expect(lambda me: "online" in states_of(me, dora.user), DEADLINE_S)
        await dora.send_frame("state", state="bg")
        await alice.expect(lambda me: states_of(me, dora.user)[-1] == "away", DEADLINE_S)


async def test_reconnect_within_the_grace_period_sends_no_signal(
    stack: Stack, alice: RawChat, bob: str, east: Server, west: Server
) -> None:
    """The device may reconnect to the same gateway or to another one."""
    async with device(stack, bob, east) as phone:
        await alice.send_frame("watch", users=[bob])
        await alice.expect(lambda me: states_of(me, bob)[-1:] == ["online"], DEADLINE_S)
        count = len(states_of(alice, bob))
        for gateway in (east, west):
            await phone.reconnect(gateway.port)
        await phone.send_frame("state", state="bg")
        await alice.expect(lambda me: len(states_of(me, bob)) > count, DEADLINE_S)

        assert states_of(alice, bob)[count:] == ["away"]


async def test_idle_user_is_away_until_the_next_message(
    stack: Stack, alice: RawChat, bob: str, away_gateway: Server
) -> None:
    """A connected but idle device makes the user away; a send makes the user online."""
    async with device(stack, bob, away_gateway) as phone:
        chat = await phone.open_direct(alice.user)
        await alice.send_frame("watch", users=[bob])
        await alice.expect(lambda me: states_of(me, bob)[-1:] == ["away"], DEADLINE_S)
        count = len(states_of(alice, bob))

        while len(states_of(alice, bob)) == count:  # the timeout of the test is the deadline
            await phone.send(chat, "still here")
            await asyncio.sleep(0.2)  # a change that reverts within a second is not sent

        assert states_of(alice, bob)[count] == "online"


async def test_frequent_changes_send_one_signal_a_second_and_the_final_state(
    stack: Stack, alice: RawChat, bob: str, east: Server
) -> None:
    """However often a device changes, subscribers get few signals and the correct final state."""
    async with device(stack, bob, east) as phone:
        await alice.send_frame("watch", users=[bob])
        await alice.expect(lambda me: states_of(me, bob)[-1:] == ["online"], DEADLINE_S)
        count, start = len(states_of(alice, bob)), asyncio.get_running_loop().time()
        for _ in range(20):
            await phone.send_frame("state", state="bg")
            await phone.send_frame("state", state="fg")
        await phone.send_frame("state", state="bg")
        await alice.expect(lambda me: states_of(me, bob)[-1] == "away", DEADLINE_S)
        took_s = asyncio.get_running_loop().time() - start

        assert len(states_of(alice, bob)) - count <= 2 + took_s


async def test_users_of_a_killed_gateway_are_offline_within_the_ttl(
    stack: Stack, alice: RawChat, bob: str
) -> None:
    """Subscribers are notified although the users never disconnected."""
    killed = stack.start_gateway(**{**FAST, "CHAT_GATEWAY_ONLINE_TTL_S": str(TTL_S)})
    phone = device(stack, bob, killed)
    await phone.start()
    await alice.send_frame("watch", users=[bob])
    await alice.expect(lambda me: states_of(me, bob)[-1:] == ["online"], DEADLINE_S)

    killed.kill()
    await alice.expect(lambda me: states_of(me, bob)[-1] == "offline", DEADLINE_S)

    with contextlib.suppress(Exception):
        await phone.abort()
    stack.gateways.remove(killed)
