"""Malformed HTTP requests: rows 9, 15, 18, 25, 33, 34 and the parsers of section 3, over TCP.

Requests are written as bytes, because a client library would correct most of them.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from chatserver.dev.servers import Server
from tests.security.support.users import PASSWORD, bearer
from tests.support.stack import Stack

DEADLINE_S = 20
DOCUMENT = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text("utf-8"))


class Received(NamedTuple):
    """Everything received until the server closed the connection."""

    raw: bytes

    @property
    def statuses(self) -> list[int]:
        """The statuses of the responses, in order."""
        lines = [line for line in self.raw.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
        return [int(line.split()[1]) for line in lines]

    @property
    def head(self) -> bytes:
        """The head of the first response, in lower case."""
        return self.raw.partition(b"\r\n\r\n")[0].lower()


async def exchange(server: Server, data: bytes) -> Received:
    """Send bytes and read until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.launch.port)
    try:
        writer.write(data)
        async with asyncio.timeout(DEADLINE_S):
            return Received(await reader.read())
    except ConnectionError:
        return Received(b"")
    finally:
        writer.close()


def post(path: str, body: bytes, *headers: bytes) -> bytes:
    """Return a request with a JSON body that closes the connection."""
    lines = [
        b"POST " + path.encode() + b" HTTP/1.1",
        b"Host: chat.example",
        b"Connection: close",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


SMUGGLED = b"GET /v1/me HTTP/1.1\r\nHost: chat.example\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        [b"Content-Length: 4", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked", b"Content-Length: 4"],
        [b"Content-Length: 4", b"Content-Length: 40"],
        [b"Content-Length: 4, 40"],
        [b"Content-Length: +4"],
        [b"Content-Length: -4"],
        [b"Content-Length: 0x4"],
        [b"Content-Length : 4"],
        [b"Transfer-Encoding: chunked, identity"],
        [b"Transfer-Encoding: xchunked"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"],
        [b"Transfer-Encoding:\x0bchunked"],
        [b"X: a\r\n b: folded", b"Content-Length: 4, 4, 5"],
    ],
    ids=str,
)
async def test_row_34_request_with_ambiguous_length_is_refused(
    accounts_api: Server, lines: list[bytes]
) -> None:
    """The request is refused and the connection closed. The smuggled request gets no response."""
    head = b"\r\n".join([b"POST /v1/auth/login HTTP/1.1", b"Host: chat.example", *lines])

    answer = await exchange(accounts_api, head + b"\r\n\r\n0\r\n\r\n" + SMUGGLED)

    assert answer.statuses in ([400], [501]), answer.raw
    assert b"connection: close" in answer.head


@pytest.mark.parametrize(
    "line",
    [
        b"X-Bad: a\rSet-Cookie: x=1",
        b"X-Bad: a\x00b",
        b"X Bad: a",
        b"Host: second.example",
        b": nameless",
        b"no colon",
    ],
    ids=str,
)
async def test_row_33_malformed_header_line_is_refused(accounts_api: Server, line: bytes) -> None:
    """Bare CR, NUL and a second Host are refused. (A bare LF ends a line:

    RFC 9112, section 2.2.)
    """
    answer = await exchange(accounts_api, b"GET / HTTP/1.1\r\nHost: a\r\n" + line + b"\r\n\r\n")

    assert answer.statuses == [400], answer.raw
    assert b"x=1" not in answer.head


BREAK = "%0d%0aSet-Cookie:%20x=1%0d%0a%0d%0a"


@pytest.mark.parametrize(
    "path",
    [
        f"/{BREAK}",
        f"/v1/chats/{BREAK}",
        f"/v1/me?x={BREAK}",
        f"/v1/attachments/{BREAK}?seq=1",
        f"/v1/direct-chats/{BREAK}",
        f"/v1/chats?cursor={BREAK}",
    ],
)
async def test_row_33_line_break_in_a_path_is_not_in_response_headers(
    stack: Stack, accounts_api: Server, path: str
) -> None:
    """User input is returned only in JSON bodies, where it is escaped."""
    token = stack.token("zoe-of-breaks").encode()
    request = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n".encode()

    answer = await exchange(accounts_api, request + b"Authorization: Bearer " + token + b"\r\n\r\n")

    assert len(answer.statuses) == 1 and answer.statuses[0] < 500, answer.raw
    assert b"x=1" not in answer.head


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..\\..\\etc\\passwd",
        "/....//....//etc/passwd",
        "//etc/passwd",
        "/%00/etc/passwd",
        "/index.html%00.js",
        "/state/../../config.py",
        "/%c0%ae%c0%ae/etc/passwd",
        "http://evil.example/etc/passwd",
        "/package.json",
        "/.git/config",
    ],
)
async def test_row_25_path_traversal_serves_no_file(accounts_api: Server, path: str) -> None:
    """Static files are listed at startup; a path never refers to the file system."""
    request = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()

    answer = await exchange(accounts_api, request)

    assert answer.statuses in ([404], [400]), answer.raw
    assert b"root:" not in answer.raw


DEEP = 30_000  # nearly the maximum depth in a body of 64 KB
BODIES = {
    "NaN": b'{"user":NaN,"password":"x"}',
    "Infinity": b'{"user":"a","password":-Infinity}',
    "1e999": b'{"user":1e999,"password":"x"}',
    "2^70": b'{"user":1180591620717411303424,"password":"x"}',
    "lone surrogate": rb'{"user":"\ud800","password":"x"}',
    "surrogates in the wrong order": rb'{"user":"\udc00\ud800","password":"x"}',
    "nested arrays": b'{"user":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "unclosed nested arrays": b"[" * (2 * DEEP),
    "nested objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "NUL in a name": rb'{"user":"a\u0000b","password":"correct horse"}',
    "raw NUL": b'{"user":"a\x00b","password":"x"}',
    "byte order mark": b'\xef\xbb\xbf{"user":"a","password":"x"}',
    "overlong": b'{"user":"\xc0\xaf","password":"x"}',
    "surrogate in UTF-8": b'{"user":"\xed\xa0\x80","password":"x"}',
    "beyond Unicode": b'{"user":"\xf4\x90\x80\x80","password":"x"}',
    "UTF-16": '{"user":"a"}'.encode("utf-16"),
    "object instead of string": b'{"user":{"$gt":""},"password":{"$ne":""}}',
    "array instead of string": b'{"user":["a"],"password":["x"]}',
    "unknown field": b'{"user":"a","password":"x","role":"admin"}',
    "empty": b"",
    "two documents": b'{"user":"a","password":"x"}{"user":"b","password":"x"}',
    "comment": b'{"user":"a"/**/,"password":"x"}',
}


@pytest.mark.parametrize("name", BODIES)
async def test_section_3_body_with_invalid_json_is_refused(accounts_api: Server, name: str) -> None:
    """Every invalid body gets a problem document with status 400."""
    answer = await exchange(accounts_api, post("/v1/auth/register", BODIES[name]))

    assert answer.statuses == [400], answer.raw
    assert b"application/problem+json" in answer.head
    assert b"Traceback" not in answer.raw and b"litestar" not in answer.raw.lower()


async def test_section_3_duplicate_json_name_has_its_last_value(
    client: httpx.AsyncClient, accounts_api: Server
) -> None:
    """Validation and storage use the same value: the last one."""
    body = b'{"user":"Bad User!","user":"twice-named","password":"%s"}' % PASSWORD.encode()

    answer = await exchange(accounts_api, post("/v1/auth/register", body))

    assert answer.statuses == [201], answer.raw
    granted = json.loads(answer.raw.partition(b"\r\n\r\n")[2])
    me = await client.get("/v1/me", headers=bearer(granted["token"]))
    assert (granted["user"], me.json()["user"]) == ("twice-named", "twice-named")


@pytest.mark.parametrize(
    ("type_", "status"),
    [
        ("application/x-www-form-urlencoded", 400),
        ("multipart/form-data; boundary=x", 400),
        ("text/plain", 400),
        ("application/x-msgpack", 400),
    ],
)
async def test_api6_form_submission_from_another_site_is_refused(
    client: httpx.AsyncClient, type_: str, status: int
) -> None:
    """Content types that a browser sends without a preflight are refused."""
    body = b"user=zoe&password=correct+horse+battery"

    answer = await client.post("/v1/auth/register", content=body, headers={"Content-Type": type_})

    assert answer.status_code == status, answer.text


async def test_section_6_body_beyond_64_kb_is_refused(
    client: httpx.AsyncClient,
) -> None:
    """The limit applies to the bytes read, also without a Content-Length header."""

    async def chunks(size: int) -> object:
        yield b'{"user":"'
        for _ in range(size // 4096):
            yield b"x" * 4096

    at_limit = b'{"user":"' + b"x" * (65_536 - 11) + b'"}'
    assert len(at_limit) == 65_536

    accepted = await client.post("/v1/auth/register", content=at_limit)
    beyond = await client.post("/v1/auth/register", content=at_limit + b" ")
    streamed = await client.post("/v1/auth/register", content=chunks(131_072))  # type: ignore[arg-type]

    assert [each.status_code for each in (accepted, beyond, streamed)] == [400, 413, 413]


def header_lines(number: int, size: int) -> bytes:
    return b"".join(b"X-%d: %b\r\n" % (each, b"a" * size) for each in range(number))


async def test_section_6_head_beyond_16_kb_is_refused(accounts_api: Server) -> None:
    """The limit applies to the length and to the number of headers."""
    small = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"

    good = await exchange(accounts_api, small + header_lines(10, 1000) + b"\r\n")
    long = await exchange(accounts_api, small + header_lines(1, 200_000) + b"\r\n")
    many = await exchange(accounts_api, small + header_lines(20_000, 10) + b"\r\n")

    assert good.statuses == [200]
    assert all(each.statuses in ([], [400], [431]) for each in (long, many))
    assert (await exchange(accounts_api, small + b"\r\n")).statuses == [200]


PATHS = [
    *DOCUMENT["paths"],
    "/",
    "/index.html",
    "/docs",
    "/docs/reference.js",
    "/chats/nosuch",
    "/assets/none.js",
    "/v1/openapi.json",
    "/nosuch",
    "/v1/nosuch",
]


async def test_section_5_every_response_has_the_browser_security_headers(
    client: httpx.AsyncClient,
) -> None:
    """Every path and method has CSP, nosniff, no referrer, and no access from other origins."""
    for path in PATHS:
        for method in ("GET", "POST", "OPTIONS", "TRACE", "HEAD", "NOSUCH"):
            answer = await client.request(
                method,
                path.replace("{", "").replace("}", ""),
                headers={
                    "Origin": "https://evil.example",
                    "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": "authorization,x-chat-client",
                },
            )
            head, where = answer.headers, f"{method} {path}"
            assert answer.status_code < 500, where
            rules = head["content-security-policy"].split("; ")
            assert {"default-src 'self'", "script-src 'self'", "object-src 'none'"} <= set(rules)
            assert {"frame-ancestors 'none'", "base-uri 'none'"} <= set(rules), where
            assert "unsafe" not in head["content-security-policy"], where
            assert head["x-content-type-options"] == "nosniff", where
            assert head["referrer-policy"] == "no-referrer", where
            assert head["cross-origin-resource-policy"] == "same-origin", where
            assert not [name for name in head if name.startswith("access-control-")], where
            assert "server" not in head and "x-powered-by" not in head, where


@pytest.mark.parametrize(
    "origin",
    ["null", "https://evil.example", "{here}.evil.example", "{here}:1", "http://u@{host}", "{up}"],
)
async def test_row_09_refresh_cookie_with_a_foreign_origin_is_refused(
    client: httpx.AsyncClient, accounts_api: Server, origin: str
) -> None:
    """The complete origin is compared: no suffix, other port or user information is accepted."""
    here = accounts_api.endpoint
    given = origin.format(here=here, host=here.removeprefix("http://"), up=here.upper() + "0")
    headers = {"X-Chat-Client": "web", "Origin": given, "Cookie": "chat_refresh=anything"}

    answer = await client.post("/v1/auth/refresh", json={}, headers=headers)

    assert answer.status_code == 403, answer.text
