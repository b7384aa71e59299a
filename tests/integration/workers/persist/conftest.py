"""Runs these tests with the throughput limits of AWS and partial batches."""

import pytest


@pytest.fixture(scope="session")
def dynamodb(partial_dynamodb: str) -> str:
    """The endpoint of a DynamoDB with AWS limits that leaves some items unprocessed."""
    return partial_dynamodb
