"""Connections of the HTTP API: deadlines, limits, and the effect of a hostile client on others.

Requests are written to raw sockets. A bystander is a normal client with another address.
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
from tests.support.servers.processes import eventually, eventually_equal
from tests.support.stack import Stack

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]

DEADLINE_S = 30
SHORT_S = 1.5
BYSTANDER = "127.0.9.9"
PATHS = ("/healthz", "/readyz", "/v1/client-config")
HALF_HEAD = b"GET /v1/client-config HTTP/1.1\r\nHost: a\r\nX-Slow: "
HALF_BODY = (
    b"POST /v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)
REQUEST = b"GET /v1/client-config HTTP/1.1\r\nHost: a\r\n\r\n"
LAST_REQUEST = b"GET /v1/client-config HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def api(stack: Stack) -> Server:
    return stack.start_api()


HTTP = "chatserver.api.http_connection."


def start_api(stack: Stack, **settings: float | str) -> Server:
    """Start an API with other settings; an uppercase name is a constant of the module."""
    return stack.start_api(
        **{
            (HTTP + name if name.isupper() else f"CHAT_API_{name}".upper()): str(value)
            for name, value in settings.items()
        }
    )


async def connect(server: Server, address: str = "127.0.0.1") -> Peer:
    return await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """Read until the server closes the connection; a reset is an error."""
    async with asyncio.timeout(DEADLINE_S):
        return await reader.read()


async def read_response(reader: asyncio.StreamReader) -> bytes:
    """Read one response with a Content-Length."""
    async with asyncio.timeout(DEADLINE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            line.split(b":")[1]
            for line in head.split(b"\r\n")
            if line.startswith(b"content-length")
        )
        return head + await reader.readexactly(int(length))


async def get(server: Server, path: str, address: str = BYSTANDER) -> int:
    """Make a request on a new connection; return the status of the response."""
    reader, writer = await connect(server, address)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        return int((await read_all(reader)).split()[1])
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def held_connections(
    server: Server, data: bytes, addresses: Iterable[str]
) -> AsyncIterator[None]:
    """Open one connection from each address, send `data`, and hold them all open."""
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
    """Check that a client with another address gets all its responses; print the slowest time."""
    durations_s: list[float] = []
    for path in PATHS * 5:
        start = time.monotonic()
        assert await get(server, path) == 200, f"{path} during {what}"
        durations_s.append(time.monotonic() - start)
    slowest_ms = max(durations_s) * 1000
    sys.stdout.write(f"{what}: bystander slowest {slowest_ms:.0f} ms of {len(durations_s)}\n")


def count_connections(server: Server) -> int:
    assert server.process is not None
    found = psutil.Process(server.process.pid).net_connections("tcp")
    return sum(each.laddr.port == server.port and each.status == "ESTABLISHED" for each in found)


@pytest.mark.parametrize("data", [b"", HALF_HEAD, HALF_BODY], ids=["silent", "head", "body"])
async def test_half_open_requests_of_one_address_displace_only_each_other(
    api: Server, data: bytes
) -> None:
    """With 1,200 of them at once, new requests of this and other addresses are still served."""
    async with held_connections(api, data, ["127.0.0.1"] * 1200):
        await check_bystander(api, f"1,200 half-open requests of one address ({data[:4]!r})")

        assert await get(api, "/v1/client-config", "127.0.0.1") == 200
        await eventually(lambda: count_connections(api) <= 226, what="the address is at its limit")


async def test_half_open_requests_of_many_addresses_displace_only_each_other(api: Server) -> None:
    """3,000 from 250 addresses exceed the limit of the process: the oldest are closed."""
    addresses = [f"127.0.1.{n % 250 + 1}" for n in range(3000)]
    async with held_connections(api, HALF_HEAD, addresses):
        await check_bystander(api, "3,000 half-open requests of 250 addresses")


async def test_idle_connection_is_closed_first_at_the_connection_limit(stack: Stack) -> None:
    """A connection with an incomplete request is kept; one without a request is closed."""
    api = start_api(stack, connections_max=16, CONNECTIONS_PER_ADDRESS_MAX=16)
    half_reader, half = await connect(api, "127.0.2.1")
    half.write(HALF_HEAD)
    idle_reader, idle = await connect(api, "127.0.2.2")
    idle.write(REQUEST)
    await read_response(idle_reader)

    async with held_connections(api, HALF_HEAD, [f"127.0.3.{n}" for n in range(1, 18)]):
        assert await read_all(idle_reader) == b""
        half.write(b"x\r\n\r\n")
        answer = await read_response(half_reader)

    assert answer.startswith(b"HTTP/1.1 200")
    for writer in (half, idle):
        writer.close()


async def test_slow_request_head_is_ended_at_its_deadline(stack: Stack) -> None:
    """A client that sends a byte at a time gets 408, then an orderly close."""
    api = start_api(stack, HEAD_TIMEOUT_S=SHORT_S)
    reader, writer = await connect(api)

    answer = await send_slowly(reader, writer, HALF_HEAD)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"bad_request"' in answer
    silent_reader, silent = await connect(api)
    assert await read_all(silent_reader) == b""
    silent.close()


async def test_slow_request_body_is_ended_at_its_deadline(stack: Stack) -> None:
    """The server sends 408 and closes; the log has no traceback."""
    api = start_api(stack, BODY_TIMEOUT_S=SHORT_S)
    reader, writer = await connect(api)

    answer = await send_slowly(reader, writer, HALF_BODY)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert "Traceback" not in api.log_path.read_text()


async def send_slowly(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes
) -> bytes:
    """Send one byte at a time until the server closes; return its response."""
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
    """A client that disconnects during its request causes one log line and no traceback."""
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
    """The server sends no response, as load balancers expect. The timeout is a setting."""
    api = start_api(stack, idle_timeout_s=SHORT_S)
    reader, writer = await connect(api)
    writer.write(REQUEST)
    await read_response(reader)

    assert await read_all(reader) == b""
    writer.close()


async def test_client_that_does_not_read_its_response_is_dropped(stack: Stack) -> None:
    """Unread responses do not fill the memory: the connection is closed."""
    api = start_api(stack, WRITE_TIMEOUT_S=SHORT_S)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", api.port))
        client.settimeout(DEADLINE_S)
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                client.sendall(b"GET /v1/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n")

        await eventually(lambda: count_connections(api) == 0, what="the connection is closed")

    await check_bystander(api, "a client that does not read")


async def test_pipelined_requests_are_answered_in_order(api: Server) -> None:
    """Each request gets its response; after the last one the server closes."""
    reader, writer = await connect(api)

    writer.write(REQUEST * 3 + b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n" + LAST_REQUEST)
    answer = await read_all(reader)

    statuses = re.findall(rb"HTTP/1.1 (\d+) ", answer)
    assert statuses == [b"200", b"200", b"200", b"404", b"200"]
    writer.close()


async def test_http_1_0_request_is_answered_and_closed(api: Server) -> None:
    """Some health probes and tools still use HTTP/1.0."""
    reader, writer = await connect(api)

    writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
    answer = await read_all(reader)

    assert answer.startswith(b"HTTP/1.1 200")
    writer.close()


async def test_absolute_request_target_is_served_like_its_path(api: Server) -> None:
    """Every server must accept it (RFC 9112 section 3.2.2)."""
    for path, status in ((b"/v1/client-config", b"200"), (b"/v1/me?x=1", b"401")):
        reader, writer = await connect(api)
        writer.write(b"GET http://a%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path)
        answer = await read_all(reader)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 " + status), answer


async def test_connections_of_one_client_behind_a_proxy_are_limited(stack: Stack) -> None:
    """The limit applies to the forwarded address, not to the proxy; probes are exempt."""
    api = start_api(stack, CONNECTIONS_PER_ADDRESS_MAX=4, trusted_proxies='["127.0.4.1"]')
    slow = HALF_BODY.replace(b"Host: a", b"Host: a\r\nX-Forwarded-For: 192.0.2.77")
    request = REQUEST.replace(b"Host: a", b"Host: a\r\nX-Forwarded-For: %b")
    async with held_connections(api, slow, ["127.0.4.1"] * 12):

        async def status(client: bytes, path: bytes = b"/v1/client-config") -> bytes:
            reader, writer = await connect(api, "127.0.4.1")
            writer.write((request % client).replace(b"/v1/client-config", path))
            answer = await read_response(reader)
            writer.close()
            return answer.split()[1]

        await eventually_equal(lambda: status(b"192.0.2.77"), b"429")  # at its limit
        assert await status(b"192.0.2.78") == b"200"
        assert await status(b"192.0.2.77", b"/healthz") == b"200"


async def test_api_without_free_file_descriptors_recovers(stack: Stack) -> None:
    """It does not crash or loop. Once file descriptors are free, it accepts connections."""
    api = start_api(stack)
    assert api.process is not None
    process = psutil.Process(api.process.pid)
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (process.num_fds() + 5, hard))
    peers = [await connect(api) for _ in range(40)]
    for _, writer in peers:
        writer.write(REQUEST)
    before = process.cpu_times()
    await asyncio.sleep(2)
    after = process.cpu_times()
    used_s = after.user + after.system - before.user - before.system
    assert used_s < 1, f"{used_s:.2f} s of CPU in 2 s without file descriptors"
    for _, writer in peers:
        writer.transport.abort()

    async def is_served() -> bool:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, IndexError):
            return await get(api, "/v1/client-config") == 200
        return False

    await eventually(is_served, DEADLINE_S, "the API answers again")
    assert len(api.log_path.read_text().splitlines()) < 100


async def test_reset_during_a_response_logs_no_traceback(api: Server) -> None:
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
