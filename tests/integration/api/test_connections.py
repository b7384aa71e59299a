"""Connections of the HTTP API: deadlines, limits, and what one hostile client costs the others.

Requests are written byte by byte. A bystander is another client, with an address of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Iterable

import psutil
import pytest

from chatserver.dev.servers import Server
from tests.support.servers.processes import eventually
from tests.support.stack import Stack

pytest_plugins = ["tests.support.stack_fixtures"]

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]

PATIENCE_S = 30
SHORT_S = 1.5
BYSTANDER = "127.0.9.9"
PATHS = ("/healthz", "/readyz", "/v1/client-config")
HALF_HEAD = b"GET /v1/client-config HTTP/1.1\r\nHost: a\r\nX-Slow: "
HALF_BODY = (
    b"POST /v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)
WHOLE = b"GET /v1/client-config HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET /v1/client-config HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def api(stack: Stack) -> Server:
    """An API with the default limits."""
    return stack.start_api()


HTTP = "chatserver.api.http_connection."


def start_api(stack: Stack, **settings: float | str) -> Server:
    """Start an API with some settings of its own."""
    return stack.start_api(
        **{
            (HTTP + name if name.isupper() else f"CHAT_API_{name}".upper()): str(value)
            for name, value in settings.items()
        }
    )


async def connect(server: Server, address: str = "127.0.0.1") -> Peer:
    """Open a connection from an address of this machine."""
    return await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """Read until the server closes the connection, which has to be in order."""
    async with asyncio.timeout(PATIENCE_S):
        return await reader.read()


async def read_response(reader: asyncio.StreamReader) -> bytes:
    """Read one response with a Content-Length."""
    async with asyncio.timeout(PATIENCE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            line.split(b":")[1]
            for line in head.split(b"\r\n")
            if line.startswith(b"content-length")
        )
        return head + await reader.readexactly(int(length))


async def get(server: Server, path: str, address: str = BYSTANDER) -> int:
    """Make a request on a connection of its own; return the status of the response."""
    reader, writer = await connect(server, address)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        return int((await read_all(reader)).split()[1])
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def holding(server: Server, data: bytes, addresses: Iterable[str]) -> AsyncIterator[None]:
    """Hold a connection from each address, on each of which `data` was sent."""
    peers: list[Peer] = []
    try:
        for address in addresses:
            peers.append(await connect(server, address))
            peers[-1][1].write(data)
        yield
    finally:
        for _, writer in peers:
            writer.transport.abort()


async def check_bystander(server: Server, what: str) -> None:
    """A client with another address gets all its responses; how long they took is printed."""
    took: list[float] = []
    for path in PATHS * 5:
        start = time.monotonic()
        assert await get(server, path) == 200, f"{path} during {what}"
        took.append(time.monotonic() - start)
    sys.stdout.write(f"{what}: bystander slowest {max(took) * 1000:.0f} ms of {len(took)}\n")


def connections_of(server: Server) -> int:
    """Return how many clients a process has."""
    assert server.process is not None
    found = psutil.Process(server.process.pid).net_connections("tcp")
    return sum(each.laddr.port == server.port and each.status == "ESTABLISHED" for each in found)


@pytest.mark.parametrize("data", [b"", HALF_HEAD, HALF_BODY], ids=["silent", "head", "body"])
async def test_half_open_requests_of_one_address_displace_only_each_other(
    api: Server, data: bytes
) -> None:
    """1,200 at once: others, and the address itself, are served all the time."""
    async with holding(api, data, ["127.0.0.1"] * 1200):
        await check_bystander(api, f"1,200 half-open requests of one address ({data[:4]!r})")

        assert await get(api, "/v1/client-config", "127.0.0.1") == 200
        await eventually(lambda: connections_of(api) <= 226, what="the address has its share")


async def test_half_open_requests_of_many_addresses_displace_only_each_other(api: Server) -> None:
    """3,000 from 250 addresses, more than the process takes: the oldest make room."""
    addresses = [f"127.0.1.{n % 250 + 1}" for n in range(3000)]
    async with holding(api, HALF_HEAD, addresses):
        await check_bystander(api, "3,000 half-open requests of 250 addresses")


async def test_idle_connection_is_closed_first_when_connections_are_short(stack: Stack) -> None:
    """A peer in the middle of its request keeps its connection, one without a request does not."""
    api = start_api(stack, connections_max=16, CONNECTIONS_PER_ADDRESS_MAX=16)
    half_reader, half = await connect(api, "127.0.2.1")
    half.write(HALF_HEAD)
    idle_reader, idle = await connect(api, "127.0.2.2")
    idle.write(WHOLE)
    await read_response(idle_reader)

    async with holding(api, HALF_HEAD, [f"127.0.3.{n}" for n in range(1, 18)]):
        assert await read_all(idle_reader) == b""
        half.write(b"x\r\n\r\n")
        answer = await read_response(half_reader)

    assert answer.startswith(b"HTTP/1.1 200")
    for writer in (half, idle):
        writer.close()


async def test_request_head_that_trickles_in_ends_at_its_deadline(stack: Stack) -> None:
    """Each byte is in time, the whole is not: 408, then an orderly close."""
    api = start_api(stack, HEAD_TIMEOUT_S=SHORT_S)
    reader, writer = await connect(api)

    answer = await trickle(reader, writer, HALF_HEAD)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"bad_request"' in answer
    silent_reader, silent = await connect(api)
    assert await read_all(silent_reader) == b""
    silent.close()


async def test_request_body_that_trickles_in_ends_at_its_deadline(stack: Stack) -> None:
    """408 and an orderly close; the log has lines about it, not a traceback."""
    api = start_api(stack, BODY_TIMEOUT_S=SHORT_S)
    reader, writer = await connect(api)

    answer = await trickle(reader, writer, HALF_BODY)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert "Traceback" not in api.log_path.read_text()


async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    """Send a byte at a time, without end, until the server has closed; return its response."""
    answer = asyncio.ensure_future(read_all(reader))
    writer.write(data)
    while not answer.done():
        with contextlib.suppress(ConnectionError):
            writer.write(b"x")
            await writer.drain()
        await asyncio.wait([answer], timeout=0.05)
    writer.close()
    return answer.result()


async def test_aborted_body_is_logged_in_one_line(stack: Stack) -> None:
    """A client that disconnects during its request causes one line and no traceback."""
    api = start_api(stack)
    before = api.log_path.stat().st_size
    for _ in range(50):
        reader, writer = await connect(api)
        writer.write(HALF_BODY)
        await writer.drain()
        writer.close()
        await reader.read()

    def lines() -> list[bytes]:
        return api.log_path.read_bytes()[before:].splitlines()

    await eventually(lambda: sum(b"request.refused" in line for line in lines()) >= 50)
    assert sum(b'"request.' in line for line in lines()) == 50
    assert not any(b"Traceback" in line for line in lines())


async def test_idle_connection_is_closed_at_its_deadline(stack: Stack) -> None:
    """Without a message, as load balancers expect it; the time is a setting."""
    api = start_api(stack, idle_timeout_s=SHORT_S)
    reader, writer = await connect(api)
    writer.write(WHOLE)
    await read_response(reader)

    assert await read_all(reader) == b""
    writer.close()


async def test_client_that_does_not_read_its_response_is_dropped(stack: Stack) -> None:
    """Unread responses do not stay in memory: the connection is reset."""
    api = start_api(stack, WRITE_TIMEOUT_S=SHORT_S)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", api.port))
        client.settimeout(PATIENCE_S)
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                client.sendall(b"GET /v1/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n")

        await eventually(lambda: connections_of(api) == 0, what="the connection is closed")

    await check_bystander(api, "a client that does not read")


async def test_pipelined_requests_are_answered_in_order(api: Server) -> None:
    """All of them, one after the other; the last one closes."""
    reader, writer = await connect(api)

    writer.write(WHOLE * 3 + b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n" + LAST)
    answer = await read_all(reader)

    statuses = re.findall(rb"HTTP/1.1 (\d+) ", answer)
    assert statuses == [b"200", b"200", b"200", b"404", b"200"]
    writer.close()


async def test_http_1_0_request_is_answered_and_closed(api: Server) -> None:
    """Old probes and tools speak it."""
    reader, writer = await connect(api)

    writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
    answer = await read_all(reader)

    assert answer.startswith(b"HTTP/1.1 200")
    writer.close()


async def test_requests_of_one_client_behind_a_proxy_are_bounded(stack: Stack) -> None:
    """The proxy has no share; its client has, once the head is known. Probes always pass."""
    api = start_api(stack, CONNECTIONS_PER_ADDRESS_MAX=4, trusted_proxies='["127.0.4.1"]')
    slow = HALF_BODY.replace(b"Host: a", b"Host: a\r\nX-Forwarded-For: 192.0.2.77")
    request = WHOLE.replace(b"Host: a", b"Host: a\r\nX-Forwarded-For: %b")
    async with holding(api, slow, ["127.0.4.1"] * 12):

        async def status(client: bytes, path: bytes = b"/v1/client-config") -> bytes:
            reader, writer = await connect(api, "127.0.4.1")
            writer.write((request % client).replace(b"/v1/client-config", path))
            answer = await read_response(reader)
            writer.close()
            return answer.split()[1]

        async def is_refused() -> bool:
            return await status(b"192.0.2.77") == b"429"

        await eventually(is_refused, what="the client has used up its share")
        assert await status(b"192.0.2.78") == b"200"
        assert await status(b"192.0.2.77", b"/healthz") == b"200"


async def test_api_without_free_file_descriptors_goes_on_when_some_are_free(stack: Stack) -> None:
    """No crash and no busy loop while there are none: what waits is accepted afterwards."""
    api = start_api(stack)
    assert api.process is not None
    process = psutil.Process(api.process.pid)
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (process.num_fds() + 5, hard))
    peers = [await connect(api) for _ in range(40)]
    for _, writer in peers:
        writer.write(WHOLE)
    before = process.cpu_times()
    await asyncio.sleep(2)
    after = process.cpu_times()
    used_s = after.user + after.system - before.user - before.system
    sys.stdout.write(f"CPU in 2 s without descriptors: {used_s:.2f} s\n")
    for _, writer in peers:
        writer.transport.abort()

    async def is_served() -> bool:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, IndexError):
            return await get(api, "/v1/client-config") == 200
        return False

    await eventually(is_served, PATIENCE_S, "the API answers again")
    assert len(api.log_path.read_text().splitlines()) < 100


async def test_reset_in_the_middle_of_a_response_is_a_line_at_most(api: Server) -> None:
    """A client that resets its connection while it is written to costs no traceback."""
    before = api.log_path.stat().st_size
    for _ in range(20):
        reader, writer = await connect(api)
        writer.write(b"GET /v1/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.read(1000)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    await check_bystander(api, "resets")
    assert b"Traceback" not in api.log_path.read_bytes()[before:]
