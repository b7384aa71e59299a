"""The web client at `/next/`: files, encodings, caching, pages of its router, and headers."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from litestar import Litestar

from chatserver.api.problems import EXCEPTION_HANDLERS
from chatserver.api.response_headers import CommonHeaders
from chatserver.api.routes.web_client import client_routes, read_client_files
from chatserver.config import Api

SCRIPT = b"export const answer = 42;" * 40


def open_client(folder: Path) -> httpx.AsyncClient:
    """Return a client of an application with the routes of this build only."""
    app = Litestar(
        client_routes(read_client_files(folder)),
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
    )
    transport = httpx.ASGITransport(CommonHeaders(app, Api()))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a small build."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>tierchat</title>")
    (tmp_path / "service_worker.js").write_text("self.skipWaiting();")
    (tmp_path / "notes.md").write_text("private")
    (tmp_path / "assets" / "index-abc.js").write_bytes(SCRIPT)
    (tmp_path / "assets" / "index-abc.js.gz").write_bytes(gzip.compress(SCRIPT))
    async with open_client(tmp_path) as made:
        yield made


@pytest.mark.parametrize("path", ["/next", "/next/", "/next/chats/d-ann", "/next/settings"])
async def test_every_page_of_the_router_is_the_index(client: httpx.AsyncClient, path: str) -> None:
    """Pages are revalidated, so that a new build is noticed."""
    answer = await client.get(path)

    assert (answer.status_code, answer.text) == (200, "<!doctype html><title>tierchat</title>")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"


async def test_hashed_file_is_compressed_and_never_revalidated(client: httpx.AsyncClient) -> None:
    """The stored copy is sent as it is, to clients that accept its encoding."""
    path = "/next/assets/index-abc.js"
    packed = await client.get(path, headers={"Accept-Encoding": "gzip, br"})
    plain = await client.get(path, headers={"Accept-Encoding": "gzip;q=0, identity"})

    assert packed.content == plain.content == SCRIPT  # httpx has unpacked the first one
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(SCRIPT)
    assert "content-encoding" not in plain.headers
    assert {each.headers["vary"] for each in (packed, plain)} == {"Accept-Encoding"}
    assert packed.headers["etag"] != plain.headers["etag"]
    assert "immutable" in packed.headers["cache-control"]


async def test_file_that_the_browser_has_is_not_sent_again(client: httpx.AsyncClient) -> None:
    """The service worker's script is revalidated at each start."""
    first = await client.get("/next/service_worker.js")
    etag = first.headers["etag"]

    again = await client.get("/next/service_worker.js", headers={"If-None-Match": etag})

    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/next/assets/index-old.js", "/next/assets/..%2fnotes.md", "/next/assets/%2e%2e/x"]
)
async def test_missing_file_is_not_answered_with_a_page(
    client: httpx.AsyncClient, path: str
) -> None:
    """A browser would try to run the page as a script of another build."""
    request = httpx.Request("GET", "http://127.0.0.1:8080/")
    request.url = request.url.copy_with(raw_path=path.encode())

    answer = await client.send(request)

    assert answer.status_code == 404
    assert b"private" not in answer.content


async def test_checkout_without_a_build_explains_how_to_make_one(tmp_path: Path) -> None:
    """There is a page, and it names the command."""
    async with open_client(tmp_path) as client:
        answer = await client.get("/next/")

    assert answer.status_code == 200
    assert "npm" in answer.text and "make run" in answer.text


async def test_client_has_trusted_types_and_the_microphone_of_its_own(
    client: httpx.AsyncClient,
) -> None:
    """Other pages do not get what only the client needs."""
    inside, outside = await client.get("/next/"), await client.get("/nextdoor")

    policy = inside.headers["content-security-policy"]
    assert "trusted-types tierchat-worker" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert "microphone=(self)" in inside.headers["permissions-policy"]
    assert "tierchat-worker" not in outside.headers["content-security-policy"]
    assert "microphone=()" in outside.headers["permissions-policy"]
