"""Rate limits of the API per address and per user, and the choice of the address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest
from litestar.types import ASGIApp

from chatserver.config import Api, Limits
from tests.integration.api.support import open_api, problem_of, settings_of
from tests.support.stack import NewName, Stack

PROXY = "127.0.0.1"
# Only these tests use addresses in 192.0.2.0/24: all processes of a stack share the buckets.
SLOW = 0.001  # one token in 17 minutes, so no bucket is refilled during a test


def limited_api(stack: Stack, **bursts: int) -> AbstractAsyncContextManager[ASGIApp]:
    """Open an API with these bursts that trusts the address of its proxy."""
    limits = {kind: f"{SLOW}/s burst {burst}" for kind, burst in bursts.items()}
    sections = {"api": Api(trusted_proxies=[PROXY]), "limits": Limits.model_validate(limits)}
    return open_api(settings_of(stack, **sections))


@pytest.fixture
async def strict(stack: Stack) -> AsyncIterator[ASGIApp]:
    async with limited_api(stack, calls=12, failures=3, requests=64, sends=2) as app:
        yield app


def client_of(stack: Stack, app: ASGIApp, user: str, address: str) -> httpx.AsyncClient:
    """Return a client whose requests the proxy forwards for this address."""
    headers = {"X-Forwarded-For": address}
    if user:
        headers["Authorization"] = f"Bearer {stack.token(user)}"
    transport = httpx.ASGITransport(app, client=(PROXY, 1))  # type: ignore[arg-type]  # httpx type
    return httpx.AsyncClient(base_url="http://api.example", headers=headers, transport=transport)


async def statuses_of(
    client: httpx.AsyncClient, count: int, *request: Any, **more: Any
) -> list[int]:
    """Repeat a request `count` times; return the statuses."""
    return [(await client.request(*request, **more)).status_code for _ in range(count)]


async def test_requests_of_an_address_beyond_its_burst_are_refused(
    stack: Stack, strict: ASGIApp
) -> None:
    """Requests without a login count too; other addresses and probes are not affected."""
    async with client_of(stack, strict, "", "192.0.2.1") as client:
        found = await statuses_of(client, 13, "GET", "/v1/client-config")
        refused = await client.get("/v1/client-config")
        health = [await statuses_of(client, 2, "GET", path) for path in ("/healthz", "/readyz")]
    async with client_of(stack, strict, "", "192.0.2.2") as other:
        free = await other.get("/v1/client-config")

    assert found == [200] * 12 + [429]
    assert problem_of(refused) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["retry_after_ms"] > 0
    assert free.status_code == 200
    assert health == [[200, 200]] * 2


async def test_invalid_tokens_of_an_address_are_limited(
    stack: Stack, strict: ASGIApp, new_name: NewName
) -> None:
    """Beyond the limit a valid token is refused too, so that tokens cannot be guessed."""
    bad = {"Authorization": "Bearer a.b.c"}
    async with client_of(stack, strict, "", "192.0.2.3") as client:
        found = await statuses_of(client, 4, "GET", "/v1/me", headers=bad)
    async with client_of(stack, strict, new_name("late"), "192.0.2.3") as client:
        late = await client.get("/v1/me")

    assert found == [401, 401, 401, 429]
    assert problem_of(late) == (429, "rate_limited")


async def test_requests_of_a_user_beyond_the_burst_are_refused_from_any_address(
    stack: Stack, strict: ASGIApp, new_name: NewName
) -> None:
    """The user is charged and not the address; a page of 150 chats costs 16 of 64 tokens."""
    user, found = new_name("lena"), []
    for n in range(5):
        async with client_of(stack, strict, user, f"192.0.2.{10 + n}") as client:
            found.append((await client.get("/v1/chats?limit=150")).status_code)

    assert found == [200] * 4 + [429]


async def test_sends_of_a_user_have_their_own_limit(
    stack: Stack, strict: ASGIApp, new_name: NewName
) -> None:
    """When the bucket for sends is empty, reads are still allowed."""
    user, other = new_name("mia"), new_name("nora")
    await stack.add_users([other])
    async with client_of(stack, strict, user, "192.0.2.20") as client:
        chat = (await client.put(f"/v1/direct-chats/{other}")).json()["chat"]
        path = f"/v1/chats/{chat}/messages"
        found = await statuses_of(client, 3, "POST", path, json={"body": "x"})
        read = await client.get(path)

    assert found == [201, 201, 429]
    assert read.status_code == 200


async def test_sends_of_new_accounts_of_a_network_are_limited_together(
    stack: Stack, new_name: NewName
) -> None:
    """By HTTP as by frames: each has half of the burst, and all of them have one burst."""
    peer, found = new_name("peer"), []
    await stack.add_users([peer])
    async with limited_api(stack, sends=20) as app:
        for number in range(3):
            user = new_name("cheap")
            async with client_of(stack, app, user, f"198.18.7.{number + 1}") as client:
                client.headers["Authorization"] = f"Bearer {stack.token_of_new_account(user)}"
                chat = (await client.put(f"/v1/direct-chats/{peer}")).json()["chat"]
                path = f"/v1/chats/{chat}/messages"
                statuses = await statuses_of(client, 12, "POST", path, json={"body": "x"})
                found.append(statuses.count(201))

    assert found == [10, 10, 0]


async def test_forwarded_address_from_an_untrusted_hop_is_ignored(
    stack: Stack, strict: ASGIApp
) -> None:
    """The client address is the right-most one that is not a trusted proxy."""
    found = []
    for n in range(13):
        chain = f"198.51.100.{n}, 192.0.2.30"
        async with client_of(stack, strict, "", chain) as client:
            found.append((await client.get("/v1/client-config")).status_code)

    assert found == [200] * 12 + [429]


async def test_creating_large_groups_is_charged_by_members(
    stack: Stack, strict: ASGIApp, new_name: NewName
) -> None:
    """The members in the body are charged, so the second large group is refused."""
    body = {"members": [f"nobody{n}" for n in range(200)], "name": "Team"}
    async with client_of(stack, strict, new_name("olga"), "192.0.2.40") as client:
        first = await client.post("/v1/chats", json=body)
        second = await client.post("/v1/chats", json=body)

    assert (first.status_code, second.status_code) == (404, 429)
    assert second.json()["detail"] == "too many requests: slow down"
