"""Fixture that puts a folder of tests behind the limits of AWS: import it in its conftest."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def dynamodb(limited_dynamodb: str) -> str:
    """The endpoint of a DynamoDB that refuses as AWS does."""
    return limited_dynamodb
