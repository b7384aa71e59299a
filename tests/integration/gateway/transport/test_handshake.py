"""The opening handshake (RFC 6455 section 4): who is let in, who is not, and in what time."""

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

pytest_plugins = ["tests.support.stack_fixtures"]

NO_HELLO, NOT_CHAT = 3500, 3501


async def refusal(stack: Stack, **request: Any) -> Response:
    """Return the answer to a handshake that is refused."""
    with pytest.raises(Refused) as caught:
        await RawSocket.open(stack.port, **request)
    return caught.value.response


async def answer_to(stack: Stack, data: bytes) -> Response | None:
    """Return the HTTP answer to raw bytes, None if the connection is just closed."""
    async with await RawSocket.connect(stack.port) as ws:
        try:
            await ws.write(data)
            return await ws.read_response()
        except Ended:
            return None


# ── Host (RFC 9112 section 3.2) ─────────────────────────────────────────────────────────────────


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
async def test_request_without_exactly_one_valid_host_is_a_bad_request(
    stack: Stack, request_: dict[str, Any]
) -> None:
    """A proxy and the gateway never take a request for different hosts."""
    response = await refusal(stack, **request_)

    assert response.status == 400
    assert b"Host" in response.body


@pytest.mark.parametrize("host", ["example.com", "example.com:443", "[::1]:9000", "192.0.2.1", ""])
async def test_request_with_one_host_is_let_in(stack: Stack, host: str) -> None:
    """Every form of the field that RFC 9110 section 7.2 has."""
    async with await RawSocket.open(stack.port, change={"Host": host}) as ws:
        assert ws.response is not None
        assert ws.response.status == 101


# ── let in ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("offer", [("chat.v1",), ("other", "chat.v1"), ("chat.v1", "chat.v9")])
async def test_handshake_that_offers_chat_v1_gets_it(stack: Stack, offer: tuple[str, ...]) -> None:
    """The server chooses chat.v1, wherever it stands in the offer."""
    async with await RawSocket.open(stack.port, subprotocols=offer) as ws:
        assert ws.response is not None
        assert ws.response.headers["sec-websocket-protocol"] == "chat.v1"


async def test_handshake_that_offers_compression_gets_none(stack: Stack) -> None:
    """No extension is agreed on."""
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
async def test_handshake_in_other_lawful_words_is_let_in(
    stack: Stack, change: dict[str, str]
) -> None:
    """Tokens are compared without case; Connection may list more."""
    async with await RawSocket.open(stack.port, change=change) as ws:
        assert ws.response is not None


async def test_handshake_byte_by_byte_is_let_in(stack: Stack) -> None:
    """A request may come in any number of packets."""
    data, _ = build_request("h")
    async with await RawSocket.connect(stack.port) as ws:
        for byte in data:
            await ws.write(bytes([byte]))

        assert (await ws.read_response()).status == 101


async def test_frames_behind_the_handshake_in_one_packet_are_taken(stack: Stack) -> None:
    """A client that does not wait for the answer loses nothing."""
    request, _ = build_request("h")
    token = stack.token("early")
    hello = f'{{"type":"hello","v":1,"device":"d","token":"{token}"}}'.encode()
    async with await RawSocket.connect(stack.port) as ws:
        await ws.write(request + build_frame(TEXT, hello))

        assert (await ws.read_response()).status == 101
        assert (await ws.recv_json())["type"] == "welcome"


# ── not let in ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("offer", [(), ("other",), ("chat.v2", "chat.v1.msgpack2"), ("CHAT.V1",)])
async def test_handshake_without_chat_v1_is_closed_as_bad_protocol(
    stack: Stack, offer: tuple[str, ...]
) -> None:
    """A client without chat.v1 is closed and gets no subprotocol."""
    async with await RawSocket.open(stack.port, subprotocols=offer) as ws:
        assert ws.response is not None
        assert "sec-websocket-protocol" not in ws.response.headers

        await ws.expect_close(NOT_CHAT)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        f"{ORIGIN}.evil.example",
        f"{ORIGIN}:8443",
        f"{ORIGIN}/",
        "http://chat.example",
        "https://evil.example/https://chat.example",
        f"{ORIGIN} https://evil.example",
    ],
)
async def test_foreign_origin_is_refused(stack: Stack, origin: str) -> None:
    """A page of another site cannot use a visitor's browser to connect."""
    assert (await refusal(stack, change={"Origin": origin})).status == 403


async def test_two_origins_are_refused(stack: Stack) -> None:
    """A good origin does not vouch for a second one."""
    more = [("Origin", ORIGIN), ("Origin", "https://evil.example")]

    assert (await refusal(stack, more=more)).status == 403


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
async def test_plain_http_request_is_told_to_upgrade(
    stack: Stack, change: dict[str, str | None]
) -> None:
    """A plain HTTP request gets 426 with the protocol."""
    response = await refusal(stack, change=change)

    assert response.status == 426
    assert response.headers["upgrade"].lower() == "websocket"


@pytest.mark.parametrize("version", [None, "", "8", "12", "14", "13, 8", "x"])
async def test_other_websocket_version_is_refused(stack: Stack, version: str | None) -> None:
    """Version 13 is the only one."""
    response = await refusal(stack, change={"Sec-WebSocket-Version": version})

    assert response.status in (400, 426)


@pytest.mark.parametrize(
    "key", [None, "", "short", "not base64 at all !!!!!!", "AAAA" * 5 + "A===", "AAAA" * 16]
)
async def test_bad_key_is_refused(stack: Stack, key: str | None) -> None:
    """A key is 16 bytes in base64."""
    assert (await refusal(stack, change={"Sec-WebSocket-Key": key})).status == 400


async def test_two_keys_are_refused(stack: Stack) -> None:
    """One key, not two."""
    more = [("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")]

    assert (await refusal(stack, more=more)).status == 400


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

    response = await answer_to(stack, request_line + data[data.index(b"\r\n") :])

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
async def test_what_is_not_http_is_refused(stack: Stack, data: bytes) -> None:
    """Rubbish gets an error or a closed door."""
    response = await answer_to(stack, data)

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
    """Headers have bounds in number and length."""
    data, _ = build_request("h", more=more)

    response = await answer_to(stack, data)

    assert response is None or response.status in (400, 431)


async def test_endless_header_line_is_refused(stack: Stack) -> None:
    """A line that never ends is cut off long before memory is."""
    async with await RawSocket.connect(stack.port) as ws:
        with pytest.raises(Ended):
            await ws.write(b"GET / HTTP/1.1\r\nX: ")
            for _ in range(100):
                await ws.write(b"x" * 65_536)
            await ws.read_response()
            await ws.read_response()


async def test_refused_connection_is_closed(stack: Stack) -> None:
    """After a refusal nothing more is served on the connection."""
    data, _ = build_request("h", change={"Upgrade": None})
    async with await RawSocket.connect(stack.port) as ws:
        await ws.write(data)
        assert (await ws.read_response()).status == 426

        await ws.expect_end()


# ── deadlines ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("data", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: h\r\n"])
async def test_handshake_that_does_not_come_is_cut_off(
    stack: Stack, hasty: Server, data: bytes
) -> None:
    """A silent socket, or one with half a request, is closed."""
    async with await RawSocket.connect(hasty.port) as ws:
        await ws.write(data)

        with pytest.raises(Ended):
            await ws.read_response(deadline_s=20)


async def test_handshake_that_dribbles_is_cut_off(stack: Stack, hasty: Server) -> None:
    """The deadline is for the whole handshake, however busy the peer looks."""
    data, _ = build_request("h", more=[("X-Padding", "x" * 400)])
    written = 0
    async with await RawSocket.connect(hasty.port) as ws:
        with pytest.raises(Ended):
            for byte in data:
                await ws.write(bytes([byte]))
                written += 1
                await asyncio.sleep(0.02)  # what is tested is a slow peer
            await ws.read_response()

    assert written < len(data)


async def test_hello_that_does_not_come_is_closed(stack: Stack, curt: Server) -> None:
    """A socket without a `hello` is closed with an error."""
    async with await RawSocket.open(curt.port) as ws:
        bye = await ws.recv_json()

        assert (bye["type"], bye["code"]) == ("bye", NO_HELLO)
        await ws.expect_close(NO_HELLO)


async def test_pings_do_not_put_off_the_hello_deadline(stack: Stack, curt: Server) -> None:
    """Pings are no authentication."""
    async with await RawSocket.open(curt.port) as ws:

        async def keep_pinging() -> None:
            while True:
                await ws.send(PING, b"x")
                await ws.send(PONG)  # to the server's own pings
                # What is tested is a busy peer, but no flood, even if all comes at once and late.
                await asyncio.sleep(0.25)

        pings = asyncio.create_task(keep_pinging())
        try:
            _, frame = await ws.drain_to_close(deadline_s=20)
        finally:
            pings.cancel()

        assert frame.close_code == NO_HELLO


# ── health ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_health_paths_are_answered_on_the_same_port(stack: Stack, path: str) -> None:
    """A load balancer's checks need no WebSocket."""
    response = await answer_to(stack, f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())

    assert response is not None
    assert response.status == 200
    assert response.body


@pytest.mark.parametrize("path", ["/metrics", "/healthz/..", "/admin", "//healthz"])
async def test_other_paths_show_nothing_on_the_public_port(stack: Stack, path: str) -> None:
    """Metrics are not public; unknown paths get 426."""
    response = await answer_to(stack, f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())

    assert response is not None
    assert response.status == 426
