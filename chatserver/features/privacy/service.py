"""Use cases for data exports and account erasures. Workers run the jobs.

An erasure first ends the user's access. One transaction replaces the user's item with a tombstone
and creates the job. Then `Lockout` ends every login and closes every connection. The tombstone is
permanent and marked as banned, so no token for this user is ever accepted again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import attrs
import structlog

from chatserver.domain.access.logins import RevocationMarks
from chatserver.domain.clock import Clock, get_now_ms
from chatserver.domain.ids import UserId
from chatserver.errors import Forbidden, NotFound
from chatserver.features.accounts.warm.accounts import AccountRows
from chatserver.features.privacy.hot import RedisUserData
from chatserver.features.privacy.model import Job, new_job_id
from chatserver.features.privacy.warm.jobs import JobRows
from chatserver.hot.users.revocations import Revocations, SessionEnder

log = structlog.get_logger()

EXPORTS_PER_DAY_MAX = 3

FRESH_S = 300  # users without a password need a token of at most this age to erase their account
LINK_S = 300

NO_EXPORT = "export: does not exist or has expired"


@attrs.define(eq=False, repr=False, kw_only=True)
class Lockout:
    """Ends a user's access after the user's item has been replaced with a tombstone."""

    _rows: AccountRows
    _revocations: Revocations
    _ender: SessionEnder
    _redis_data: RedisUserData
    _clock: Clock

    async def end_access(self, user: UserId) -> int:
        """End all access of the user; return how many logins have been ended.

        Guarantees:
            Idempotent. On return, every request and `hello` frame from the user is rejected, and
            the gateways have been notified to close the user's connections.

        Raises:
            Unavailable: the user may still have access; retry.
        """
        now = self._clock.time()
        logins = frozenset(row.login for row in await self._rows.list_logins(user))
        await self._revocations.put(user, before=int(now), logins=logins, is_banned=True)
        await self._ender.end(user, RevocationMarks(int(now), logins, is_banned=True), "erased")
        await self._redis_data.delete_user_state(user)
        return len(logins)


@attrs.define(eq=False, repr=False, kw_only=True)
class PrivacyRequests:
    """Use cases for exports and erasures, for the HTTP API.

    `reserved`: users who cannot be erased. `sign` returns a download URL for an export's ZIP file.
    """

    _jobs: JobRows
    _lockout: Lockout
    _sign: Callable[[Job, int], Awaitable[str]]
    _clock: Clock
    _reserved: Collection[str] = frozenset()

    # Exports

    async def start_export(self, user: UserId) -> Job:
        """Start an export of the user's data.

        Raises:
            Conflict: an export is already in progress.
            RateLimited: the user has reached the daily limit.
        """
        now_ms = get_now_ms(self._clock)
        job = Job(new_job_id(), "export", user, now_ms, now_ms)
        await self._jobs.create_export(job, EXPORTS_PER_DAY_MAX)
        log.info("privacy.export_requested", user=user)
        return job

    async def get_export(self, user: UserId) -> tuple[Job, str | None]:
        """Return a user's newest export, and its download URL if it is ready.

        Raises:
            NotFound: the user has no export, or it has expired.
        """
        job = await self._jobs.find_newest_export(user)
        is_over = job is not None and job.expires_at is not None
        if job is None or (is_over and (job.expires_at or 0) <= self._clock.time()):
            raise NotFound(NO_EXPORT)
        if job.state != "ready":
            return job, None
        return job, await self._sign(job, LINK_S)

    # Erasures

    def check_fresh(self, issued_at: int) -> None:
        """Check that a token was issued within the last `FRESH_S` seconds.

        Raises:
            Forbidden: the token is older.
        """
        if self._clock.time() - issued_at > FRESH_S:
            raise Forbidden(f"token: must be at most {FRESH_S} s old; log in again")

    async def erase(self, user: UserId) -> Job:
        """Start the erasure of a user, and end the user's access immediately.

        Guarantees:
            Idempotent: if an erasure has already been started, its job is returned.

        Raises:
            NotFound: the user does not exist.
            Forbidden: the user is reserved.
            Unavailable: the erasure may have started. If it has, workers complete it.
        """
        if user in self._reserved:
            raise Forbidden("user: is reserved by the server and cannot be erased")
        now_ms = get_now_ms(self._clock)
        receipt = await self._jobs.create_erasure(
            Job(new_job_id(), "erasure", user, now_ms, now_ms)
        )
        job = await self._jobs.find(receipt)
        if job is None:  # the user has been erased, and the receipt has expired
            raise NotFound("user: does not exist")
        if not job.is_finished:
            await self._lockout.end_access(user)
        log.info("privacy.erasure_requested", user=user)
        return job

    async def get_receipt(self, receipt: str) -> Job:
        """Return the erasure job with this receipt id.

        Raises:
            NotFound: the receipt does not exist, or has expired.
        """
        job = await self._jobs.find(receipt)
        if job is None or job.kind != "erasure":
            raise NotFound("receipt: does not exist")
        return job
