"""Stack fixtures shared by the tests of one folder."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from chatserver.dev.servers import Server
from tests.support.rawchat import RawChat
from tests.support.stack import PATIENT, NewName, Stack, open_stack
from tests.support.wire import RawSocket

ORIGIN = "https://chat.example"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Redis, DynamoDB, all workers and a gateway with default limits."""
    folder = tmp_path_factory.mktemp("stack")
    env = {**PATIENT, "CHAT_GATEWAY_ORIGINS": f'["{ORIGIN}"]'}
    with open_stack(folder, fsync="no", env=env) as made:
        yield made


# Each gateway has only one short deadline, so that no other one can expire first.


@pytest.fixture(scope="session")
def short_handshake_gateway(stack: Stack) -> Server:
    """A gateway of the stack with a short handshake timeout."""
    return stack.start_gateway(
        **{"chatserver.gateway.transport.handshake.HANDSHAKE_TIMEOUT_S": "1.5"}
    )


@pytest.fixture(scope="session")
def short_hello_gateway(stack: Stack) -> Server:
    """A gateway of the stack with a short hello timeout."""
    return stack.start_gateway(
        **{"chatserver.gateway.session.session_opening.HELLO_TIMEOUT_S": "1.5"}
    )


@pytest.fixture(scope="session")
def small_limits_gateway(stack: Stack) -> Server:
    """A gateway of the stack with a short message timeout and small limits."""
    return stack.start_gateway(
        **{"chatserver.gateway.transport.connection.MESSAGE_TIMEOUT_S": "1.5"},
        **{"chatserver.gateway.session.session_limits.SENDS_IN_FLIGHT_MAX": "4"},
        CHAT_GATEWAY_SESSIONS_PER_USER_MAX="3",
    )


@pytest.fixture(scope="session")
def fast_ping_gateway(stack: Stack) -> Server:
    """A gateway of the stack with a fast heartbeat."""
    return stack.start_gateway(
        CHAT_GATEWAY_PING_INTERVAL_S="1.6", CHAT_GATEWAY_PONG_TIMEOUT_S="1.5"
    )


@pytest.fixture
def new_name() -> NewName:
    """A function that generates unique names."""
    return lambda stem: f"{stem}-{next(_numbers)}-{secrets.token_hex(3)}"


@pytest.fixture
async def live(stack: Stack, new_name: NewName) -> AsyncIterator[RawSocket]:
    """A raw socket that has completed hello and welcome."""
    ws = await stack.open_live(stack.port, new_name("ws"))
    yield ws
    await ws.abort()


@pytest.fixture
async def alice(stack: Stack, new_name: NewName) -> AsyncIterator[RawChat]:
    """A connected device of one user."""
    async with stack.chat_of(new_name("alice")) as chat:
        yield chat


@pytest.fixture
async def bob(stack: Stack, new_name: NewName) -> AsyncIterator[RawChat]:
    """A connected device of another user."""
    async with stack.chat_of(new_name("bob")) as chat:
        yield chat


@pytest.fixture
async def pair(alice: RawChat, bob: RawChat) -> str:
    """The direct chat of alice and bob, who are both connected."""
    chat = await alice.open_direct(bob.user)
    bob.frames.remove(await bob.request("open_direct", user=alice.user))
    for device in (alice, bob):
        await device.expect_frame("event", kind="chat", chat=chat)
    return chat


@pytest.fixture
async def group(alice: RawChat, bob: RawChat) -> str:
    """A group owned by alice, with bob as a member."""
    chat = await alice.create_group([bob.user], name="Trip")
    await bob.expect_frame("event", kind="chat", chat=chat)
    return chat


@pytest.fixture(scope="session")
def small_hot_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with a small hot tier: 20 messages per chat and 20 events per inbox."""
    folder = tmp_path_factory.mktemp("small-hot")
    bounds = {"CHAT_REDIS_LOG_MAX": "20", "CHAT_REDIS_INBOX_MAX": "20"}
    with open_stack(folder, fsync="no", env={**PATIENT, **bounds}) as made:
        yield made
