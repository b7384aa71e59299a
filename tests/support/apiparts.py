"""API container without any server, for routes that need none and for the OpenAPI document."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from chatserver.api.container import ApiContainer, open_api_parts
from chatserver.config import Settings
from chatserver.domain.clock import SystemClock
from chatserver.hot.redis.factory import make_hot


@contextlib.asynccontextmanager
async def open_offline_parts(settings: Settings) -> AsyncIterator[ApiContainer]:
    """Build the container; any access to a store raises Unavailable."""
    async with open_api_parts(settings, SystemClock(), make_hot(settings.redis)) as parts:
        yield parts
