"""The deployment of the tenant tests."""

from __future__ import annotations

import pytest_asyncio

from chatserver.config import Settings
from tests.integration.operations.tenants.support import make_settings


@pytest_asyncio.fixture
async def settings(redis_url: str, dynamodb: str, s3: str) -> Settings:
    """Tables, a bucket and an empty Redis."""
    return await make_settings(redis_url, dynamodb, s3)
