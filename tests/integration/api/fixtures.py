"""The API as a process beside a gateway and workers, and clients of it.

Import as a plugin, beside ``tests.support.stack_fixtures``.
"""

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
    """An API process of the stack; addresses of S3 are signed there, and nobody goes to them.

    Passwords are hashed as cheaply as the library lets them be.
    """
    return stack.start_api(
        CHAT_AUTH_ARGON2_MEMORY_KIB="8",
        **{"chatserver.auth.passwords.ARGON2_PASSES": "1"},
        # All APIs of a stack share the buckets of an address.
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
    """Make HTTP clients that are logged in as users."""
    async with contextlib.AsyncExitStack() as clients:

        def make(user: str) -> httpx.AsyncClient:
            headers = {"Authorization": f"Bearer {stack.token(user)}"} if user else {}
            client = httpx.AsyncClient(base_url=api.endpoint, headers=headers, timeout=TIMEOUT_S)
            clients.push_async_callback(client.aclose)
            return client

        yield make
