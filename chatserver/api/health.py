"""Is the process alive, is it ready."""

from __future__ import annotations

import asyncio

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler

from chatserver.api.parts import ApiParts
from chatserver.api.security import ANYONE
from chatserver.errors import ChatError, Unavailable

READY_TIMEOUT_S = 2.0
READY_FOR_S = 1.0  # whoever asks more often costs DynamoDB nothing


class Health(msgspec.Struct, frozen=True):
    """`status` is ``ok``; a process that cannot say so answers with a problem or not at all."""

    status: str = "ok"


def health_routes(parts: ApiParts) -> list[HTTPRouteHandler]:
    """Return ``/healthz`` and ``/readyz``."""

    @get("/healthz", opt={"rule": ANYONE})
    async def get_health() -> Health:
        """Say that the process lives."""
        return Health()

    seen_at = float("-inf")

    @get("/readyz", opt={"rule": ANYONE})
    async def get_readiness() -> Health:
        """Say that requests are welcome: Redis and DynamoDB answered less than a second ago."""
        nonlocal seen_at
        now = parts.clock.monotonic()
        if now - seen_at >= READY_FOR_S:
            await _check(parts)
            seen_at = now
        return Health()

    return [get_health, get_readiness]


async def _check(parts: ApiParts) -> None:
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await parts.hot.call("EXISTS", parts.hot.keys.epoch(0))
            if parts.hot.refusal:
                raise Unavailable(parts.hot.refusal)
            await parts.directory.check()
    except (ChatError, TimeoutError) as exc:
        # A table that is missing is an error of the settings to us; to who asks, we are not ready.
        what = exc.message if isinstance(exc, ChatError) else "a store is too slow"
        raise Unavailable(what) from exc
