"""Process statistics, published every two seconds for the admin page."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
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


FindMore = Callable[[], Awaitable[dict[str, Any]]]


@attrs.define(eq=False, repr=False, kw_only=True)
class Publisher:
    """Publishes snapshots of the statistics of this process.

    `does` has the names of its workers. `find_more()` returns the `Snapshot` fields that are not
    metrics; it may raise Unavailable.
    """

    _kind: Kind
    _does: str = ""
    _stats_log: ProcessStatsLog
    _clock: Clock
    _find_more: FindMore
    _reader: StatsCollector = attrs.field(factory=StatsCollector, init=False)
    _process: str = attrs.field(factory=lambda: new_id().lower(), init=False)
    _started: float = attrs.field(init=False)
    _last: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._started, self._last = self._clock.time(), self._clock.monotonic()

    async def collect(self) -> Snapshot:
        """Return the statistics of this process since the last call.

        Raises:
            Unavailable: `find_more` failed.
        """
        found_more = await self._find_more()
        now = self._clock.monotonic()
        span_s, self._last = now - self._last, now
        return Snapshot(
            kind=self._kind,
            does=self._does,
            host=socket.gethostname()[:HOST_CHARS_MAX],
            pid=os.getpid(),
            started_ms=int(self._started * 1000),
            span_s=max(span_s, 0.001),
            **self._reader.collect()._asdict(),
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
