"""Fixtures of the hot tier's tests on an empty Redis: the scripts and a connected client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from tests.integration.hot.support import Scripts, redis_settings
from tests.support.servers.processes import redis_client


@pytest.fixture
def scripts(redis_url: str) -> Iterator[Scripts]:
    """The scripts, with one partition."""
    with redis_client(redis_url) as client:
        yield Scripts(client)


@pytest.fixture
async def hot(redis_url: str) -> AsyncIterator[HotClient]:
    """A connected client with one partition."""
    async with open_hot(redis_settings(redis_url)) as client:
        yield client
