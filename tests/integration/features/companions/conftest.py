"""Fixtures of the companion tests, with the throughput limits of AWS."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    open_assistant_world,
)
from tests.integration.features.companions.model_fixtures import (
    bedrock,
    bedrock_server,
    model,
    openai,
    openai_server,
)
from tests.integration.warm.support import Tables
from tests.support.servers.limits import dynamodb

__all__ = ["bedrock", "bedrock_server", "dynamodb", "model", "openai", "openai_server"]


@pytest.fixture
async def world(redis_url: str, tables: Tables) -> AsyncIterator[AssistantWorld]:
    """A user and an assistant worker."""
    async with open_assistant_world(redis_url, tables.settings) as made:
        yield made
