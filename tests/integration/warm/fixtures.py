"""Fixtures of the warm tier's tests: tables of their own on the test run's DynamoDB."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import stamina

from chatserver.config import Warm
from chatserver.warm.dynamo.client import open_dynamodb
from chatserver.warm.schema.provisioning import apply_tables
from tests.integration.warm.support import Faults, Tables, settings_for
from tests.support.constants import constants


@pytest.fixture
def warm_settings(dynamodb: str) -> Warm:
    """Settings for the test run's DynamoDB, with tables of the test's own."""
    return settings_for(dynamodb)


@pytest.fixture
async def bare(warm_settings: Warm) -> AsyncIterator[Tables]:
    """A client without tables."""
    async with open_dynamodb(warm_settings) as client:
        yield Tables(client, warm_settings, Faults(client))


@pytest.fixture
async def tables(bare: Tables) -> Tables:
    """A client with the four tables, empty."""
    await apply_tables(bare.client, bare.settings, poll_s=0.01)
    bare.faults.requests.clear()
    return bare


@pytest.fixture
def no_backoff() -> Iterator[None]:
    """Attempts follow each other at once; their number is that of the product."""
    with (
        constants({"chatserver.warm.dynamo.client.RETRY_WAIT_S": 0}),
        stamina.set_testing(True, attempts=100, cap=True),
    ):
        yield
