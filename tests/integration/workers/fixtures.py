"""Fixtures of the worker tests: worker components on an empty Redis and new tables."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from chatserver.container.storage import StorageContainer
from tests.integration.warm.support import Tables
from tests.integration.workers.support import Gateway, open_container, running


@pytest.fixture
async def container(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """The components of a worker process."""
    async with open_container(redis_url, tables.settings) as made:
        yield made


@pytest.fixture
async def gateway(container: StorageContainer) -> AsyncIterator[Gateway]:
    """A gateway that reads its gateway stream."""
    made = Gateway(container.hot)
    async with running(made.listen(), "gateway"):
        await made._gateway_stream.renew()
        yield made
