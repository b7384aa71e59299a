"""These tests use a DynamoDB that enforces the limits of AWS and returns partial batches."""

import pytest


@pytest.fixture(scope="session")
def dynamodb(partial_dynamodb: str) -> str:
    """The endpoint of a DynamoDB with the limits of AWS and with unprocessed items."""
    return partial_dynamodb
