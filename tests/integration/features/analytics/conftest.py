"""Fixtures of the analytics tests: each test has its own tables and bucket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.integration.features.analytics.support import Lake, open_lake
from tests.integration.features.attachments.support import cold_settings
from tests.integration.warm.support import settings_for
from tests.support.servers.processes import open_redis


@pytest.fixture(scope="session")
def lake_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis for these tests, because other tests delete the data of the shared one."""
    with open_redis(tmp_path_factory.mktemp("lake")) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="session")
async def lake(
    request: pytest.FixtureRequest, lake_redis: str, dynamodb: str, s3: str
) -> AsyncIterator[Lake]:
    """A lake that exports message bodies, unless a parameter says otherwise."""
    has_bodies = getattr(request, "param", True)
    warm, cold = settings_for(dynamodb), cold_settings(s3)
    async with open_lake(lake_redis, warm, cold, bodies=has_bodies) as made:
        yield made
