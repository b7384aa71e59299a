"""Login attempts, counted in Redis for all API processes together.

Data, all token buckets that expire when they would be full:
``{pN}:login-attempts:<user>:<source>`` (hash), the attempts of one source (a network, or a known
device) for one account; ``{pN}:guesses:<user>`` (hash), those of all unknown devices for it;
``{pN}:limit:entries:<subject>``, the logins of a network or of the known devices of an account.

Every attempt asks Redis: taken in blocks, as `Limits` does, each process would allow a block more.
"""

from __future__ import annotations

import dataclasses

from chatserver import config
from chatserver.domain.login_attempts import LoginAttempt
from chatserver.errors import RateLimited, Unavailable
from chatserver.hot.client import HotClient
from chatserver.hot.scripts import Value, load_script
from chatserver.telemetry import metrics

GUESSES_FREE = 3  # at an account, before further ones count as guesses


class Tries:
    """The buckets."""

    def __init__(self, hot: HotClient, settings: config.Limits) -> None:
        self._hot = hot
        self._settings = settings

    async def take_entry(self, subject: str) -> None:
        """Count a login or a registration of a network, or of an account's known devices.

        Raises:
            RateLimited: there were too many.
            Unavailable: Redis does not answer, and nobody may guess meanwhile.
        """
        item: dict[str, Value] = {
            "limit": self._hot.keys.limit("entries", subject),
            "burst": self._settings.entries_burst,
            "rate": repr(self._settings.entries_per_s),
            "wanted": 1,
            "owed": 0,
        }
        taken, wait_ms = await self._hot.run(load_script("take"), items=[item])
        if not int(taken):
            raise _too_many("entries", int(wait_ms))

    async def begin(self, attempt: LoginAttempt) -> LoginAttempt:
        """Count an attempt; return it with what its source and the account have used.

        Guarantees:
            A known device is refused for its own wrong guesses only.

        Raises:
            RateLimited: this source has guessed too often at this account.
            Unavailable: Redis does not answer, and nobody may guess meanwhile.
        """
        taken, wait_ms, used, has_budget, guesses = await self._count(attempt, 1)
        if not taken:
            raise _too_many("logins", wait_ms)
        return dataclasses.replace(
            attempt,
            used=used,
            is_over_budget=not has_budget,
            is_guess=not has_budget or guesses >= GUESSES_FREE,
            is_counted=bool(has_budget) and not attempt.is_known,
        )

    async def take_back(self, attempt: LoginAttempt) -> None:
        """Uncount an attempt whose password was right. Best effort."""
        try:
            await self._count(attempt, -1)
        except Unavailable:
            return

    async def _count(self, attempt: LoginAttempt, sign: int) -> tuple[int, int, int, int, int]:
        keys, limits = self._hot.keys, self._settings
        in_budget = attempt.is_counted if sign < 0 else not attempt.is_known
        taken, wait_ms, used, has_budget, guesses = await self._hot.run(
            load_script("login_attempt"),
            keys={
                "login_attempts": keys.login_attempts(attempt.account, attempt.source),
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


def _too_many(kind: str, wait_ms: int) -> RateLimited:
    metrics.RATE_LIMITED.labels(kind).inc()
    return RateLimited("too many login attempts; wait, then try again", retry_after_ms=wait_ms)
