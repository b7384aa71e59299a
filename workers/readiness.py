"""Whether the stores that workers need answer, looked at now and then for ``/readyz``."""

from __future__ import annotations

import asyncio
from typing import Final

from chatserver.domain.jitter import jittered
from chatserver.errors import ChatError
from workers.parts import WorkerParts

INTERVAL_S: Final = 5.0
TIMEOUT_S: Final = 2.0


class Readiness:
    """What is in the way of the work, in words; nothing if the stores answer."""

    def __init__(self) -> None:
        self._trouble = "starting"

    def find_trouble(self) -> str:
        """Return what was found last. From any thread."""
        return self._trouble

    async def watch(self, parts: WorkerParts) -> None:
        """Look until cancelled; one read unit each time."""
        while True:
            self._trouble = await self._look(parts)
            await asyncio.sleep(jittered(INTERVAL_S))

    async def _look(self, parts: WorkerParts) -> str:
        if not parts.hot.is_up:
            return "no redis"
        if parts.hot.refusal:
            return parts.hot.refusal
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await parts.directory.check()
        except TimeoutError:
            return f"DynamoDB: no answer within {TIMEOUT_S:g} s"
        except ChatError as exc:
            return exc.message
        return ""
