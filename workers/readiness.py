"""Worker readiness for ``/readyz``: periodic checks of Redis and DynamoDB."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.aligned_sleep import sleep_aligned
from chatserver.errors import REDIS_DOWN, ChatError, Unavailable

log = structlog.get_logger()

INTERVAL_S: Final = 5.0
TIMEOUT_S: Final = 2.0


class Readiness:
    """Readiness of this process."""

    def __init__(self) -> None:
        self._problem = "starting"

    def find_problem(self) -> str:
        """Return the problem found by the last check, or "". Thread-safe."""
        return self._problem

    async def watch(self, container: StorageContainer) -> None:
        """Check periodically until cancelled. Cost: one read unit per check."""
        while True:
            error = await self._check(container)
            problem = "" if error is None else error.probe_message
            if error is not None and problem != self._problem:
                log.warning("worker.not_ready", error=error.message)
            self._problem = problem
            await sleep_aligned(INTERVAL_S)

    async def _check(self, container: StorageContainer) -> ChatError | None:
        if not container.hot.is_up:
            return Unavailable(f"redis at {container.hot.name}: not connected", public=REDIS_DOWN)
        if (error := container.hot.health.refusal_error) is not None:
            return error
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await container.directory.check()
        except TimeoutError:
            return Unavailable(f"DynamoDB: no response within {TIMEOUT_S:g} s")
        except ChatError as exc:
            return exc
        return None
