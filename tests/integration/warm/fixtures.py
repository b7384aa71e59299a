"""Fixtures of the warm tier's tests: separate tables on the DynamoDB of the test run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import stamina

from chatserver.config import Warm
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.integration.warm.support import Faults, Tables, create_tables, settings_for
from tests.support.constants import constants


@pytest.fixture
def warm_settings(dynamodb: str) -> Warm:
    """Settings for the DynamoDB of the test run, with a new table prefix for each test."""
    return settings_for(dynamodb)


@pytest.fixture
async def bare(warm_settings: Warm) -> AsyncIterator[Tables]:
    """A client whose tables do not exist yet."""
    async with open_dynamodb(warm_settings) as client:
        yield Tables(client, warm_settings, Faults(client))


@pytest.fixture
def tables(bare: Tables) -> Tables:
    """A client with the four tables, which are empty."""
    create_tables(bare.settings)
    return bare


@pytest.fixture
def no_backoff() -> Iterator[None]:
    """Retry without a pause. The number of attempts is unchanged."""
    with (
        constants({"chatserver.warm.dynamo.client.RETRY_WAIT_S": 0}),
        stamina.set_testing(True, attempts=100, cap=True),
    ):
        yield
