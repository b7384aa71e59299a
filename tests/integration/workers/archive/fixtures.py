"""Fixtures of the archive tests: one set of stores for a run, a chat for each test.

Import as a plugin: ``pytest_plugins = ["tests.integration.workers.archive.fixtures"]``.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from chatserver.domain.ids import ChatId
from tests.integration.features.attachments.support import cold_settings
from tests.integration.warm.support import settings_for
from tests.integration.workers.archive.support import World, open_world
from tests.support.servers.processes import open_redis


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def archive_stores(
    tmp_path_factory: pytest.TempPathFactory, dynamodb: str, s3: str
) -> AsyncIterator[World]:
    """The stores and the components of a worker."""
    # Use a separate Redis, because other tests delete the data of the shared one.
    with open_redis(tmp_path_factory.mktemp("archive")) as url:
        async with open_world(url, settings_for(dynamodb), cold_settings(s3)) as made:
            yield made


@pytest.fixture
def archive_world(archive_stores: World) -> World:
    """The stores with a chat that no other test uses."""
    return dataclasses.replace(archive_stores, chat=ChatId(f"d-{secrets.token_hex(8)}"))
