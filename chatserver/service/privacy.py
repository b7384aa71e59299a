"""A copy of what a user has here, and that it goes: asked for here, done by workers.

An erasure begins with what cannot wait. In one transaction the user's row becomes a tombstone and
the job is there; then every login ends and every socket is closed (`Closing`). From then on nobody
gets in as this user, by whatever token, now or later: the tombstone stays, and it is banned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

import structlog

from chatserver.config import Privacy as Settings
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId
from chatserver.domain.logins import Marks
from chatserver.domain.privacy import Job, new_job_id
from chatserver.errors import Forbidden, NotFound
from chatserver.service.revoking import Ender, MarkWriter

log = structlog.get_logger()

NO_EXPORT = "export: none was asked for, or its time is over"


class JobStore(Protocol):
    """Where jobs are kept."""

    async def create_export(self, job: Job, per_day_max: int) -> None: ...

    async def create_erasure(self, job: Job) -> str: ...

    async def find(self, id_: str) -> Job | None: ...

    async def find_export_of(self, user: str) -> Job | None: ...


class AccountRows(Protocol):
    """The directory."""

    async def list_logins(self, user: str) -> Sequence[Any]: ...


class Boxes(Protocol):
    """What Redis knows of users."""

    async def remove_box(self, user: UserId) -> None: ...


class Closing:
    """Puts a user out for good, whose row is a tombstone already."""

    def __init__(
        self,
        rows: AccountRows,
        marks: MarkWriter,
        ender: Ender,
        boxes: Boxes,
        clock: Clock,
    ) -> None:
        self._rows = rows
        self._marks = marks
        self._ender = ender
        self._boxes = boxes
        self._clock = clock

    async def close(self, user: UserId) -> int:
        """End all that lets the user in; return how many logins there were.

        Guarantees:
            Idempotent. When it returns, no request and no hello of the user passes, and each
            gateway has mail to close the user's sockets.

        Raises:
            Unavailable: some may go on; do it again.
        """
        now = self._clock.time()
        logins = frozenset(row.login for row in await self._rows.list_logins(user))
        await self._marks.put(user, before=int(now), logins=logins, is_banned=True)
        await self._ender.end(user, Marks(int(now), logins, is_banned=True), "erased")
        # Who acts on behalf of the user is told from now on that there is none.
        await self._boxes.remove_box(user)
        return len(logins)


class Privacy:
    """The use cases of the API. `reserved`: users that the installation itself needs.

    `sign`: makes an address of an export's ZIP.
    """

    def __init__(
        self,
        jobs: JobStore,
        closing: Closing,
        sign: Callable[[Job, int], Awaitable[str]],
        settings: Settings,
        clock: Clock,
        reserved: Collection[str] = (),
    ) -> None:
        self._jobs = jobs
        self._closing = closing
        self._sign = sign
        self._settings = settings
        self._clock = clock
        self._reserved = frozenset(reserved)

    # exports

    async def start_export(self, user: UserId) -> Job:
        """Have a copy made of what a user has here.

        Raises:
            Conflict: one is being made.
            RateLimited: there were as many today as there may be.
        """
        now_ms = self._now_ms()
        job = Job(new_job_id(), "export", user, now_ms, now_ms)
        await self._jobs.create_export(job, self._settings.exports_per_day_max)
        log.info("privacy.export_asked_for", user=user)
        return job

    async def get_export(self, user: UserId) -> tuple[Job, str | None]:
        """Return the newest export of a user, and, if it is ready, where it can be loaded from.

        Raises:
            NotFound: there is none, or no more.
        """
        job = await self._jobs.find_export_of(user)
        is_over = job is not None and job.expires_at is not None
        if job is None or (is_over and (job.expires_at or 0) <= self._clock.time()):
            raise NotFound(NO_EXPORT)
        if job.state != "ready":
            return job, None
        return job, await self._sign(job, self._settings.link_s)

    # erasures

    def check_fresh(self, issued_at: int) -> None:
        """Let somebody pass whose token was made a moment ago.

        Raises:
            Forbidden: it is older.
        """
        if self._clock.time() - issued_at > self._settings.fresh_s:
            seconds = self._settings.fresh_s
            raise Forbidden(f"token: must be at most {seconds} s old for this: get a new one")

    async def erase(self, user: UserId) -> Job:
        """Have all taken away that there is of a user, and put the user out at once.

        Guarantees:
            Idempotent: of a user who is erased it is the job of before.

        Raises:
            NotFound: there is no such user.
            Forbidden: the installation needs this user.
            Unavailable: it may have begun; then workers go on with it.
        """
        if user in self._reserved:
            raise Forbidden("user: belongs to the installation and cannot be erased")
        now_ms = self._now_ms()
        receipt = await self._jobs.create_erasure(
            Job(new_job_id(), "erasure", user, now_ms, now_ms)
        )
        job = await self._jobs.find(receipt)
        if job is None:  # long ago: its receipt is not kept any more
            raise NotFound("user: does not exist")
        if not job.is_finished:
            await self._closing.close(user)
        log.info("privacy.erasure_asked_for", user=user)
        return job

    async def get_receipt(self, receipt: str) -> Job:
        """Return how far an erasure is, and what it did where.

        Raises:
            NotFound: there is none of this name, or no more.
        """
        job = await self._jobs.find(receipt)
        if job is None or job.kind != "erasure":
            raise NotFound("receipt: does not exist")
        return job

    def _now_ms(self) -> int:
        return int(self._clock.time() * 1000)
