"""These tests run behind the limits of AWS, with partial batches."""

import pytest


@pytest.fixture(scope="session")
def dynamodb(partial_dynamodb: str) -> str:
    """The endpoint of a DynamoDB that refuses as AWS does, and processes batches in part."""
    return partial_dynamodb
