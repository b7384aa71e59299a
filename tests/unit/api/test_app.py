"""The HTTP application without a network: routes, headers, problems, demo login."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio
from prometheus_client import generate_latest
from pydantic import SecretStr

from chatserver.api.app import create_app, create_litestar
from chatserver.api.openapi import find_document, prepare_document
from chatserver.api.response_headers import CommonHeaders
from chatserver.auth.access_tokens import Tokens
from chatserver.config import Api, Auth, Settings
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.errors import ConfigError
from tests.support.apiparts import open_offline_container

SECRET = "0123456789abcdef0123456789abcdef"
pytestmark = pytest.mark.asyncio(loop_scope="module")
Client = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    """Create clients of an application with `demo_users`; each application takes 0.3 s."""
    clients: dict[tuple[str, ...], httpx.AsyncClient] = {}
    stack = contextlib.AsyncExitStack()

    async def make(*demo_users: str) -> httpx.AsyncClient:
        if demo_users not in clients:
            settings = Settings(
                auth=Auth(secret=SecretStr(SECRET)),
                api=Api(gateway_url="ws://127.0.0.1:8081/", demo_users=list(demo_users)),
            )
            container = await stack.enter_async_context(open_offline_container(settings))
            transport = httpx.ASGITransport(create_app(settings, SystemClock(), container))
            http_client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")
            clients[demo_users] = await stack.enter_async_context(http_client)
        return clients[demo_users]

    async with stack:
        yield make


@pytest.mark.parametrize("path", ["/", "/docs", "/healthz", "/v1/client-config", "/nothing"])
async def test_every_response_has_the_security_headers(client: Client, path: str) -> None:
    """Files, JSON and errors have the same headers."""
    headers = (await (await client()).get(path)).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'self'"
    assert policy["script-src"] == "'self'"
    assert policy["style-src"] == "'self'"
    assert policy["img-src"].startswith("'self' data: blob: https://")  # and the origin of files
    assert policy["object-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["base-uri"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["connect-src"].startswith("'self' ws://127.0.0.1:8081 https://")
    assert headers.get_list("cache-control") in (["no-cache"], ["no-store"])


async def test_client_config_by_default_has_gateway_and_no_demo_users(client: Client) -> None:
    """By default, the page gets no users for one-click login."""
    assert (await (await client()).get("/v1/client-config")).json() == {
        "gateway_url": "ws://127.0.0.1:8081/",
        "demo_users": [],
        "push_key": None,
        "file_bytes_max": 26_214_400,
        "local_accounts": True,
        "registration": True,
    }


async def test_demo_login_without_demo_users_is_not_found(client: Client) -> None:
    """A production API has no such route, for any request body."""
    for body in (b'{"user":"alice"}', b"", b"{"):
        response = await (await client()).post("/v1/dev/login", content=body)
        assert response.status_code == 404
        assert response.json()["code"] == "not_found"


async def test_demo_login_returns_a_valid_token(client: Client) -> None:
    """The token is for the demo user of the request."""
    response = await (await client("alice", "bob")).post("/v1/dev/login", json={"user": "bob"})

    assert response.status_code == 200
    login = response.json()
    claims = Tokens(Auth(secret=SecretStr(SECRET)), SystemClock()).verify(login["token"])
    assert (login["user"], login["expires_at"]) == ("bob", claims.expires_at)
    assert claims.user == "bob"
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"user":"mallory"}', 404, "not_found"),
        (b'{"user":"a#b"}', 400, "bad_request"),
        (b'{"user":7}', 400, "bad_request"),
        (b'{"user":"alice","admin":true}', 400, "bad_request"),
        (b"{}", 400, "bad_request"),
        (b"[]", 400, "bad_request"),
        (b"{", 400, "bad_request"),
        (b"\xff", 400, "bad_request"),
        (b"[" * 60_000, 400, "bad_request"),
        (b'{"user":"' + b"a" * 70_000 + b'"}', 413, "too_large"),
    ],
)
async def test_demo_login_with_invalid_body_returns_a_problem(
    client: Client, body: bytes, status: int, code: str
) -> None:
    """Each invalid body gets a problem document with a code."""
    response = await (await client("alice", "bob")).post(
        "/v1/dev/login", content=body, headers={"Content-Type": "application/json"}
    )

    problem = response.json()
    assert (response.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["type"] == "about:blank"
    assert problem["title"] and problem["detail"]
    assert problem["temporary"] is False


async def test_problem_names_the_invalid_field(client: Client) -> None:
    """The caller can correct the request without guessing."""
    response = await (await client("alice", "bob")).post("/v1/dev/login", json={"user": "a#b"})

    assert "user" in response.json()["detail"]


async def test_api_without_a_secret_does_not_start() -> None:
    """There is no default secret, not even for demos."""
    with pytest.raises(ConfigError, match="at least 32 bytes"):
        async with open_offline_container(Settings(api=Api(demo_users=["alice"]))):
            pass


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_unsupported_method_returns_a_problem(client: Client, method: str) -> None:
    """The response is 405 with a problem document."""
    response = await (await client()).request(method, "/healthz")

    assert response.status_code == 405
    assert response.json()["code"] == "bad_request"


async def test_health_of_a_running_api_is_ok(client: Client) -> None:
    """`/healthz` returns 200 while the process serves requests, even if its stores are down."""
    response = await (await client()).get("/healthz")

    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_readiness_without_redis_is_unavailable_and_names_redis(client: Client) -> None:
    """A load balancer sends requests elsewhere, and an operator reads what is unavailable."""
    response = await (await client()).get("/readyz")

    problem = response.json()
    assert (response.status_code, problem["code"]) == (503, "unavailable")
    assert problem["detail"].startswith("Redis is unavailable")
    assert problem["temporary"] is True


async def test_metrics_count_responses_by_route_and_not_by_path(client: Client) -> None:
    """Unknown paths that clients request create no time series."""
    http_client = await client()
    await http_client.get("/unknown-path")
    await http_client.get("/healthz")

    response = await http_client.get("/metrics")
    text = generate_latest().decode()

    assert response.status_code == 404  # metrics have their own port, closed to clients
    assert 'chatserver_http_requests_total{route="/healthz",status="200"}' in text
    assert "unknown-path" not in text


@pytest.mark.parametrize(
    ("settings", "proto", "expected"),
    [
        ({}, None, None),
        ({}, "https", None),  # from an untrusted peer
        ({"trusted_proxies": ["127.0.0.1"]}, "https", "max-age=31536000"),
        ({"trusted_proxies": ["127.0.0.1"]}, "http", None),
        ({"trusted_proxies": ["127.0.0.1"]}, None, None),
        ({"trusted_proxies": ["127.0.0.1"], "hsts_s": 300}, "https", "max-age=300"),
        ({"trusted_proxies": ["127.0.0.1"], "hsts_s": 0}, "https", None),
        ({"tls_in_front": True}, None, "max-age=31536000"),
        ({"tls_in_front": True, "hsts_s": 0}, None, None),
    ],
)
async def test_hsts_is_sent_only_behind_tls(
    settings: dict[str, Any], proto: str | None, expected: str | None
) -> None:
    """A setting or a trusted proxy indicates TLS; a site without TLS is never locked out."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    headers = {} if proto is None else {"X-Forwarded-Proto": proto}
    wrapped = CommonHeaders(app, Api.model_validate(settings))
    transport = httpx.ASGITransport(wrapped, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        response = await client.get("/healthz", headers=headers)

    assert response.headers.get("strict-transport-security") == expected


async def test_no_dependency_of_a_route_is_a_generator() -> None:
    """If one dependency raises, the framework closes the generators of the others late or never."""
    settings = Settings(auth=Auth(secret=SecretStr(SECRET)))
    async with open_offline_container(settings) as container:
        app = create_litestar(settings, SystemClock(), container)
        provided = {
            provide.dependency
            for route in app.routes
            for handler in getattr(route, "route_handlers", ())
            for provide in handler.resolve_dependencies().values()
        }

    assert len(provided) >= 3
    assert [each for each in provided if inspect.isasyncgenfunction(each)] == []
    assert [each for each in provided if inspect.isgeneratorfunction(each)] == []


async def test_head_of_every_route_has_the_headers_of_get_and_no_body(client: Client) -> None:
    """HEAD works wherever GET does, with and without a login."""
    http_client = await client()
    settings = Settings(auth=Auth(secret=SecretStr(SECRET)))
    async with open_offline_container(settings) as container:
        routes = create_litestar(settings, SystemClock(), container).routes
    paths = [
        re.sub(r"{\w+(:\w+)?}", "1", route.path)
        for route in routes
        for handler in getattr(route, "route_handlers", ())
        if "GET" in handler.http_methods
    ]
    token = Tokens(Auth(secret=SecretStr(SECRET)), SystemClock()).issue(UserId("u"), 60)
    for path in paths:
        for headers in ({}, {"Authorization": f"Bearer {token}"}):
            get = await http_client.get(path, headers=headers)
            head = await http_client.head(path, headers=headers)
            assert head.status_code == get.status_code != 405, path
            assert head.content == b"", path
            for name in ("content-type", "content-length", "etag"):
                assert head.headers.get(name) == get.headers.get(name), (path, name)

    assert len(paths) > 80


async def test_refused_method_names_the_allowed_ones(client: Client) -> None:
    """`Allow` includes HEAD, and no method that is refused (RFC 9110 section 15.5.6)."""
    for method in ("DELETE", "OPTIONS"):
        response = await (await client()).request(method, "/v1/me/blocks")
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")


async def test_openapi_document_is_revalidated_and_compressed(client: Client) -> None:
    """A client that has the current document gets 304."""
    first = await (await client()).get("/v1/openapi.json")
    etag = first.headers["etag"]
    second = await (await client()).get("/v1/openapi.json", headers={"If-None-Match": etag})

    assert first.headers["content-encoding"] == "gzip"
    assert first.json()["openapi"].startswith("3.")
    assert (second.status_code, second.content) == (304, b"")


async def test_openapi_document_is_built_before_the_first_request() -> None:
    """The build takes hundreds of milliseconds, which would delay other requests."""
    settings = Settings(auth=Auth(secret=SecretStr(SECRET)))
    async with open_offline_container(settings) as container:
        app = create_litestar(settings, SystemClock(), container)
        assert prepare_document in app.on_startup
        await prepare_document(app)
        file = find_document(app)

        assert find_document(app) is file


@pytest.mark.parametrize("path", ["/nothing", "/nothing/<script>", "/%22onload=x"])
async def test_unknown_address_returns_a_page_to_a_browser(client: Client, path: str) -> None:
    """The page is the same for every address, so it contains nothing of the request."""
    accept = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    page = await (await client()).get(path, headers=accept)
    other = await (await client()).get("/another", headers=accept)
    style = await (await client()).get("/not_found.css")

    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert page.content == other.content
    assert b'href="/not_found.css"' in page.content and b"<style" not in page.content
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert (style.status_code, style.headers["content-type"]) == (200, "text/css; charset=utf-8")


@pytest.mark.parametrize(
    ("path", "accept"), [("/nothing", "*/*"), ("/nothing", ""), ("/v1/nothing", "text/html")]
)
async def test_unknown_address_returns_problem_details_to_other_clients(
    client: Client, path: str, accept: str
) -> None:
    """Addresses of the API have problem details for browsers too."""
    response = await (await client()).get(path, headers={"Accept": accept})

    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
