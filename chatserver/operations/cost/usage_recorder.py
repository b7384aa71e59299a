"""Records the DynamoDB usage of this process in the totals shared by all processes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Final

import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.errors import Unavailable
from chatserver.operations.cost.hot import UsageTotals
from chatserver.telemetry.dynamodb_usage import Part, UsageAccumulator

log = structlog.get_logger()

FLUSH_S: Final = 10.0
LAST_TIMEOUT_S: Final = 2.0


class UsageRecorder:
    """Adds this process's usage to the shared totals."""

    def __init__(self, usage: UsageAccumulator, totals: UsageTotals, clock: Clock) -> None:
        self._usage = usage
        self._totals = totals
        self._clock = clock
        self._process = new_id()
        self._number = 0
        self._waiting: Part | None = None  # usage sent to Redis, but not confirmed

    async def flush(self) -> None:
        """Add the usage since the last flush.

        Guarantees:
            Nothing is counted twice: if the response is lost, the next call first sends the same
            usage again. Later usage stays in the accumulator, which is bounded.
            Cancellation: safe.

        Raises:
            Unavailable: Redis does not respond; retry later.
        """
        while True:
            if self._waiting is None:
                spending = self._usage.drain()
                if spending.is_empty:
                    return
                self._number += 1
                self._waiting = Part(self._process, self._number, self._get_day(), spending)
            await self._totals.add(self._waiting)
            self._waiting = None

    def _get_day(self) -> str:
        return datetime.datetime.fromtimestamp(self._clock.time(), datetime.UTC).date().isoformat()

    async def run(self) -> None:
        """Flush periodically until cancelled, even if Redis is temporarily down."""
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                await self.flush()
            except Unavailable as exc:
                log.warning("cost.flush_failed", error=exc.message)


@contextlib.asynccontextmanager
async def record_usage(
    usage: UsageAccumulator, totals: UsageTotals, clock: Clock
) -> AsyncIterator[None]:
    """Record usage while the block runs, and flush the remaining usage at the end."""
    recorder = UsageRecorder(usage, totals, clock)
    task = asyncio.create_task(recorder.run(), name="cost")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        try:
            async with asyncio.timeout(LAST_TIMEOUT_S):
                await recorder.flush()
        except (Unavailable, TimeoutError) as exc:
            log.warning("cost.flush_failed", error=str(exc))
