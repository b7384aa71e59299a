"""Records the DynamoDB usage of this process in the totals shared by all processes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Final

import attrs
import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.errors import Unavailable
from chatserver.operations.cost.hot import UsageTotals
from chatserver.task_groups import run_in_background
from chatserver.telemetry.dynamodb_usage import Part, UsageAccumulator

log = structlog.get_logger()

FLUSH_S: Final = 10.0
LAST_TIMEOUT_S: Final = 2.0


@attrs.define(eq=False, repr=False)
class UsageRecorder:
    """Adds this process's usage to the shared totals."""

    _usage: UsageAccumulator
    _totals: UsageTotals
    _clock: Clock
    _process: str = attrs.field(factory=new_id, init=False)
    _number: int = attrs.field(default=0, init=False)
    # usage sent to Redis, but not confirmed
    _waiting: Part | None = attrs.field(default=None, init=False)

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
    try:
        async with run_in_background(recorder.run(), name="cost"):
            yield
    finally:
        try:
            async with asyncio.timeout(LAST_TIMEOUT_S):
                await recorder.flush()
        except (Unavailable, TimeoutError) as exc:
            log.warning("cost.flush_failed", error=str(exc))
