"""`TcpProxy` tests: each fault has exactly its documented effect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.support.servers.processes import eventually
from tests.support.servers.tcp_proxy import TcpProxy

SOON_S = 0.2
DEADLINE_S = 30.0  # only a failure takes this long


@pytest.fixture
async def proxy() -> AsyncIterator[TcpProxy]:
    """A proxy in front of an echo server."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with TcpProxy(server.sockets[0].getsockname()[1]) as made:
        yield made
    server.close()


class Peer:
    """A client of the echo server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self, data: bytes, deadline_s: float = DEADLINE_S) -> bytes:
        """Send bytes and return the same number of bytes."""
        self.writer.write(data)
        async with asyncio.timeout(deadline_s):
            return await self.reader.readexactly(len(data))


async def connect(proxy: TcpProxy) -> Peer:
    """Connect through the proxy."""
    return Peer(*await asyncio.open_connection("127.0.0.1", proxy.port))


async def test_proxy_without_faults_forwards_all_bytes(proxy: TcpProxy) -> None:
    """A large response arrives complete, and end of file is forwarded."""
    peer = await connect(proxy)
    data = bytes(range(256)) * 4000

    assert await peer.request(data) == data
    peer.writer.write_eof()
    assert await peer.reader.read() == b""


async def test_proxy_latency_delays_both_ways(proxy: TcpProxy) -> None:
    """A round trip takes the latency twice."""
    peer = await connect(proxy)
    proxy.latency_s = 0.05
    start = asyncio.get_running_loop().time()

    await peer.request(b"x")

    assert asyncio.get_running_loop().time() - start >= 0.1


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_proxy_blackhole_looks_alive_and_is_reset_by_heal(
    proxy: TcpProxy, direction: str
) -> None:
    """Bytes are dropped without an error. `end_faults` resets the connection; a new one works."""
    peer = await connect(proxy)
    await peer.request(b"x")
    proxy.blackhole("up" if direction == "up" else "down")

    with pytest.raises(TimeoutError):
        await peer.request(b"y", deadline_s=SOON_S)
    await eventually(lambda: proxy.has_lost_bytes)
    proxy.end_faults()

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await peer.reader.readexactly(1)
    assert await (await connect(proxy)).request(b"z") == b"z"


async def test_proxy_tear_cuts_one_answer_in_the_middle(proxy: TcpProxy) -> None:
    """The client gets the first bytes of a response and a reset; the next connection works."""
    peer = await connect(proxy)
    proxy.tear(3)

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)) as caught:
        await peer.request(b"abcdef")

    if isinstance(caught.value, asyncio.IncompleteReadError):
        assert caught.value.partial == b"abc"
    assert await (await connect(proxy)).request(b"abcdef") == b"abcdef"


async def test_proxy_reset_cuts_open_connections_only(proxy: TcpProxy) -> None:
    """A reset affects open connections; later connections are served."""
    peer = await connect(proxy)
    await peer.request(b"x")

    proxy.reset()

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await peer.request(b"y")
    assert await (await connect(proxy)).request(b"z") == b"z"


async def test_proxy_refuse_resets_new_connections_until_healed(proxy: TcpProxy) -> None:
    """New connections fail until `end_faults`."""
    proxy.refuse()

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await (await connect(proxy)).request(b"x")
    await eventually(lambda: proxy.connections_made == 1)
    proxy.end_faults()

    assert await (await connect(proxy)).request(b"z") == b"z"
