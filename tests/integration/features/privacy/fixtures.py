"""Fixtures of the tests of exports and erasures: one stack per run; each test has its own users.

Import as a plugin: ``pytest_plugins = ["tests.integration.features.privacy.fixtures"]``.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
import pytest_asyncio

from tests.integration.features.privacy.support import TIMEOUT_S, Person, Vault, open_vault


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vault(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Vault]:
    async with open_vault(tmp_path_factory.mktemp("vault")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def new_person(vault: Vault) -> AsyncIterator[Callable[[str], Person]]:
    """A factory of new users, which have no account yet."""
    async with contextlib.AsyncExitStack() as clients:

        def make(stem: str) -> Person:
            client = httpx.AsyncClient(base_url=vault.api.endpoint, timeout=TIMEOUT_S)
            clients.push_async_callback(client.aclose)
            return Person(client, f"{stem}-{secrets.token_hex(4)}")

        yield make
