"""Fixtures of the push tests: the tables are created once, and each test has its own users.

The DynamoDB has the throughput limits of AWS.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from chatserver.config import Warm
from tests.integration.features.push.support import PushWorld, open_push_world
from tests.integration.warm.support import create_tables, settings_for
from tests.support.servers.limits import dynamodb
from tests.support.servers.push_service import PushService, open_push_service

__all__ = ["dynamodb"]
_tables: dict[str, Warm] = {}


@pytest.fixture
def push_warm(dynamodb: str) -> Warm:
    """The settings with the tables of these tests."""
    if dynamodb not in _tables:
        settings = settings_for(dynamodb)
        create_tables(settings)
        _tables[dynamodb] = settings
    return _tables[dynamodb]


@pytest.fixture
async def push_service() -> AsyncIterator[PushService]:
    async with open_push_service() as made:
        yield made


@pytest.fixture
async def world(
    redis_url: str, push_warm: Warm, push_service: PushService
) -> AsyncIterator[PushWorld]:
    """Three users, and the container of a worker."""
    async with open_push_world(redis_url, push_warm, push_service) as made:
        yield made


@pytest.fixture
async def notifier(world: PushWorld) -> AsyncIterator[None]:
    """A notify worker that runs during the test."""
    async with world.running_worker():
        yield
