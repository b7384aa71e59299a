"""Progress of the HTTP API's long-running jobs.

Data: ``{pN}:job:<job>`` (hash): ``total``, ``done``, ``failed``, ``state``, and ``at``, the time of
the last update (ms). If a running job has had no update for `STALLED_S`, its process is considered
dead. The next request for the job then resumes it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId
from chatserver.hot.redis.client import HotClient

TTL_S = 604_800
STALLED_S = 30.0

State = Literal["running", "done"]


class JobStatus(NamedTuple):
    """State of a job. `is_stalled`: the process that runs the job is considered dead."""

    state: State
    total: int
    done: int
    failed: int
    is_stalled: bool


class JobProgress:
    """Reads and writes job progress."""

    def __init__(self, hot: HotClient, clock: Clock) -> None:
        self._hot = hot
        self._clock = clock

    async def begin(self, job: str, total: int) -> bool:
        """Record the start of a job; return False if it already exists. Raises Unavailable."""
        key = self._hot.keys.job(UserId(job))
        is_new = bool(await self._hot.call("HSETNX", key, "total", total))
        if is_new:
            await self.record(job, 0, 0, "running")
        return is_new

    async def record(self, job: str, done: int, failed: int, state: State) -> None:
        """Store the progress of a job. Raises Unavailable."""
        key, now_ms = self._hot.keys.job(UserId(job)), int(self._clock.time() * 1000)
        fields = ("done", done, "failed", failed, "state", state, "at", now_ms)
        await self._hot.transaction(("HSET", key, *fields), ("EXPIRE", key, TTL_S))

    async def find(self, job: str) -> JobStatus | None:
        """Return the progress of a job; None if there is no such job. Raises Unavailable."""
        key = self._hot.keys.job(UserId(job))
        fields = ("state", "total", "done", "failed", "at")
        state, *numbers = await self._hot.call("HMGET", key, *fields)
        total, done, failed, at_ms = (int(number or 0) for number in numbers)
        if not total:
            return None
        is_stalled = self._clock.time() - at_ms / 1000 > STALLED_S
        return JobStatus(
            cast(State, (state or b"running").decode()), total, done, failed, is_stalled
        )
