"""Login attempt limits, counted in Redis across all API processes.

Data (token buckets that expire when they would be full):

- ``{pN}:login-attempts:<user>:<source>`` (hash): attempts from one source (a network, or a known
  device) for one account
- ``{pN}:guesses:<user>`` (hash): attempts from all unknown devices for one account
- ``{pN}:limit:entries:<subject>`` (hash): logins and registrations from a network, or logins from
  an account's known devices
- ``{pN}:limit:registrations:<network>`` (hash): registrations from a network

A known device has a device token from an earlier login to the account. An IPv6 /48 network has
`WIDE_FACTOR` times the budget of a /64, which its /64 networks share. Every attempt is counted in
Redis; unlike `rate_limits.RateLimits`, this module keeps no tokens locally. Refusals are cached
until the bucket has a token again, so a flood is cheap to reject.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import time

from chatserver import config
from chatserver.domain.access.login_attempt import LoginAttempt
from chatserver.domain.client_addresses import is_wide_network, list_nested_networks
from chatserver.errors import Overloaded, RateLimited, Unavailable
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import Value, load_script
from chatserver.hot.users.token_buckets import LOW_MEMORY_PAUSE_MS, WIDE_FACTOR
from chatserver.telemetry import metrics

# After this many attempts by unknown devices for an account, further ones count as guesses.
GUESSES_FREE = 3
TOO_MANY_LOGINS = "too many login attempts; wait, then try again"
TOO_MANY_REGISTRATIONS = "too many new accounts from this network; wait, then try again"
# Registrations of a network have this many times the burst of `limits.entries`, and this share of
# its rate: by default 240, and 1,728 a day.
REGISTRATION_BURST_FACTOR = 4
REGISTRATION_RATE_SHARE = 0.04
NO_REGISTRATION = "registration is paused, because Redis is low on memory; try again later"
REFUSALS_MAX = 10_000  # A process caches at most this many refusals, the newest ones.


class _Refusals:
    """Cache of empty buckets, each with the monotonic time (s) until which it stays empty."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._until: collections.OrderedDict[str, float] = collections.OrderedDict()

    def check(self, bucket: str) -> None:
        """Raise RateLimited if the bucket is known to be empty."""
        left_s = self._until.get(bucket, 0.0) - time.monotonic()
        if left_s > 0:
            raise self._make_error(math.ceil(left_s * 1000))

    def add(self, bucket: str, wait_ms: int) -> RateLimited:
        """Cache that a bucket is empty for `wait_ms`; return the error to raise."""
        self._until[bucket] = time.monotonic() + wait_ms / 1000
        self._until.move_to_end(bucket)
        if len(self._until) > REFUSALS_MAX:
            self._until.popitem(last=False)
        return self._make_error(wait_ms)

    def remove(self, bucket: str) -> None:
        """Remove a bucket from the cache after a token was returned to it."""
        self._until.pop(bucket, None)

    def _make_error(self, wait_ms: int) -> RateLimited:
        metrics.RATE_LIMITED.labels(self._kind).inc()
        text = TOO_MANY_REGISTRATIONS if self._kind == "registrations" else TOO_MANY_LOGINS
        return RateLimited(text, retry_after_ms=wait_ms)


class LoginRateLimits:
    def __init__(self, hot: HotClient, settings: config.Limits) -> None:
        self._hot = hot
        self._settings = settings
        self._entries = _Refusals("entries")
        self._registrations = _Refusals("registrations")
        self._logins = _Refusals("logins")

    def check_refused(self, subject: str, attempt: LoginAttempt | None) -> None:
        """Raise RateLimited if a cached refusal applies to this login; does not call Redis."""
        for network in list_nested_networks(subject):
            self._entries.check(self._hot.keys.limit("entries", network))
        if attempt is not None:
            self._logins.check(self._build_key(attempt))

    async def count_login(self, subject: str) -> None:
        """Count a login or registration from a network, or from an account's known devices.

        Raises:
            RateLimited: there were too many logins.
            Unavailable: Redis does not respond; the login is rejected.
        """
        await self._count_entry("entries", subject, self._settings.entries)

    async def count_registration(self, network: str) -> None:
        """Count a registration from a network.

        Raises:
            RateLimited: there were too many registrations, or too many logins.
            Overloaded: Redis is low on memory.
            Unavailable: Redis does not respond; the registration is rejected.
        """
        if self._hot.health.is_low_on_memory:
            raise Overloaded(NO_REGISTRATION, retry_after_ms=LOW_MEMORY_PAUSE_MS)
        entries = self._settings.entries
        await self.count_login(network)
        burst = entries.burst * REGISTRATION_BURST_FACTOR
        rule = config.RateLimit(entries.per_s * REGISTRATION_RATE_SHARE, burst)
        await self._count_entry("registrations", network, rule)

    async def _count_entry(self, kind: str, subject: str, rule: config.RateLimit) -> None:
        refusals = self._registrations if kind == "registrations" else self._entries
        for network in list_nested_networks(subject):
            bucket = self._hot.keys.limit(kind, network)
            refusals.check(bucket)
            factor = WIDE_FACTOR if is_wide_network(network) else 1
            item: dict[str, Value] = {
                "limit": bucket,
                "burst": rule.burst * factor,
                "rate": repr(rule.per_s * factor),
                "requested": 1,
                "owed": 0,
            }
            is_granted, wait_ms = await self._hot.run(
                load_script("consume_rate_limits"), items=[item]
            )
            if not int(is_granted):
                raise refusals.add(bucket, int(wait_ms))

    async def begin(self, attempt: LoginAttempt) -> LoginAttempt:
        """Count an attempt; return a copy with the fields that depend on the count.

        These are `used`, `is_over_budget`, `is_guess` and `is_counted`.

        Guarantees:
            A device that has logged in to the account before is refused only for its own wrong
            passwords.

        Raises:
            RateLimited: the source has guessed too often for this account.
            Unavailable: Redis does not respond; the attempt is rejected.
        """
        bucket = self._build_key(attempt)
        self._logins.check(bucket)
        is_granted, wait_ms, used, has_budget, guesses = await self._count(attempt, 1)
        if not is_granted:
            raise self._logins.add(bucket, wait_ms)
        return dataclasses.replace(
            attempt,
            used=used,
            is_over_budget=not has_budget,
            is_guess=not has_budget or guesses >= GUESSES_FREE,
            is_counted=bool(has_budget) and not attempt.is_known,
        )

    async def return_token(self, attempt: LoginAttempt) -> None:
        """Refund an attempt's bucket tokens: its password was right. Ignores `Unavailable`."""
        self._logins.remove(self._build_key(attempt))
        try:
            await self._count(attempt, -1)
        except Unavailable:
            return

    def _build_key(self, attempt: LoginAttempt) -> str:
        return self._hot.keys.login_attempts(attempt.account, attempt.source)

    async def _count(self, attempt: LoginAttempt, sign: int) -> tuple[int, int, int, int, int]:
        keys, limits = self._hot.keys, self._settings
        in_budget = attempt.is_counted if sign < 0 else not attempt.is_known
        is_granted, wait_ms, used, has_budget, guesses = await self._hot.run(
            load_script("count_login_attempt"),
            keys={
                "login_attempts": self._build_key(attempt),
                "guesses": keys.guesses(attempt.account),
            },
            args={
                "burst": limits.logins.burst,
                "rate": repr(limits.logins.per_s),
                "account_burst": limits.guesses.burst if in_budget else 0,
                "account_rate": repr(limits.guesses.per_s),
                "sign": sign,
            },
        )
        return int(is_granted), int(wait_ms), int(used), int(has_budget), int(guesses)
