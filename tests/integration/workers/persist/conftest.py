"""Fixtures of the persist tests, with throughput limits of AWS and partial batches."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.servers.dynamodb_proxy import DynamoProxy


@pytest.fixture(scope="session")
def dynamodb(partial_dynamodb: str) -> str:
    """The endpoint of a DynamoDB with AWS limits that leaves some items unprocessed."""
    return partial_dynamodb


@pytest.fixture
async def fault_proxy(dynamodb: str) -> AsyncIterator[DynamoProxy]:
    """A fault-injecting proxy in front of DynamoDB."""
    async with DynamoProxy(dynamodb) as made:
        yield made
