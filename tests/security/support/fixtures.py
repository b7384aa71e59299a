"""An API process with quick password hashes, and what tests do with accounts.

Import as a plugin, beside ``tests.support.stack_fixtures``.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from chatserver.dev.servers import Server
from tests.security.support.users import NewClient
from tests.support.stack import Stack

TIMEOUT_S = 20
WEAK = {
    # As weak as the library lets it be: a test is about who comes in, not about what it costs.
    "CHAT_AUTH_ARGON2_MEMORY_KIB": "8",
    "chatserver.auth.passwords.ARGON2_PASSES": "1",
    "CHAT_AUTH_COOKIE_SECURE": "false",
    "chatserver.features.accounts.service.logins.DEVICES_MAX": "4",
    "CHAT_LIMITS_LOGINS": "0.001/s burst 5",  # none comes back within a test
    "CHAT_LIMITS_ENTRIES": "0.5/s burst 100000",
    "CHAT_LIMITS_CALLS": "200/s burst 100000",
}


@pytest.fixture(scope="session")
def people_api(stack: Stack) -> Server:
    """An API process of the stack whose accounts are quick."""
    return stack.start_api(**WEAK)


@pytest.fixture
async def new_client(people_api: Server) -> AsyncIterator[NewClient]:
    """Makes HTTP clients, each with cookies of its own."""
    async with contextlib.AsyncExitStack() as clients:

        def make() -> httpx.AsyncClient:
            client = httpx.AsyncClient(base_url=people_api.endpoint, timeout=TIMEOUT_S)
            clients.push_async_callback(client.aclose)
            return client

        yield make


@pytest.fixture
def client(new_client: NewClient) -> httpx.AsyncClient:
    """One HTTP client."""
    return new_client()
