"""Broadcasts: one message to many users, each in the direct chat with the system user.

The process that accepts a broadcast runs it and stores its progress in Redis. If the process dies,
a retry of the request with the same `ref` resumes the broadcast. No user gets the message twice,
because each message's reference is derived from the broadcast and the user.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence

import structlog

from chatserver.domain.ids import Ref, UserId
from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError, NotFound, Overloaded, Unavailable
from chatserver.hot.bus.job_progress import JobProgress, JobStatus, State

log = structlog.get_logger()

USERS_MAX = 1_000
JOBS_MAX = 4  # maximum concurrent broadcasts per process
IN_FLIGHT_MAX = 8
RECORD_EVERY = 25  # the progress is recorded after about this many users
ATTEMPTS_MAX = 4

# A function that sends a message to a user, only once per `ref`. Arguments: user, `ref`, body.
Deliver = Callable[[UserId, Ref, str], Awaitable[None]]


class Broadcasts:
    """Broadcast use case. One instance per process."""

    def __init__(self, jobs: JobProgress, deliver: Deliver) -> None:
        self._jobs = jobs
        self._deliver = deliver
        self._running: dict[str, asyncio.Task[None]] = {}

    async def start(self, requester: str, ref: str, users: Sequence[UserId], body: str) -> str:
        """Start or resume the requester's broadcast with this `ref`; return its job name.

        Guarantees:
            Idempotent while the progress is stored (a week): each user gets the message once.

        Raises:
            Overloaded: too many broadcasts are running in this process.
            Unavailable: the broadcast has not been started.
        """
        job = job_name(requester, ref)
        recipients = list(dict.fromkeys(users))
        if not await self._jobs.begin(job, len(recipients)):
            stored = await self._jobs.find(job)
            if stored is None or stored.state == "done" or not stored.is_stalled:
                return job
        if job not in self._running:
            if len(self._running) >= JOBS_MAX:
                raise Overloaded(
                    "too many broadcasts are running; try again later", retry_after_ms=5000
                )
            task = asyncio.create_task(self._run(job, recipients, body), name=f"broadcast-{job}")
            self._running[job] = task
            task.add_done_callback(lambda _: self._running.pop(job, None))
        return job

    async def get(self, job: str) -> JobStatus:
        """Return a broadcast's progress. Raises NotFound."""
        progress = await self._jobs.find(job)
        if progress is None:
            raise NotFound("broadcast: does not exist")
        return progress

    async def stop(self) -> None:
        """Stop all running broadcasts. A retry of the request resumes its broadcast."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, job: str, users: Sequence[UserId], body: str) -> None:
        done = failed = 0
        for start in range(0, len(users), IN_FLIGHT_MAX):
            chunk = users[start : start + IN_FLIGHT_MAX]
            outcomes = await asyncio.gather(*(self._deliver_to(job, user, body) for user in chunk))
            done += sum(outcomes)
            failed += len(chunk) - sum(outcomes)
            if (start // IN_FLIGHT_MAX) % (RECORD_EVERY // IN_FLIGHT_MAX) == 0:
                await self._record(job, done, failed, "running")
        await self._record(job, done, failed, "done")
        log.info("broadcast.finished", job=job, done=done, failed=failed)

    async def _deliver_to(self, job: str, user: UserId, body: str) -> bool:
        for attempts_left in reversed(range(ATTEMPTS_MAX)):
            try:
                await self._deliver(user, Ref(f"{job}-{digest(user)}"), body)
            except ChatError as exc:
                if exc.temporary and attempts_left:
                    await asyncio.sleep(add_jitter((exc.retry_after_ms or 1000) / 1000, 1.0, 2.0))
                    continue
                log.info("broadcast.delivery_failed", job=job, user=user, error=exc.message)
                return False
            return True
        raise AssertionError("the retry loop ended without a result")

    async def _record(self, job: str, done: int, failed: int, state: State) -> None:
        try:
            await self._jobs.record(job, done, failed, state)
        except Unavailable as exc:
            log.warning("broadcast.record_failed", job=job, error=exc.message)


def job_name(requester: str, ref: str) -> str:
    """Return the job name for the requester's broadcast with this `ref`."""
    return f"b-{digest(f'{requester}#{ref}')}"


def digest(text: str) -> str:
    """Return a short hash of `text` that is valid in an id."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
