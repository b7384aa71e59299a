"""The API's parts without any server: for routes that need none, and for the OpenAPI document."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from chatserver.api.parts import ApiParts, open_api_parts
from chatserver.config import Settings
from chatserver.domain.clock import SystemClock
from chatserver.hot.client import make_hot


@contextlib.asynccontextmanager
async def open_offline_parts(settings: Settings) -> AsyncIterator[ApiParts]:
    """Put the parts together; whatever asks a store is answered Unavailable."""
    async with open_api_parts(settings, SystemClock(), make_hot(settings.redis)) as parts:
        yield parts
