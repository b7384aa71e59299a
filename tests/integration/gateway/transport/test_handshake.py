"""The opening handshake (RFC 6455 section 4): accepted and refused requests, and deadlines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chatserver.dev.servers import Server
from tests.support.stack import Stack
from tests.support.stack_fixtures import ORIGIN
from tests.support.wire import (
    PING,
    PONG,
    TEXT,
    Ended,
    RawSocket,
    Refused,
    Response,
    build_frame,
    build_request,
)

NO_HELLO, NOT_CHAT = 3500, 3501


async def get_refusal(stack: Stack, **request: Any) -> Response:
    """Return the HTTP response of a refused handshake."""
    with pytest.raises(Refused) as caught:
        await RawSocket.open(stack.port, **request)
    return caught.value.response


async def get_response(stack: Stack, data: bytes) -> Response | None:
    """Send raw bytes; return the HTTP response, or None if the connection was closed instead."""
    async with await RawSocket.connect(stack.port) as ws:
        try:
            await ws.write(data)
            return await ws.read_response()
        except Ended:
            return None


# ── Host (RFC 9112 section 3.2) ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "request_",
    [
        {"change": {"Host": None}},
        {"more": [("Host", "127.0.0.1")]},
        {"more": [("host", "elsewhere.example")]},
        {"change": {"Host": "two hosts"}},
        {"change": {"Host": "user@example.com"}},
        {"change": {"Host": "example.com/path"}},
        {"change": {"Host": None}, "target": "/healthz"},
    ],
    ids=str,
)
async def test_request_without_exactly_one_valid_host_gets_400(
    stack: Stack, request_: dict[str, Any]
) -> None:
    """Otherwise a proxy and the gateway could see different hosts."""
    response = await get_refusal(stack, **request_)

    assert response.status == 400
    assert b"Host" in response.body


@pytest.mark.parametrize("host", ["example.com", "example.com:443", "[::1]:9000", "192.0.2.1", ""])
async def test_request_with_one_valid_host_is_accepted(stack: Stack, host: str) -> None:
    """Every form of the field in RFC 9110 section 7.2 is valid."""
    async with await RawSocket.open(stack.port, change={"Host": host}) as ws:
        assert ws.response is not None
        assert ws.response.status == 101


# ── accepted ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("offer", [("chat.v1",), ("other", "chat.v1"), ("chat.v1", "chat.v9")])
async def test_handshake_that_offers_chat_v1_gets_it(stack: Stack, offer: tuple[str, ...]) -> None:
    """The server chooses chat.v1 at any position in the list."""
    async with await RawSocket.open(stack.port, subprotocols=offer) as ws:
        assert ws.response is not None
        assert ws.response.headers["sec-websocket-protocol"] == "chat.v1"


async def test_handshake_that_offers_compression_gets_none(stack: Stack) -> None:
    """The server negotiates no extension."""
    change = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}

    async with await RawSocket.open(stack.port, change=change) as ws:
        assert ws.response is not None
        assert "sec-websocket-extensions" not in ws.response.headers


@pytest.mark.parametrize(
    "change",
    [
        {"Upgrade": "WebSocket"},
        {"Connection": "keep-alive, Upgrade"},
        {"Connection": "upgrade"},
        {"Origin": ORIGIN},
    ],
    ids=str,
)
async def test_handshake_with_other_valid_header_values_is_accepted(
    stack: Stack, change: dict[str, str]
) -> None:
    """Tokens are case-insensitive, and Connection may list several."""
    async with await RawSocket.open(stack.port, change=change) as ws:
        assert ws.response is not None


async def test_handshake_byte_by_byte_is_accepted(stack: Stack) -> None:
    """A request may arrive in any number of packets."""
    data, _ = build_request("h")
    async with await RawSocket.connect(stack.port) as ws:
        for byte in data:
            await ws.write(bytes([byte]))

        assert (await ws.read_response()).status == 101


async def test_frames_in_the_packet_of_the_handshake_are_accepted(stack: Stack) -> None:
    """A client may send frames before it has the response."""
    request, _ = build_request("h")
    token = stack.token("early")
    hello = f'{{"type":"hello","v":1,"device":"d","token":"{token}"}}'.encode()
    async with await RawSocket.connect(stack.port) as ws:
        await ws.write(request + build_frame(TEXT, hello))

        assert (await ws.read_response()).status == 101
        assert (await ws.recv_json())["type"] == "welcome"


# ── refused ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("offer", [(), ("other",), ("chat.v2", "chat.v1.msgpack2"), ("CHAT.V1",)])
async def test_handshake_without_chat_v1_is_closed_as_bad_protocol(
    stack: Stack, offer: tuple[str, ...]
) -> None:
    """The response has no subprotocol, and the connection is closed with 3501."""
    async with await RawSocket.open(stack.port, subprotocols=offer) as ws:
        assert ws.response is not None
        assert "sec-websocket-protocol" not in ws.response.headers

        await ws.expect_close(NOT_CHAT)


FOREIGN_ORIGINS = (
    "https://evil.example",
    "null",
    "",
    f"{ORIGIN}.evil.example",
    f"{ORIGIN}:8443",
    f"{ORIGIN}/",
    "http://chat.example",
    "https://evil.example/https://chat.example",
    f"{ORIGIN} https://evil.example",
)
BAD_KEYS = (None, "", "short", "not base64 at all !!!!!!", "AAAA" * 5 + "A===", "AAAA" * 16)
BAD_VERSIONS = (None, "", "8", "12", "14", "13, 8", "x")
TWO_ORIGINS = [("Origin", ORIGIN), ("Origin", "https://evil.example")]


@pytest.mark.parametrize(
    ("request_", "statuses"),
    [
        # A page of another site cannot connect with a visitor's browser.
        *(({"change": {"Origin": origin}}, {403}) for origin in FOREIGN_ORIGINS),
        ({"more": TWO_ORIGINS}, {403}),
        *(({"change": {"Sec-WebSocket-Key": key}}, {400}) for key in BAD_KEYS),
        ({"more": [("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")]}, {400}),
        *(({"change": {"Sec-WebSocket-Version": value}}, {400, 426}) for value in BAD_VERSIONS),
    ],
    ids=str,
)
async def test_handshake_with_a_bad_header_is_refused(
    stack: Stack, request_: dict[str, Any], statuses: set[int]
) -> None:
    """There is one origin, which is allowed, one key of 16 bytes in base64, and version 13."""
    assert (await get_refusal(stack, **request_)).status in statuses


async def test_refused_origin_is_logged_with_the_setting_and_not_each_time(stack: Stack) -> None:
    """The operator sees which setting to correct; a browser that retries does not fill the log."""
    gateway = stack.start_gateway()
    for _ in range(5):
        with pytest.raises(Refused):
            await RawSocket.open(gateway.port, change={"Origin": "https://new.example"})

    lines = [line for line in gateway.tail(100).splitlines() if "origin_refused" in line]

    assert 1 <= len(lines) <= 2  # a second one if the refusals took ten seconds
    assert "https://new.example" in lines[0] and "CHAT_GATEWAY_ORIGINS" in lines[0]


@pytest.mark.parametrize(
    "change",
    [
        {"Upgrade": None, "Connection": None},
        {"Upgrade": None},
        {"Connection": None},
        {"Upgrade": "h2c"},
        {"Connection": "keep-alive"},
    ],
    ids=str,
)
async def test_plain_http_request_gets_426(stack: Stack, change: dict[str, str | None]) -> None:
    """The response names the protocol in Upgrade."""
    response = await get_refusal(stack, change=change)

    assert response.status == 426
    assert response.headers["upgrade"].lower() == "websocket"


@pytest.mark.parametrize(
    "request_line",
    [
        b"POST / HTTP/1.1",
        b"HEAD / HTTP/1.1",
        b"GET / HTTP/1.0",
        b"GET / HTTP/2.0",
        b"GET /",
        b"GET  / HTTP/1.1",
        b"get / HTTP/1.1",
    ],
)
async def test_other_request_line_is_refused(stack: Stack, request_line: bytes) -> None:
    """Only GET over HTTP/1.1 opens a WebSocket."""
    data, _ = build_request("h")

    response = await get_response(stack, request_line + data[data.index(b"\r\n") :])

    assert response is None or 400 <= response.status <= 505


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\r\n\r\n",
        b"\0" * 200 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon here\r\n\r\n",
        b"GET / HTTP/1.1\r\nName : value\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: a\r\n folded\r\n\r\n",
    ],
)
async def test_invalid_http_is_refused(stack: Stack, data: bytes) -> None:
    """Other protocols and malformed headers get an error, or the connection is closed."""
    response = await get_response(stack, data)

    assert response is None or 400 <= response.status < 500


@pytest.mark.parametrize(
    "more",
    [
        [(f"X-{index}", "x") for index in range(200)],
        [("X", "x" * 20_000)],
        [(f"X-{index}", "x" * 4000) for index in range(100)],
    ],
    ids=["many", "long", "many long"],
)
async def test_header_flood_is_refused(stack: Stack, more: list[tuple[str, str]]) -> None:
    """The number and the length of headers are limited."""
    data, _ = build_request("h", more=more)

    response = await get_response(stack, data)

    assert response is None or response.status in (400, 431)


async def test_endless_header_line_is_refused(stack: Stack) -> None:
    """The connection is closed before such a line fills memory."""
    async with await RawSocket.connect(stack.port) as ws:
        with pytest.raises(Ended):
            await ws.write(b"GET / HTTP/1.1\r\nX: ")
            for _ in range(100):
                await ws.write(b"x" * 65_536)
            await ws.read_response()
            await ws.read_response()


async def test_refused_connection_is_closed(stack: Stack) -> None:
    """After a refusal the server closes the connection."""
    data, _ = build_request("h", change={"Upgrade": None})
    async with await RawSocket.connect(stack.port) as ws:
        await ws.write(data)
        assert (await ws.read_response()).status == 426

        await ws.expect_end()


# ── deadlines ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("data", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: h\r\n"])
async def test_handshake_that_is_not_completed_is_closed(
    stack: Stack, short_handshake_gateway: Server, data: bytes
) -> None:
    """A socket without a complete request is closed at the handshake deadline."""
    async with await RawSocket.connect(short_handshake_gateway.port) as ws:
        await ws.write(data)

        with pytest.raises(Ended):
            await ws.read_response(deadline_s=20)


async def test_handshake_that_arrives_slowly_is_closed(
    stack: Stack, short_handshake_gateway: Server
) -> None:
    """The deadline applies to the whole handshake, even if bytes keep arriving."""
    data, _ = build_request("h", more=[("X-Padding", "x" * 400)])
    written = 0
    async with await RawSocket.connect(short_handshake_gateway.port) as ws:
        with pytest.raises(Ended):
            for byte in data:
                await ws.write(bytes([byte]))
                written += 1
                await asyncio.sleep(0.02)  # simulates a slow peer
            await ws.read_response()

    assert written < len(data)


async def test_connection_without_hello_is_closed(
    stack: Stack, short_hello_gateway: Server
) -> None:
    """A connection without `hello` within the deadline is closed with 3500."""
    async with await RawSocket.open(short_hello_gateway.port) as ws:
        bye = await ws.recv_json()

        assert (bye["type"], bye["code"]) == ("bye", NO_HELLO)
        await ws.expect_close(NO_HELLO)


async def test_pings_do_not_extend_the_hello_deadline(
    stack: Stack, short_hello_gateway: Server
) -> None:
    """A peer that only pings is not authenticated."""
    async with await RawSocket.open(short_hello_gateway.port) as ws:

        async def keep_pinging() -> None:
            while True:
                await ws.send(PING, b"x")
                await ws.send(PONG)  # to the pings of the server
                # Often enough for a busy peer, and below the limit of pings even if some are sent
                # late.
                await asyncio.sleep(0.25)

        pings = asyncio.create_task(keep_pinging())
        try:
            _, frame = await ws.drain_to_close(deadline_s=20)
        finally:
            pings.cancel()

        assert frame.close_code == NO_HELLO


# ── health ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_health_paths_are_answered_on_the_same_port(stack: Stack, path: str) -> None:
    """Health checks of a load balancer are plain HTTP."""
    response = await get_response(stack, f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())

    assert response is not None
    assert response.status == 200
    assert response.body


@pytest.mark.parametrize("path", ["/metrics", "/healthz/..", "/admin", "//healthz"])
async def test_other_paths_of_the_public_port_get_426(stack: Stack, path: str) -> None:
    """Metrics and unknown paths are not served."""
    response = await get_response(stack, f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())

    assert response is not None
    assert response.status == 426
