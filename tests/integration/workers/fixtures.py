"""Fixtures of the workers' tests: their parts on an empty Redis and tables of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.warm.support import Tables
from tests.integration.workers.support import Gateway, open_parts, running
from workers.container import WorkerContainer


@pytest.fixture
async def parts(redis_url: str, tables: Tables) -> AsyncIterator[WorkerContainer]:
    """The parts of a worker process."""
    async with open_parts(redis_url, tables.settings) as made:
        yield made


@pytest.fixture
async def gateway(parts: WorkerContainer) -> AsyncIterator[Gateway]:
    """A gateway that listens to its mail."""
    made = Gateway(parts.hot)
    async with running(made.listen(), "gateway"):
        await made._mailbox.renew()
        yield made
