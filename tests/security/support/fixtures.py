"""Fixtures with an API process that has fast password hashes, and HTTP clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from chatserver.dev.servers import Server
from tests.security.support.users import NewClient
from tests.support.stack import Stack

TIMEOUT_S = 20
FAST_HASHES = {
    # The lowest cost that the library allows, because these tests do not cover the cost of hashing.
    "CHAT_AUTH_ARGON2_MEMORY_KIB": "8",
    "chatserver.auth.passwords.ARGON2_PASSES": "1",
    "CHAT_AUTH_COOKIE_SECURE": "false",
    "chatserver.features.accounts.service.login_tokens.DEVICES_MAX": "4",
    "CHAT_LIMITS_LOGINS": "0.001/s burst 5",  # no refill within a test
    "CHAT_LIMITS_ENTRIES": "0.5/s burst 100000",
    "CHAT_LIMITS_CALLS": "200/s burst 100000",
}


@pytest.fixture(scope="session")
def accounts_api(stack: Stack) -> Server:
    """An API process of the stack with fast password hashes."""
    return stack.start_api(**FAST_HASHES)


@pytest.fixture
async def new_client(accounts_api: Server) -> AsyncIterator[NewClient]:
    """Return a function that creates HTTP clients, each with its own cookies."""
    async with contextlib.AsyncExitStack() as clients:

        def create() -> httpx.AsyncClient:
            client = httpx.AsyncClient(base_url=accounts_api.endpoint, timeout=TIMEOUT_S)
            clients.push_async_callback(client.aclose)
            return client

        yield create


@pytest.fixture
def client(new_client: NewClient) -> httpx.AsyncClient:
    """One HTTP client."""
    return new_client()
