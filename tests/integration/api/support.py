"""Helpers for tests of the HTTP API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
from litestar.types import ASGIApp
from pydantic import SecretStr

from chatserver.api.app import create_app
from chatserver.config import Auth, Redis, Settings
from chatserver.container.storage import open_storage_container
from chatserver.domain.clock import SystemClock
from tests.support.stack import Stack

# Maps a user to a logged-in client; "" is a client without a login.
Caller = Callable[[str], httpx.AsyncClient]


def problem_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


async def make_group(owner: httpx.AsyncClient, *members: str, **fields: object) -> str:
    answer = await owner.post("/v1/chats", json={"members": list(members), **fields})
    assert answer.status_code == 201, answer.text
    chat: str = answer.json()["chat"]
    return chat


async def send(client: httpx.AsyncClient, chat: str, body: str, **fields: object) -> httpx.Response:
    return await client.post(f"/v1/chats/{chat}/messages", json={"body": body, **fields})


async def store(
    client: httpx.AsyncClient, chat: str, body: str, **fields: object
) -> dict[str, Any]:
    """Send a message, wait until it is stored, and return its ack."""
    answer = await send(client, chat, body, durability="stored", **fields)
    assert answer.status_code == 201, answer.text
    ack: dict[str, Any] = answer.json()
    return ack


def settings_of(stack: Stack, **sections: Any) -> Settings:
    """Return settings of an API on the servers of a stack."""
    return Settings(
        redis=Redis(url=stack.redis_url, call_timeout_s=20),
        warm=stack.warm,
        auth=Auth(secret=SecretStr(stack.secret)),
        **sections,
    )


@contextlib.asynccontextmanager
async def open_api(settings: Settings) -> AsyncIterator[ASGIApp]:
    """Open an API with its own settings inside the test process."""
    async with open_storage_container(
        role="api", settings=settings, clock=SystemClock()
    ) as container:
        yield create_app(settings, SystemClock(), container)


async def bodies(
    client: httpx.AsyncClient,
    path: str = "/v1/me/messages",
    sizes: Callable[[], int] = lambda: 2,
    **query: Any,
) -> list[str]:
    """Read all pages of a list and return the bodies; all pages but the last must be full."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        params = {"limit": sizes(), **query, **cursor}
        answer = await client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += [each["body"] for each in page["items"]]
        if page["next"] is None:
            return found
        assert len(page["items"]) == params["limit"]
        cursor = {"cursor": page["next"]}
