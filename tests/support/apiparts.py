"""An API container without servers, for routes that need none and for the OpenAPI document."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from chatserver.config import Settings
from chatserver.container.storage import StorageContainer, open_storage_container
from chatserver.domain.clock import SystemClock
from chatserver.hot.redis.factory import make_hot


@contextlib.asynccontextmanager
async def open_offline_container(settings: Settings) -> AsyncIterator[StorageContainer]:
    """Build the container; any access to a store raises Unavailable."""
    # The AWS SDK would request credentials from the network.
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    hot = make_hot(settings.redis)
    async with open_storage_container(
        role="api", settings=settings, clock=SystemClock(), hot=hot
    ) as container:
        yield container
