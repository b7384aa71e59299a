"""Liveness and readiness probes."""

from __future__ import annotations

import asyncio

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler

from chatserver.api.authorization import ANYONE
from chatserver.container.storage import StorageContainer
from chatserver.errors import ChatError, Unavailable

READY_TIMEOUT_S = 2.0
READY_FOR_S = 1.0  # a readiness result is cached for this long, to limit the calls to data stores


class Health(msgspec.Struct, frozen=True):
    """`status` is ``ok``; an unhealthy process returns problem details or does not respond."""

    status: str = "ok"


def build_health_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/healthz", opt={"rule": ANYONE, "is_probe": True})
    async def get_health() -> Health:
        """Report that the process is alive."""
        return Health()

    seen_at = float("-inf")
    problem: ChatError | None = None
    checking = asyncio.Lock()  # allows one check at a time; concurrent probes wait for its result

    @get("/readyz", opt={"rule": ANYONE, "is_probe": True})
    async def get_readiness() -> Health:
        """Report readiness: Redis and DynamoDB responded less than a second ago."""
        nonlocal seen_at, problem
        async with checking:
            if container.clock.monotonic() - seen_at >= READY_FOR_S:
                problem = await _find_problem(container)
                seen_at = container.clock.monotonic()
        if problem is not None:
            raise Unavailable(problem.message, public=problem.probe_message)
        return Health()

    return [get_health, get_readiness]


async def _find_problem(container: StorageContainer) -> ChatError | None:
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await container.hot.call("EXISTS", container.hot.keys.epoch(0))
            if (error := container.hot.health.refusal_error) is not None:
                return error
            await container.directory.check()
    except TimeoutError:
        return Unavailable("a data store is too slow")
    except ChatError as exc:  # a missing table is a ConfigError; report it as not ready
        return exc
    return None
