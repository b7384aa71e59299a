"""A web site with many kinds of pages on the loopback interface, and fetchers for it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Sequence

from aiohttp import web

from chatserver import config
from chatserver.features.link_previews.service import PageFetcher
from chatserver.outbound.http_client import Lookup

LOOPBACK = "127.0.0.0/8"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 64
PAGE = (
    '<!doctype html><head><title>Plain</title><meta property="og:title" content="Tea &amp; cake">'
    '<meta property="og:description" content="How to">'
    '<meta property="og:site_name" content="Kitchen">'
    '<meta property="og:image" content="/picture"></head><body>'
)


class Site:
    """The web site; `paths` has the paths of the requests in order."""

    def __init__(self) -> None:
        self.url = ""
        self.paths: list[str] = []
        self.release_held = asyncio.Event()  # responses of "/held" wait for this event
        self.headers: list[dict[str, str]] = []

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        self.headers.append(dict(request.headers))
        kind, _, rest = request.path.removeprefix("/").partition("/")
        match kind:
            case "page":
                return web.Response(text=PAGE, content_type="text/html")
            case "picture":
                return web.Response(body=PNG, content_type="text/html")
            case "svg":
                body = f'<meta property="og:image" content="{self.url}/script.svg"><title>S</title>'
                return web.Response(text=body, content_type="text/html")
            case "script.svg":
                return web.Response(text="<svg onload='alert(1)'/>", content_type="image/svg+xml")
            case "json":
                return web.Response(text=PAGE, content_type="application/json")
            case "to":  # /to/<path> redirects to a path; /to/http:/host redirects to another host
                target = rest.replace(":/", "://", 1) if ":/" in rest else f"/{rest}"
                return web.Response(status=302, headers={"Location": target})
            case "loop":
                return web.Response(status=302, headers={"Location": "/loop"})
            case "error":
                return web.Response(status=500, text=PAGE, content_type="text/html")
            case "gzip":
                bomb = gzip.compress(b"\0" * 10_000_000)
                headers = {"Content-Encoding": "gzip", "Content-Type": "text/html"}
                return web.Response(body=bomb, headers=headers)
            case "held":
                await self.release_held.wait()
                return web.Response(text=PAGE, content_type="text/html")
            case "silent":
                await asyncio.Event().wait()
            case "long":  # a page without an end
                stream = web.StreamResponse(headers={"Content-Type": "text/html"})
                await stream.prepare(request)
                await stream.write(PAGE.encode())
                with contextlib.suppress(ConnectionError):
                    while True:
                        await stream.write(b" " * 65_536)
                return stream
        return web.Response(status=404)


@contextlib.asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    site, app = Site(), web.Application()
    app.router.add_get("/{path:.*}", site.respond)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    await web.TCPSite(runner, "127.0.0.2", port).start()
    site.url = f"http://127.0.0.1:{port}"
    try:
        yield site
    finally:
        await runner.cleanup()


def fetcher(*private: str, lookup: Lookup | None = None, ports: Sequence[int] = ()) -> PageFetcher:
    """Return a fetcher that may reach these private networks, and public addresses on `ports`."""
    settings = config.Outbound(allow_private=list(private), ports=list(ports) or [80, 443])
    return PageFetcher(settings) if lookup is None else PageFetcher(settings, lookup)
