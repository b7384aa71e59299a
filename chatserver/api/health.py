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
READY_FOR_S = 1.0  # asking more often costs the stores nothing, whatever the answer


class Health(msgspec.Struct, frozen=True):
    """`status` is ``ok``; a process that cannot say so answers with a problem or not at all."""

    status: str = "ok"


def health_routes(parts: ApiParts) -> list[HTTPRouteHandler]:
    """Return ``/healthz`` and ``/readyz``."""

    @get("/healthz", opt={"rule": ANYONE, "is_probe": True})
    async def get_health() -> Health:
        """Say that the process lives."""
        return Health()

    seen_at = float("-inf")
    trouble: str | None = None
    checking = asyncio.Lock()  # one check at a time, however many ask

    @get("/readyz", opt={"rule": ANYONE, "is_probe": True})
    async def get_readiness() -> Health:
        """Say that requests are welcome: Redis and DynamoDB answered less than a second ago."""
        nonlocal seen_at, trouble
        async with checking:
            if parts.clock.monotonic() - seen_at >= READY_FOR_S:
                trouble = await _find_trouble(parts)
                seen_at = parts.clock.monotonic()
        if trouble is not None:
            raise Unavailable(trouble)
        return Health()

    return [get_health, get_readiness]


async def _find_trouble(parts: ApiParts) -> str | None:
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await parts.hot.call("EXISTS", parts.hot.keys.epoch(0))
            if parts.hot.refusal:
                return parts.hot.refusal
            await parts.directory.check()
    except TimeoutError:
        return "a store is too slow"
    except ChatError as exc:  # a missing table is a ConfigError; to the prober, we are not ready
        return exc.message
    return None
