"""Sockets without a good hello: one address cannot take a gateway's connections from the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from chatserver.dev.servers import Server
from tests.support.servers.processes import eventually
from tests.support.stack import Stack

pytest_plugins = ["tests.support.stack_fixtures"]

PATIENCE_S = 30
HALF = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n"
WHOLE = (
    HALF + b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat.v1\r\n\r\n"
)


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Server:
    """A gateway that takes few sockets without a hello, and waits long for one."""
    return stack.start_gateway(
        **{"chatserver.gateway.process.server.UNAUTHENTICATED_MAX": "64"},
        **{"chatserver.gateway.process.server.UNAUTHENTICATED_PER_ADDRESS_MAX": "16"},
        CHAT_GATEWAY_TRUSTED_PROXIES='["127.0.5.1"]',
    )


@contextlib.asynccontextmanager
async def holding(
    gateway: Server, data: bytes, addresses: list[str]
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Hold a socket from each address, on each of which `data` was sent."""
    peers = []
    try:
        for address in addresses:
            peers.append(
                await asyncio.open_connection("127.0.0.1", gateway.port, local_addr=(address, 0))
            )
            peers[-1][1].write(data)
        yield [reader for reader, _ in peers]
    finally:
        for _, writer in peers:
            writer.transport.abort()


async def check_bystander(stack: Stack, gateway: Server, user: str) -> None:
    """Another user can still connect."""
    ws = await stack.open_live(gateway.port, user)
    await ws.abort()


async def count_open(readers: list[asyncio.StreamReader]) -> int:
    """Return how many of the sockets the gateway has left open."""
    for reader in readers:
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(0.001):
                while await reader.read(1000):
                    pass
    return sum(not reader.at_eof() and reader.exception() is None for reader in readers)


@pytest.mark.parametrize("data", [b"", HALF, WHOLE], ids=["silent", "half", "no hello"])
async def test_sockets_without_a_hello_of_one_address_displace_only_each_other(
    stack: Stack, gateway: Server, new_name: Callable[[str], str], data: bytes
) -> None:
    """Beyond its share the oldest of the address is closed; a live session is never."""
    live = await stack.open_live(gateway.port, new_name("live"))
    async with holding(gateway, data, ["127.0.6.1"] * 100) as readers:

        async def is_bounded() -> bool:
            return await count_open(readers) <= 18

        await eventually(is_bounded, PATIENCE_S)
        await check_bystander(stack, gateway, new_name("bystander"))
        await live.send_json({"type": "chats", "id": 1, "limit": 1})
        assert (await live.recv_json())["id"] == 1
    await live.abort()


async def test_sockets_without_a_hello_of_many_addresses_displace_only_each_other(
    stack: Stack, gateway: Server, new_name: Callable[[str], str]
) -> None:
    """Above the gateway's limit, the oldest sockets make room for new ones."""
    addresses = [f"127.0.7.{n % 50 + 1}" for n in range(300)]
    async with holding(gateway, HALF, addresses) as readers:

        async def is_bounded() -> bool:
            return await count_open(readers) <= 72

        await eventually(is_bounded, PATIENCE_S)
        await check_bystander(stack, gateway, new_name("bystander"))


async def test_sockets_of_a_proxy_count_in_the_share_of_its_clients(
    stack: Stack, gateway: Server, new_name: Callable[[str], str]
) -> None:
    """Before the head the owner is unknown; then the socket counts for its client."""
    forwarded = WHOLE.replace(b"Host: a", b"Host: a\r\nX-Forwarded-For: 192.0.2.99")
    async with (
        holding(gateway, HALF, ["127.0.5.1"] * 30) as halves,
        holding(gateway, forwarded, ["127.0.5.1"] * 30) as readers,
    ):

        async def is_bounded() -> bool:
            return await count_open(readers) <= 18

        await eventually(is_bounded, PATIENCE_S)
        assert await count_open(halves) == 30
        await check_bystander(stack, gateway, new_name("bystander"))
