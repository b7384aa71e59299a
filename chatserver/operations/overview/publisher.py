"""Process statistics, published every two seconds for the admin page."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.errors import ChatError
from chatserver.operations.overview.hot import ProcessStatsLog
from chatserver.telemetry.process_stats import EVERY_S, Kind, Snapshot
from chatserver.telemetry.stats_collector import StatsCollector

log = structlog.get_logger()

PUBLISH_TIMEOUT_S: Final = 2.0
HOST_CHARS_MAX: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Kind of this process, and the names of its workers (`does`)."""

    kind: Kind
    does: str = ""


FindMore = Callable[[], Awaitable[dict[str, Any]]]


class Publisher:
    """Publishes snapshots of the statistics of this process.

    `find_more()` returns the `Snapshot` fields that are not metrics; it may raise Unavailable.
    """

    def __init__(
        self,
        *,
        identity: ProcessIdentity,
        stats_log: ProcessStatsLog,
        clock: Clock,
        find_more: FindMore | None = None,
    ) -> None:
        self._identity = identity
        self._stats_log = stats_log
        self._clock = clock
        self._find_more = find_more
        self._reader = StatsCollector()
        self._process = new_id().lower()
        self._host = socket.gethostname()[:HOST_CHARS_MAX]
        self._started_ms = int(clock.time() * 1000)
        self._last = clock.monotonic()

    async def collect(self) -> Snapshot:
        """Return the statistics of this process since the last call.

        Raises:
            Unavailable: `find_more` failed.
        """
        found_more = {} if self._find_more is None else await self._find_more()
        now = self._clock.monotonic()
        span_s, self._last = now - self._last, now
        stats = self._reader.collect()
        return Snapshot(
            kind=self._identity.kind,
            does=self._identity.does,
            host=self._host,
            pid=os.getpid(),
            started_ms=self._started_ms,
            span_s=max(span_s, 0.001),
            gauges=stats.gauges,
            counts=stats.counts,
            times=stats.times,
            **found_more,
        )

    async def publish(self) -> None:
        """Publish one snapshot.

        Raises:
            Unavailable, TimeoutError: Redis does not respond; the snapshot is lost.
        """
        async with asyncio.timeout(PUBLISH_TIMEOUT_S):
            await self._stats_log.append(self._process, await self.collect())

    async def run(self) -> None:
        """Publish until cancelled. While Redis is down, the charts have a gap."""
        is_published = True
        while True:
            # Sleep first: at startup, rates would be computed over a near-zero interval.
            await asyncio.sleep(EVERY_S)
            try:
                await self.publish()
                is_published = True
            except (ChatError, TimeoutError) as exc:
                if is_published:
                    log.warning("process_stats.publish_failed", error=str(exc) or "timed_out")
                is_published = False


@contextlib.asynccontextmanager
async def publish(publisher: Publisher) -> AsyncIterator[None]:
    task = asyncio.create_task(publisher.run(), name="process-stats")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
