"""Static files: the web client and the API reference, their encodings, caching and headers."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from litestar import Litestar

from chatserver.api.problems import EXCEPTION_HANDLERS
from chatserver.api.request_forms import RequestForms
from chatserver.api.response_headers import CommonHeaders
from chatserver.api.routes.static_files import (
    CLIENT_PAGES,
    build_client_routes,
    build_reference_routes,
)
from chatserver.config import Api

SOURCES = Path(__file__).parents[3] / "clients" / "web" / "src"
PAGE = "<!doctype html><title>tierchat</title>"
SCRIPT = b"export const answer = 42;" * 40


def open_client(folder: Path) -> httpx.AsyncClient:
    """Return a client of an application with static files only."""
    app = Litestar(
        [*build_client_routes(folder), *build_reference_routes()],
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
    )
    transport = httpx.ASGITransport(RequestForms(CommonHeaders(app, Api())))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Create a client of a small build, next to files that must not be served."""
    folder = tmp_path / "build"
    (folder / "assets").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "index.html").write_text(PAGE)
    (folder / "service_worker.js").write_text("self.skipWaiting();")
    (folder / "icon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "manifest.webmanifest").write_text("{}")
    (folder / "notes.md").write_text("private")
    (folder / ".git" / "hook.js").write_text("private")
    (folder / "assets" / "index-abc.js").write_bytes(SCRIPT)
    (folder / "assets" / "index-abc.js.gz").write_bytes(gzip.compress(SCRIPT))
    (tmp_path / "secret.js").write_text("private")
    async with open_client(folder) as http_client:
        yield http_client


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/service_worker.js", "text/javascript; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
        ("/manifest.webmanifest", "application/manifest+json"),
        ("/docs", "text/html; charset=utf-8"),
        ("/docs/reference.js", "text/javascript; charset=utf-8"),
        ("/docs/reference.css", "text/css; charset=utf-8"),
    ],
)
async def test_file_is_served_with_its_type_and_revalidated(
    client: httpx.AsyncClient, path: str, content_type: str
) -> None:
    """Browsers accept scripts and styles of the right type only; HEAD has the same headers."""
    response, head = await client.get(path), await client.head(path)

    assert (response.status_code, head.status_code) == (200, 200)
    assert response.headers["content-type"] == content_type
    assert response.headers["cache-control"] == "no-cache"
    assert int(response.headers["content-length"]) == len(response.content) > 0
    assert (head.headers["etag"], head.content) == (response.headers["etag"], b"")


async def test_every_client_route_serves_the_index(client: httpx.AsyncClient) -> None:
    """All routes in the client's sources are served, and revalidated to notice a new build."""
    sources = [path.read_text("utf-8") for path in SOURCES.glob("*/routes.ts")]
    routes = {path for text in sources for path in re.findall(r'(?:path:|LIST =) "(.+?)"', text)}
    listed = re.findall(
        r'^  "(\w+)",$', (SOURCES / "page" / "paths.ts").read_text("utf-8"), re.MULTILINE
    )

    assert len(routes) > 10
    assert tuple(listed) == CLIENT_PAGES
    for path in ["/", "/index.html", "/settings/profile", "/people/a~b/", *sorted(routes)]:
        response = await client.get(path.replace(":", "d-"))
        assert (response.status_code, response.text) == (200, PAGE), path
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("accept", ["gzip, br", "br;q=0.5, gzip;q=0.1"])
async def test_hashed_file_is_compressed_and_never_revalidated(
    client: httpx.AsyncClient, accept: str
) -> None:
    """The compressed copy is sent unchanged to clients that accept its encoding."""
    path = "/assets/index-abc.js"
    compressed = await client.get(path, headers={"Accept-Encoding": accept})
    plain = await client.get(path, headers={"Accept-Encoding": "gzip;q=0, identity"})

    assert compressed.content == plain.content == SCRIPT  # httpx has decompressed the first one
    assert compressed.headers["content-encoding"] == "gzip"
    assert int(compressed.headers["content-length"]) < len(SCRIPT)
    assert "content-encoding" not in plain.headers
    assert {each.headers["vary"] for each in (compressed, plain)} == {"Accept-Encoding"}
    assert compressed.headers["etag"] != plain.headers["etag"]
    assert "immutable" in compressed.headers["cache-control"]


async def test_cached_file_is_not_sent_again(client: httpx.AsyncClient) -> None:
    """A matching ETag returns 304 without content; another one returns the file."""
    path = "/service_worker.js"
    etag = (await client.get(path)).headers["etag"]

    same = await client.get(path, headers={"If-None-Match": f'"x", W/{etag}'})
    other = await client.get(path, headers={"If-None-Match": '"x"'})

    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    assert other.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/assets/index-old.js",  # a browser would run the page as a script
        "/assets/..%2fnotes.md",
        "/assets/../../secret.js",
        "/assets",
        "/assets/",
        "/notes.md",
        "/.git/hook.js",
        "/../secret.js",
        "/..%2fsecret.js",
        "/%2e%2e/secret.js",
        "/docs/..%5c..%5csecret.js",
        "//secret.js",
        "/icon.svg%00",
        "/Icon.svg",
        "/chatsroom",
        "/nothing",
        "/v1",
        "/docs/index.html",
    ],
)
async def test_unlisted_path_is_not_found(client: httpx.AsyncClient, path: str) -> None:
    """No spelling of a path reaches a file that is not listed."""
    request = httpx.Request("GET", "http://127.0.0.1:8080/")
    request.url = request.url.copy_with(raw_path=path.encode())

    response = await client.send(request)

    assert response.status_code == 404
    assert response.json()["code"] == "not_found"


async def test_share_without_service_worker_redirects_to_the_share_page(
    client: httpx.AsyncClient,
) -> None:
    """The page asks the user to share again; the server does not read the shared data."""
    response = await client.post(
        "/share", data={"text": "private"}, files={"files": b"x" * 100_000}
    )

    assert (response.status_code, response.content) == (303, b"")
    assert response.headers["location"] == "/share?missed"
    assert response.headers["cache-control"] == "no-store"
    assert (await client.get(response.headers["location"])).text == PAGE


async def test_index_without_a_build_names_the_build_commands(tmp_path: Path) -> None:
    """A checkout without a built client still serves a page."""
    async with open_client(tmp_path) as client:
        response = await client.get("/")

    assert response.status_code == 200
    assert "npm" in response.text and "make run" in response.text


async def test_content_security_policy_allows_only_what_the_client_needs(
    client: httpx.AsyncClient,
) -> None:
    """Trusted Types with one policy, and the microphone for voice messages."""
    headers = (await client.get("/")).headers

    policy = headers["content-security-policy"]
    assert "trusted-types tierchat-worker" in policy
    worker_client = SOURCES / "shell" / "service_worker_client.ts"
    assert '"tierchat-worker"' in worker_client.read_text("utf-8")
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert headers["permissions-policy"] == "camera=(), geolocation=(), microphone=(self)"
