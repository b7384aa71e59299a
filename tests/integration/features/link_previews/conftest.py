"""A new web site for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.features.link_previews.support import Site, open_site
from tests.support.servers.limits import dynamodb

__all__ = ["dynamodb", "site"]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with open_site() as opened:
        yield opened
