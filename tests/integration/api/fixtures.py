"""Fixtures of the HTTP API: an API process next to a gateway and workers, and HTTP clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from chatserver.dev.servers import Server
from tests.integration.api.support import Caller
from tests.support.stack import Stack

TIMEOUT_S = 20


@pytest.fixture(scope="session")
def api(stack: Stack) -> Server:
    """An API process of the stack.

    It signs S3 URLs, but no S3 server is running. Password hashing uses the lowest cost that the
    library accepts.
    """
    return stack.start_api(
        CHAT_AUTH_ARGON2_MEMORY_KIB="8",
        **{"chatserver.auth.passwords.ARGON2_PASSES": "1"},
        # All API processes of a stack share the rate-limit buckets of an address.
        CHAT_LIMITS_MEMORY="180/s burst 1000000000",
        CHAT_LIMITS_ENTRIES="0.5/s burst 100000",
        CHAT_LIMITS_LOGINS="0.05/s burst 1000",
        CHAT_LIMITS_CALLS="200/s burst 100000",
        CHAT_COLD_ENDPOINT="http://127.0.0.1:9",
        CHAT_COLD_ACCESS_KEY="none",
        CHAT_COLD_SECRET_KEY="none",
    )


@pytest.fixture
async def caller(stack: Stack, api: Server) -> AsyncIterator[Caller]:
    """A function that returns an HTTP client logged in as a user."""
    async with contextlib.AsyncExitStack() as clients:

        def make(user: str) -> httpx.AsyncClient:
            headers = {"Authorization": f"Bearer {stack.token(user)}"} if user else {}
            client = httpx.AsyncClient(base_url=api.endpoint, headers=headers, timeout=TIMEOUT_S)
            clients.push_async_callback(client.aclose)
            return client

        yield make
