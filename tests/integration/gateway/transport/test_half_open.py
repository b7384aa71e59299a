"""Unauthenticated sockets: one address cannot use up the connections of a gateway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from chatserver.dev.servers import Server
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack

DEADLINE_S = 30
PARTIAL_REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n"
FULL_REQUEST = (
    PARTIAL_REQUEST + b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat.v1\r\n\r\n"
)


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Server:
    """A gateway that allows few unauthenticated sockets and has a long hello timeout."""
    return stack.start_gateway(
        **{"chatserver.gateway.transport.admission_control.UNAUTHENTICATED_MAX": "64"},
        **{"chatserver.gateway.transport.admission_control.UNAUTHENTICATED_PER_ADDRESS_MAX": "16"},
        CHAT_GATEWAY_TRUSTED_PROXIES='["127.0.5.1"]',
    )


@contextlib.asynccontextmanager
async def open_sockets(
    gateway: Server, data: bytes, addresses: list[str]
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open a socket from each address, send `data`, and keep it open."""
    streams = []
    try:
        for address in addresses:
            streams.append(
                await asyncio.open_connection("127.0.0.1", gateway.port, local_addr=(address, 0))
            )
            streams[-1][1].write(data)
        yield [reader for reader, _ in streams]
    finally:
        for _, writer in streams:
            writer.transport.abort()


async def check_other_user_can_connect(stack: Stack, gateway: Server, user: str) -> None:
    """Check that a user from another address can still connect."""
    ws = await stack.open_live(gateway.port, user)
    await ws.abort()


async def count_open(readers: list[asyncio.StreamReader]) -> int:
    """Return how many of the sockets the gateway has not closed."""
    for reader in readers:
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(0.001):
                while await reader.read(1000):
                    pass
    return sum(not reader.at_eof() and reader.exception() is None for reader in readers)


@pytest.mark.parametrize(
    "data", [b"", PARTIAL_REQUEST, FULL_REQUEST], ids=["silent", "partial request", "no hello"]
)
async def test_unauthenticated_sockets_of_one_address_displace_only_each_other(
    stack: Stack, gateway: Server, new_name: NewName, data: bytes
) -> None:
    """Above the limit of an address its oldest socket is closed, never an authenticated session."""
    live = await stack.open_live(gateway.port, new_name("live"))
    async with open_sockets(gateway, data, ["127.0.6.1"] * 100) as readers:

        async def is_bounded() -> bool:
            return await count_open(readers) <= 18

        await eventually(is_bounded, DEADLINE_S)
        await check_other_user_can_connect(stack, gateway, new_name("other"))
        await live.send_json({"type": "chats", "id": 1, "limit": 1})
        assert (await live.recv_json())["id"] == 1
    await live.abort()


async def test_unauthenticated_sockets_of_many_addresses_displace_only_each_other(
    stack: Stack, gateway: Server, new_name: NewName
) -> None:
    """Above the gateway's limit, the oldest sockets make room for new ones."""
    addresses = [f"127.0.7.{n % 50 + 1}" for n in range(300)]
    async with open_sockets(gateway, PARTIAL_REQUEST, addresses) as readers:

        async def is_bounded() -> bool:
            return await count_open(readers) <= 72

        await eventually(is_bounded, DEADLINE_S)
        await check_other_user_can_connect(stack, gateway, new_name("other"))


async def test_sockets_of_a_trusted_proxy_count_for_its_clients(
    stack: Stack, gateway: Server, new_name: NewName
) -> None:
    """A proxy's socket counts for the forwarded client address once its headers are complete."""
    forwarded = FULL_REQUEST.replace(b"Host: a", b"Host: a\r\nX-Forwarded-For: 192.0.2.99")
    async with (
        open_sockets(gateway, PARTIAL_REQUEST, ["127.0.5.1"] * 30) as partial,
        open_sockets(gateway, forwarded, ["127.0.5.1"] * 30) as readers,
    ):

        async def is_bounded() -> bool:
            return await count_open(readers) <= 18

        await eventually(is_bounded, DEADLINE_S)
        assert await count_open(partial) == 30
        await check_other_user_can_connect(stack, gateway, new_name("other"))
