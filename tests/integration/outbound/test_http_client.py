"""Outbound HTTP calls against local servers: allowed addresses, refused addresses and limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from chatserver.config import Outbound as OutboundSettings
from chatserver.errors import BadRequest, Unavailable
from chatserver.outbound.http_client import Answer, HttpClient, Lookup, open_outbound
from tests.support.servers.processes import free_port

TIMEOUT_S = 30.0


class World:
    """Servers on 127.0.0.1 and 127.0.0.2 with the same port, and the requests they received."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[str] = []

    def url(self, path: str = "/echo", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    """Run the two servers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        local = request.get_extra_info("sockname")[0]
        world.requests.append(f"{local} {request.method} {request.path} {request.host}")
        match request.path:
            case "/redirect":
                raise web.HTTPFound(world.url("/secret"))
            case "/cookie":
                return web.Response(headers={"Set-Cookie": "a=b; Path=/"})
            case "/packed":
                return web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
            case "/silent":
                await asyncio.sleep(60)
            case "/dribble" | "/endless":
                stream = web.StreamResponse()
                await stream.prepare(request)
                size, pause_s = (1, 0.05) if request.path == "/dribble" else (65_536, 0)
                for _ in range(2000):
                    await stream.write(b"x" * size)
                    await asyncio.sleep(pause_s)
                return stream
        headers = {"Got-Cookie": request.headers.get("Cookie", "none")}
        return web.Response(body=await request.read(), status=200, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    first = web.TCPSite(runner, "127.0.0.1", 0)
    await first.start()
    port = int(runner.addresses[0][1])
    await web.TCPSite(runner, "127.0.0.2", port).start()
    world = World(port)
    try:
        yield world
    finally:
        await runner.cleanup()


def names(**addresses: Sequence[str]) -> Lookup:
    """Return a DNS lookup of these names."""

    async def lookup(host: str, port: int) -> Sequence[str]:
        return addresses[host.replace(".", "_")]

    return lookup


@asynccontextmanager
async def opened(*allowed: str, lookup: Lookup | None = None) -> AsyncIterator[HttpClient]:
    """Open the client with these private networks allowed."""
    settings = OutboundSettings(allow_private=list(allowed))
    if lookup is None:
        async with open_outbound(settings) as outbound:
            yield outbound
    else:
        async with open_outbound(settings, lookup) as outbound:
            yield outbound


async def fetch(outbound: HttpClient, url: str) -> Answer:
    return await outbound.get(url, timeout_s=TIMEOUT_S, response_bytes_max=1000)


# allowed calls


async def test_outbound_post_to_allowed_address_returns_the_response() -> None:
    """The response has its body, status and headers."""
    async with running() as world, opened("127.0.0.0/8") as outbound:
        answer = await outbound.post(
            world.url(), body=b"hello", timeout_s=TIMEOUT_S, response_bytes_max=1000
        )

    assert answer.is_ok
    assert answer.body == b"hello"
    assert answer.headers["content-length"] == "5"


async def test_outbound_redirect_is_not_followed() -> None:
    """A public server cannot redirect a call to a private one."""
    async with running() as world, opened("127.0.0.0/8") as outbound:
        answer = await fetch(outbound, world.url("/redirect"))

    assert answer.status == 302
    assert not answer.is_ok
    assert len(world.requests) == 1


async def test_outbound_cookie_is_not_kept() -> None:
    """A cookie of one response is not sent with the next call."""
    async with running() as world, opened("127.0.0.0/8") as outbound:
        await fetch(outbound, world.url("/cookie"))
        answer = await fetch(outbound, world.url())

    assert answer.headers["got-cookie"] == "none"


async def test_outbound_proxy_of_the_environment_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy would resolve names without the address check."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with running() as world, opened("127.0.0.0/8") as outbound:
        assert (await fetch(outbound, world.url())).is_ok


# refused calls


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "0.0.0.0",
        "0",
        "localhost",
        "LOCALHOST.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::127.0.0.1]",
        "[::127.0.0.1]",
        "169.254.169.254",
        "[fe80::1]",
        "\N{FULLWIDTH DIGIT ONE}27.0.0.1",
    ],
)
async def test_outbound_private_address_in_any_spelling_is_refused(host: str) -> None:
    """No spelling of an address of this machine or of the cloud is called."""
    async with running() as world, opened() as outbound:
        with pytest.raises((BadRequest, Unavailable)):
            await fetch(outbound, world.url(host=host))

    assert world.requests == []


@pytest.mark.parametrize("answers", [["127.0.0.1"], ["127.0.0.2", "127.0.0.1"], ["::1"]])
async def test_outbound_name_with_a_private_address_is_refused(answers: list[str]) -> None:
    """A name is refused if one of its addresses is private."""
    lookup = names(evil_example=answers)
    async with running() as world, opened("127.0.0.2", lookup=lookup) as outbound:
        with pytest.raises(BadRequest, match="is not allowed"):
            await fetch(outbound, world.url(host="evil.example"))

    assert world.requests == []


async def test_outbound_name_that_changes_its_address_uses_the_checked_address() -> None:
    """DNS rebinding: there is no second lookup between the check and the connection."""
    answers = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1"]])

    async def lookup(host: str, port: int) -> Sequence[str]:
        return next(answers)

    async with running() as world:
        async with opened("127.0.0.2", lookup=lookup) as outbound:
            assert (await fetch(outbound, world.url(host="evil.example"))).is_ok
        async with opened("127.0.0.2", lookup=lookup) as outbound:
            with pytest.raises(BadRequest):
                await fetch(outbound, world.url(host="evil.example"))

    assert world.requests == [f"127.0.0.2 GET /echo evil.example:{world.port}"]


async def test_outbound_header_with_a_line_break_is_refused() -> None:
    """A value cannot add headers or a second request."""
    async with running() as world, opened("127.0.0.0/8") as outbound:
        with pytest.raises(BadRequest):
            await outbound.post(
                world.url(),
                body=b"",
                headers={"X-A": "b\r\nX-C: d"},
                timeout_s=TIMEOUT_S,
                response_bytes_max=10,
            )

    assert world.requests == []


# limits


@pytest.mark.parametrize("path", ["/silent", "/dribble"])
async def test_outbound_slow_response_ends_at_the_deadline(path: str) -> None:
    """The deadline limits the whole call, even while bytes keep arriving."""
    async with running() as world, opened("127.0.0.0/8") as outbound:
        started = time.monotonic()
        with pytest.raises(Unavailable, match="did not respond"):
            await outbound.get(world.url(path), timeout_s=0.3, response_bytes_max=10**6)

    assert time.monotonic() - started < 15


async def test_outbound_response_at_the_limit_is_accepted_and_over_it_refused() -> None:
    """A response uses no more memory than the caller allows."""
    async with running() as world, opened("127.0.0.0/8") as outbound:

        async def echo(size: int) -> Answer:
            return await outbound.post(
                world.url(), body=b"x" * size, timeout_s=TIMEOUT_S, response_bytes_max=1000
            )

        assert len((await echo(1000)).body) == 1000
        with pytest.raises(Unavailable, match="longer than 1000"):
            await echo(1001)
        with pytest.raises(Unavailable, match="longer than"):
            await fetch(outbound, world.url("/endless"))


async def test_outbound_compressed_response_is_refused() -> None:
    """A small response cannot become a large one."""
    async with running() as world, opened("127.0.0.0/8") as outbound:
        with pytest.raises(Unavailable, match="compressed"):
            await fetch(outbound, world.url("/packed"))


async def test_outbound_server_that_is_down_is_unavailable() -> None:
    """The error is `Unavailable`, not an exception of the HTTP library."""
    url = f"http://127.0.0.1:{free_port()}/echo"
    async with opened("127.0.0.0/8") as outbound:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1 could not be reached"):
            await fetch(outbound, url)
