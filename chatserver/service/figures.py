"""Says every other second how this process is, for the admin page."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Protocol

import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.figures import EVERY_S, Kind, Snapshot
from chatserver.domain.ids import new_id
from chatserver.errors import ChatError
from chatserver.telemetry.figures import FigureReader

log = structlog.get_logger()

SAY_TIMEOUT_S: Final = 2.0
HOST_CHARS_MAX: Final = 64


class Figures(Protocol):
    """Where it is said."""

    async def append(self, process: str, snapshot: Snapshot) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Who:
    """Which process this is; `does` are its workers."""

    kind: Kind
    does: str = ""


FindMore = Callable[[], Awaitable[dict[str, Any]]]


class Publisher:
    """Says it. `find_more()` gives fields of `Snapshot` besides the metrics, and may fail."""

    def __init__(
        self,
        who: Who,
        figures: Figures,
        clock: Clock,
        find_more: FindMore | None = None,
    ) -> None:
        self._who = who
        self._figures = figures
        self._clock = clock
        self._find_more = find_more
        self._reader = FigureReader()
        self._process = new_id().lower()
        self._host = socket.gethostname()[:HOST_CHARS_MAX]
        self._started_ms = int(clock.time() * 1000)
        self._last = clock.monotonic()

    async def take(self) -> Snapshot:
        """Return how the process is, with what came in since the last call.

        Raises:
            Unavailable: what is to be told besides the metrics cannot be found out.
        """
        more = {} if self._find_more is None else await self._find_more()
        now = self._clock.monotonic()
        span_s, self._last = now - self._last, now
        taken = self._reader.take()
        return Snapshot(
            kind=self._who.kind,
            does=self._who.does,
            host=self._host,
            pid=os.getpid(),
            started_ms=self._started_ms,
            span_s=max(span_s, 0.001),
            gauges=taken.gauges,
            counts=taken.counts,
            times=taken.times,
            **more,
        )

    async def say(self) -> None:
        """Say it once.

        Raises:
            Unavailable: Redis does not answer; what came in meanwhile is told of nowhere.
            TimeoutError: nor in time.
        """
        async with asyncio.timeout(SAY_TIMEOUT_S):
            await self._figures.append(self._process, await self.take())

    async def run(self) -> None:
        """Say it until cancelled. While Redis is away there is a hole in the charts."""
        is_heard = True
        while True:
            # First of all: what comes in at the start would be a rate of a moment.
            await asyncio.sleep(EVERY_S)
            try:
                await self.say()
                is_heard = True
            except (ChatError, TimeoutError) as exc:
                if is_heard:
                    log.warning("figures.not_said", error=str(exc) or "no answer in time")
                is_heard = False


@contextlib.asynccontextmanager
async def publish(publisher: Publisher) -> AsyncIterator[None]:
    """Publish while the block runs."""
    task = asyncio.create_task(publisher.run(), name="figures")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
