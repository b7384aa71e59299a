"""Job worker for exports and erasures: claims a job, renews its lease, and retries after a crash.

::

    waiting jobs ─► claim for `LEASE_S` ─► work, lease renewed meanwhile ─► finish
                        ▲                      │ store unavailable           │
                        └── later, any worker ─┴── error in the work ────────┴─► failed, with reason

If a worker is killed, its lease expires within `LEASE_S`. If a worker is suspended for longer than
that, its writes to the job fail, and its work is cancelled at the next renewal.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.aligned_sleep import sleep_aligned
from chatserver.domain.clock import get_now_ms
from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError, ClientError, Unavailable
from chatserver.features.privacy.container import PrivacyContainer
from chatserver.features.privacy.model import Job, Kind
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.task_groups import open_task_group

log = structlog.get_logger()

LEASE_S = 60.0
POLL_S = 10.0

BACKOFF_S_MAX = 60.0
FAILED_RETENTION_S = 30 * 86_400
PERSISTED_POLL_S = 0.1
PERSISTED_WAIT_S_MAX = 60.0


class JobLost(Unavailable):
    """Another worker has claimed the job, or the job was deleted."""


class ClaimedJob:
    """A job that this worker has leased."""

    def __init__(self, container: StorageContainer, job: Job) -> None:
        self.job = job
        self._container = container
        self._rows = container.get(PrivacyContainer).jobs
        self._hold_ms = int(LEASE_S * 1000)

    async def update(self, **changes: Any) -> None:
        """Update the job and renew its lease. Raises JobLost."""
        now_ms = get_now_ms(self._container.clock)
        changes |= {"until_ms": now_ms + self._hold_ms, "changed_ms": now_ms}
        if not await self._rows.update(self.job, **changes):
            raise JobLost(f"job {self.job.id}: claimed by another worker")

    async def renew_lease(self) -> None:
        """Renew the lease until cancelled. Raises JobLost."""
        while True:
            await asyncio.sleep(self._hold_ms / 3000)
            await self.update()

    async def finish(self, **changes: Any) -> None:
        """Store the final state of the job. Raises JobLost."""
        if not await self._rows.finish(
            self.job, **changes, changed_ms=get_now_ms(self._container.clock)
        ):
            raise JobLost(f"job {self.job.id}: claimed by another worker, or deleted")

    async def fail(self, reason: str) -> None:
        """Mark the job as failed, with a reason. Raises JobLost."""
        expires_at = get_now_ms(self._container.clock) // 1000 + FAILED_RETENTION_S
        await self.finish(state="failed", why=reason[:500], expires_at=expires_at)

    async def release(self) -> None:
        """Release the lease, so that another worker can claim the job immediately."""
        await self._rows.update(self.job, until_ms=0)

    async def postpone(self, reason: str) -> None:
        """Release the job for a retry, with exponential backoff."""
        pause_s = add_jitter(min(BACKOFF_S_MAX, 0.5 * 2 ** min(self.job.tries, 10)))
        until_ms = get_now_ms(self._container.clock) + int(pause_s * 1000)
        await self._rows.update(self.job, until_ms=until_ms, why=reason[:500])


@attrs.define(eq=False, repr=False, kw_only=True)
class JobWorker:
    """Runs jobs of one kind, one at a time. `tries_max` is None for unlimited attempts."""

    _container: StorageContainer
    _owner: str
    _kind: Kind
    _work: Callable[[ClaimedJob], Awaitable[None]]
    _tries_max: int | None

    async def run(self) -> None:
        """Run jobs until cancelled.

        Raises:
            Unavailable: DynamoDB is unavailable; restart the worker.
        """
        while True:
            if not await self.step():
                await sleep_aligned(POLL_S)

    async def step(self) -> bool:
        """Claim and run one job; return False if none is available."""
        rows = self._container.get(PrivacyContainer).jobs
        for id_ in await rows.list_waiting(self._kind):
            now_ms = get_now_ms(self._container.clock)
            job = await rows.claim(id_, self._owner, now_ms, int(LEASE_S * 1000))
            if job is not None:
                await self._run_job(ClaimedJob(self._container, job))
                return True
        return False

    async def _run_job(self, claimed: ClaimedJob) -> None:
        job = claimed.job
        log.info("job.started", kind=job.kind, user=job.user, tries=job.tries)
        if self._tries_max is not None and job.tries > self._tries_max:
            reason = job.why or "the export failed"
            await claimed.fail(f"{reason}; try again, or contact the administrator")
            return
        try:
            async with _hold_lease(claimed):
                await self._work(claimed)
        except asyncio.CancelledError:
            with contextlib.suppress(ChatError):  # the lease expires anyway
                await claimed.release()
            raise
        except JobLost as exc:
            log.warning("job.claim_lost", kind=job.kind, user=job.user, error=exc.message)
        except ClientError as exc:
            if self._tries_max is None:
                await claimed.postpone(exc.public_message)
            else:
                await claimed.fail(exc.public_message)
            log.warning("job.failed", kind=job.kind, user=job.user, error=exc.message)
        except ChatError as exc:
            await claimed.postpone(exc.public_message)
            log.warning("job.postponed", kind=job.kind, user=job.user, error=exc.message)
        else:
            log.info("job.finished", kind=job.kind, user=job.user)


@contextlib.asynccontextmanager
async def _hold_lease(claimed: ClaimedJob) -> AsyncIterator[None]:
    """Renew the lease of a job during the block; cancel the block if the lease is lost."""
    async with open_task_group() as group:
        renewal = group.create_task(claimed.renew_lease(), name=f"keep-{claimed.job.id}")
        yield
        renewal.cancel()


async def wait_until_persisted(container: StorageContainer) -> None:
    """Wait until the warm tier has all entries that were committed before the call.

    Raises:
        Unavailable: the wait exceeded `PERSISTED_WAIT_S_MAX`.
    """
    backlogs = [Backlog(container.hot, number) for number in range(container.hot.keys.partitions)]
    newest = [await backlog.get_newest() for backlog in backlogs]
    try:
        async with asyncio.timeout(PERSISTED_WAIT_S_MAX):
            for backlog, entry in zip(backlogs, newest, strict=True):
                while not await backlog.is_persisted(entry):  # noqa: ASYNC110  # another process does it
                    await asyncio.sleep(PERSISTED_POLL_S)
    except TimeoutError:
        raise Unavailable(
            "messages were not persisted in time; check that `chatserver worker persist` is running"
        ) from None
