"""DynamoDB with the throughput limits of AWS, for test folders: import `dynamodb` in conftest."""

from __future__ import annotations

import collections
import json
import urllib.request

import pytest


@pytest.fixture(scope="session")
def dynamodb(limited_dynamodb: str) -> str:
    """The endpoint of a DynamoDB that has the limits of AWS.

    Indexes have no lag and batches are complete; `tests/integration/dev` and the tests of the
    persist worker cover these.
    """
    return limited_dynamodb


def count_refusals(endpoint: str) -> collections.Counter[str]:
    """Return how many requests the proxy refused, by error code."""
    with urllib.request.urlopen(endpoint, timeout=20) as response:
        return collections.Counter(json.load(response))
