"""Login attempts, counted in Redis for all API processes together.

Data, all token buckets that expire when they would be full:
``{pN}:login-attempts:<user>:<source>`` (hash), the attempts of one source (a network, or a known
device) for one account; ``{pN}:guesses:<user>`` (hash), those of all unknown devices for it;
``{pN}:limit:entries:<subject>``, the logins of a network or of the known devices of an account.

Attempts ask Redis: taken in blocks, as `Limits` does, each process would allow a block more. Only
refusals are remembered here until the bucket has a token again, so a flood is cheap to refuse.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import time

from chatserver import config
from chatserver.domain.login_attempts import LoginAttempt
from chatserver.errors import RateLimited, Unavailable
from chatserver.hot.client import HotClient
from chatserver.hot.scripts import Value, load_script
from chatserver.telemetry import metrics

GUESSES_FREE = 3  # at an account, before further ones count as guesses
REFUSALS_MAX = 10_000  # remembered by a process, the newest


class _Refusals:
    """Buckets that are empty, and until when (s, monotonic)."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._until: collections.OrderedDict[str, float] = collections.OrderedDict()

    def check(self, bucket: str) -> None:
        """Raise RateLimited if the bucket cannot have a token yet."""
        left_s = self._until.get(bucket, 0.0) - time.monotonic()
        if left_s > 0:
            raise self._error(math.ceil(left_s * 1000))

    def add(self, bucket: str, wait_ms: int) -> RateLimited:
        """Remember that a bucket is empty for `wait_ms`; return the error to raise."""
        self._until[bucket] = time.monotonic() + wait_ms / 1000
        self._until.move_to_end(bucket)
        if len(self._until) > REFUSALS_MAX:
            self._until.popitem(last=False)
        return self._error(wait_ms)

    def forget(self, bucket: str) -> None:
        """A token was put back."""
        self._until.pop(bucket, None)

    def _error(self, wait_ms: int) -> RateLimited:
        metrics.RATE_LIMITED.labels(self._kind).inc()
        return RateLimited("too many login attempts; wait, then try again", retry_after_ms=wait_ms)


class Tries:
    """The buckets."""

    def __init__(self, hot: HotClient, settings: config.Limits) -> None:
        self._hot = hot
        self._settings = settings
        self._entries = _Refusals("entries")
        self._logins = _Refusals("logins")

    async def take_entry(self, subject: str) -> None:
        """Count a login or a registration of a network, or of an account's known devices.

        Raises:
            RateLimited: there were too many.
            Unavailable: Redis does not answer, and nobody may guess meanwhile.
        """
        bucket = self._hot.keys.limit("entries", subject)
        self._entries.check(bucket)
        item: dict[str, Value] = {
            "limit": bucket,
            "burst": self._settings.entries_burst,
            "rate": repr(self._settings.entries_per_s),
            "wanted": 1,
            "owed": 0,
        }
        taken, wait_ms = await self._hot.run(load_script("take"), items=[item])
        if not int(taken):
            raise self._entries.add(bucket, int(wait_ms))

    async def begin(self, attempt: LoginAttempt) -> LoginAttempt:
        """Count an attempt; return it with what its source and the account have used.

        Guarantees:
            A known device is refused for its own wrong guesses only.

        Raises:
            RateLimited: this source has guessed too often at this account.
            Unavailable: Redis does not answer, and nobody may guess meanwhile.
        """
        bucket = self._bucket_of(attempt)
        self._logins.check(bucket)
        taken, wait_ms, used, has_budget, guesses = await self._count(attempt, 1)
        if not taken:
            raise self._logins.add(bucket, wait_ms)
        return dataclasses.replace(
            attempt,
            used=used,
            is_over_budget=not has_budget,
            is_guess=not has_budget or guesses >= GUESSES_FREE,
            is_counted=bool(has_budget) and not attempt.is_known,
        )

    async def take_back(self, attempt: LoginAttempt) -> None:
        """Uncount an attempt whose password was right. Best effort."""
        self._logins.forget(self._bucket_of(attempt))
        try:
            await self._count(attempt, -1)
        except Unavailable:
            return

    def _bucket_of(self, attempt: LoginAttempt) -> str:
        return self._hot.keys.login_attempts(attempt.account, attempt.source)

    async def _count(self, attempt: LoginAttempt, sign: int) -> tuple[int, int, int, int, int]:
        keys, limits = self._hot.keys, self._settings
        in_budget = attempt.is_counted if sign < 0 else not attempt.is_known
        taken, wait_ms, used, has_budget, guesses = await self._hot.run(
            load_script("login_attempt"),
            keys={
                "login_attempts": self._bucket_of(attempt),
                "guesses": keys.guesses(attempt.account),
            },
            args={
                "burst": limits.logins_burst,
                "rate": repr(limits.logins_per_s),
                "account_burst": limits.guesses_burst if in_budget else 0,
                "account_rate": repr(limits.guesses_per_s),
                "sign": sign,
            },
        )
        return int(taken), int(wait_ms), int(used), int(has_budget), int(guesses)
