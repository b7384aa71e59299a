"""Token buckets: rate limits shared by all gateways, without a Redis call for each message.

Data: ``{pN}:limit:<kind>:<subject>`` (hash), a token bucket that expires when it would be full. The
subject is a user, an address or a network. A gateway takes a block of tokens at once, which lasts
about a quarter of a second, and spends it locally. It returns unspent tokens when the subject
disconnects.

Invariant: in any period, all gateways together allow at most the rate times the period, plus a
burst, plus a block per gateway. While Redis is unavailable, every request for tokens is granted:
the limited operations need Redis and fail anyway. A cost that is not known in advance, such as a
request's memory or the CPU time of a search, is charged afterward and can make the bucket negative;
further requests wait until it is positive.

Accounts are free, so a limit per user does not limit a person with many accounts. The tokens of a
new account are therefore also taken from buckets of its network, which all new accounts of the
network share (`_OF_NETWORK`), and its own "memory" and "sends" buckets are smaller. While Redis is
low on memory, new accounts get no "memory" tokens. Requests that protect a user, such as a block,
are allowed to make the bucket negative (`Allowance.owe`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final, Literal

import structlog

from chatserver import config
from chatserver.config.rate_limits import MEMORY_BURST_BYTES_MIN
from chatserver.domain.access.caller import RequestCaller
from chatserver.domain.client_addresses import is_wide_network
from chatserver.domain.ids import UserId
from chatserver.errors import ChatError, Overloaded, RateLimited
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import Value, load_script
from chatserver.telemetry import metrics

log = structlog.get_logger()

Kind = Literal[
    "sends",
    "requests",
    "memory",
    "newcomers",
    "newcomer_requests",
    "newcomer_sends",
    "connections",
    "failures",
    "calls",
]

BLOCK_S = 0.25
IDLE_S = 10.0
SWEEP_S = 2.5
CACHE_MAX = 100_000
_BATCH_MAX = 500
# A gateway counts these kinds of limits by network address, the others by user. It returns the
# tokens of idle addresses to Redis every `SWEEP_S`, and those of a user when the user's sessions
# end.
OF_ADDRESS: Collection[Kind] = ("connections", "failures")
ALL_KINDS: Collection[Kind] = (*OF_ADDRESS, "calls", "sends", "requests", "memory")
# A gateway takes this many "memory" tokens at once. The longest message costs less.
MEMORY_BLOCK_BYTES = 32_768
TOO_MUCH = "much data (limits.memory)"  # The error message is "too <this>: slow down".
MEMORY_PAUSE_S = 1.0  # After a memory bucket had too few tokens, callers wait at least this long.
# The budgets of a new account, and of all new accounts of a network, as multiples of
# `limits.memory`, `limits.requests` and `limits.sends`. A wide network (IPv6 /48) has `WIDE_FACTOR`
# times the budgets of a network.
NEW_ACCOUNT_SHARE = 0.25
NEW_ACCOUNT_SENDS_SHARE = 0.1  # of the rate, and half of the burst: people try out scripts
NETWORK_FACTOR = 5
NETWORK_SENDS_FACTOR = 0.4  # of the rate, and the whole burst
NETWORK_REQUESTS_FACTOR = 8
NEW_ACCOUNT_BLOCK = 2  # tokens taken at once: idle accounts must not hold those of their network
WIDE_FACTOR = 4
# The kinds of limits that also apply to the networks of new accounts.
_OF_NETWORK: Final[dict[Kind, Kind]] = {
    "memory": "newcomers",
    "requests": "newcomer_requests",
    "sends": "newcomer_sends",
}
OWED_BYTES_MAX = 262_144  # see `Allowance.owe`
OWED_REQUESTS_MAX = 64  # the same for tokens of "requests"
LOW_MEMORY = "Redis is low on memory; new accounts must wait, then try again"
LOW_MEMORY_PAUSE_MS = 5000


class Allowance:
    """This process's rate-limit tokens of one kind for one subject (a user or an address)."""

    __slots__ = (
        "_available_at",
        "_block",
        "_is_requesting",
        "_limits",
        "_low",
        "_own_available_at",
        "_rate",
        "_waiting",
        "is_refused_for_low_memory",
        "is_removed",
        "key",
        "networks",
        "tokens",
        "used_at",
    )

    def __init__(
        self, *, limits: RateLimits, key: tuple[Kind, str], block: int, rate: float
    ) -> None:
        self.key = key
        # The networks of a new account (`_OF_NETWORK`): its tokens also come from their buckets.
        self.networks: tuple[str, ...] = ()
        self.is_refused_for_low_memory = False
        # Removed from `RateLimits`: it keeps no granted tokens. Find the subject's allowance again.
        self.is_removed = False
        self.tokens = 0
        self.used_at = limits.now()
        self._limits = limits
        self._block = block
        self._low = block // 2
        self._rate = rate
        # Monotonic time (s) at which the bucket has a token again, computed from the last reply.
        self._available_at = 0.0
        self._own_available_at = 0.0  # the same, without the buckets of networks
        self._is_requesting = False
        self._waiting: list[Callable[[], None]] | None = None  # called after the next reply

    def set_block(self, block: int) -> None:
        """Set how many tokens are requested at once."""
        self._block, self._low = block, block // 2

    def spend(self, cost: int = 1) -> bool:
        """Spend `cost` tokens; return False if there are too few. See `wait_ms` and `request`."""
        if self.tokens >= cost:
            self.tokens -= cost
            if self.tokens <= self._low and not self._is_requesting:
                self.request()
            return True
        return False

    def charge(self, cost: int) -> None:
        """Spend tokens for a cost that has already occurred; this may make the balance negative."""
        self.tokens -= cost
        if self.tokens <= self._low and not self._is_requesting:
            self.request()

    def owe(self, cost: int) -> bool:
        """Spend tokens, up to a maximum more than there are; False if that is not enough.

        For requests that a user must be able to make at any time, such as a block. A debt in Redis,
        such as that of an earlier connection, counts as soon as Redis has replied.
        """
        debt = max(0.0, self._own_available_at - self._limits.now()) * self._rate
        owed_max = OWED_BYTES_MAX if self.key[0] == "memory" else OWED_REQUESTS_MAX
        if self.tokens - debt < cost - owed_max:
            return False
        self.charge(cost)
        return True

    def make_refusal(self, what: str, wait_ms: int) -> ChatError:
        """Return the error for a request that finds too few tokens; the message contains `what`."""
        metrics.RATE_LIMITED.labels(self.key[0]).inc()
        if self.is_refused_for_low_memory:
            return Overloaded(LOW_MEMORY, retry_after_ms=wait_ms)
        return RateLimited(f"too {what}: slow down", retry_after_ms=wait_ms)

    def wait_ms(self, cost: int = 1) -> int:
        """Return the ms until enough tokens may be available; 0 if unknown (call `request`)."""
        left_s = self._available_at - self._limits.now()
        if left_s <= 0:
            return 0
        # The first token is available after `left_s`; `missing` more are needed.
        missing = max(0, cost - self.tokens - 1)
        return math.ceil((left_s + missing / self._rate) * 1000)

    def request(self, on_reply: Callable[[], None] | None = None, cost: int = 1) -> None:
        """Request a block of tokens from Redis (at least `cost`), unless a request is pending.

        `on_reply` runs once, after the reply.
        """
        if on_reply is not None:
            if self._waiting is None:
                self._waiting = []
            self._waiting.append(on_reply)
        if self._is_requesting:
            return
        self.used_at = self._limits.now()
        if on_reply is None and self._available_at > self.used_at:
            return  # Do not ask Redis: it has no token yet, and no caller waits for a reply.
        self._is_requesting = True
        self._limits.request_soon(self, max(self._block, cost) - self.tokens)

    async def pay(self, what: str, cost: int = 1) -> None:
        """Spend `cost` tokens; request them from Redis if there are too few.

        Raises:
            RateLimited: Redis has too few tokens; the message contains `what`.
            Overloaded: Redis is low on memory, and the account is new.
        """
        while not self.spend(cost):
            wait_ms = self.wait_ms(cost)
            if wait_ms:
                raise self.make_refusal(what, wait_ms)
            # Spend in the callback: a removed allowance does not keep its tokens after that.
            paid: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

            def on_reply(paid: asyncio.Future[bool] = paid) -> None:
                if not paid.done():
                    paid.set_result(self.spend(cost))

            self.request(on_reply, cost)
            if await paid:
                return

    def add_granted(
        self,
        count: int,
        wait_ms: int,
        *,
        own_wait_ms: int | None = None,
        is_low_on_memory: bool = False,
    ) -> None:
        """Add the `count` tokens that Redis granted; it has another one after `wait_ms`.

        `own_wait_ms`: the wait without the buckets of networks, by default `wait_ms`.
        `is_low_on_memory`: Redis was not asked, because the account is new.
        """
        self._is_requesting = False
        self.is_refused_for_low_memory = is_low_on_memory
        self.tokens += count
        wait_s = wait_ms / 1000
        if wait_ms and self.key[0] == "memory":
            # `wait_ms` is the wait for one token. A "memory" token is one byte: wait longer.
            wait_s = max(wait_s, MEMORY_PAUSE_S)
        self._available_at = self._limits.now() + wait_s
        own_ms = wait_ms if own_wait_ms is None else own_wait_ms
        self._own_available_at = self._limits.now() + own_ms / 1000
        waiting, self._waiting = self._waiting, None
        for on_reply in waiting or ():
            on_reply()

    @property
    def is_idle(self) -> bool:
        """True if unused for `IDLE_S`, with no pending request and no wait for the next token."""
        now = self._limits.now()
        return not self._is_requesting and self._available_at <= now and now - self.used_at > IDLE_S


def _multiply(rule: config.RateLimit, factor: int) -> config.RateLimit:
    return config.RateLimit(rule.per_s * factor, rule.burst * factor)


class RateLimits:
    """This process's allowances: rate-limit tokens by kind and subject.

    Above `CACHE_MAX` allowances, the oldest is removed; its unspent tokens are returned to Redis.

    `swept`: the kinds of limits whose idle allowances `run` removes.
    """

    def __init__(
        self, hot: HotClient, settings: config.Limits, swept: Collection[Kind] = OF_ADDRESS
    ) -> None:
        self._hot = hot
        self._swept = swept
        self.now = asyncio.get_running_loop().time
        self._rules: dict[Kind, config.RateLimit] = {
            "sends": settings.sends,
            "requests": settings.requests,
            "memory": settings.memory,
            "newcomers": _multiply(settings.memory, NETWORK_FACTOR),
            "newcomer_requests": _multiply(settings.requests, NETWORK_REQUESTS_FACTOR),
            "newcomer_sends": config.RateLimit(
                settings.sends.per_s * NETWORK_SENDS_FACTOR, settings.sends.burst
            ),
            "connections": settings.connections,
            "failures": settings.failures,
            "calls": settings.calls,
        }
        self._allowances: dict[tuple[Kind, str], Allowance] = {}
        self._requests: list[tuple[Allowance | None, tuple[Kind, str], int]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, kind: Kind, subject: str) -> Allowance:
        """Return this process's allowance for a subject."""
        key = (kind, subject)
        allowance = self._allowances.get(key)
        if allowance is None:
            if len(self._allowances) >= CACHE_MAX:
                self.return_tokens(*next(iter(self._allowances)))
            allowance = self._allowances[key] = Allowance(
                limits=self, key=key, block=self._get_block(kind), rate=self._rules[kind].per_s
            )
        return allowance

    def _get_block(self, kind: Kind) -> int:
        burst, rate = self._rules[kind].burst, self._rules[kind].per_s
        if kind == "memory":
            return min(burst, MEMORY_BLOCK_BYTES)
        return 1 if kind == "failures" else min(burst, max(1, round(rate * BLOCK_S)))

    def find_for_caller(
        self, kind: Literal["memory", "requests", "sends"], caller: RequestCaller
    ) -> Allowance:
        """Return this process's allowance for a user.

        That of a new account also takes tokens from the buckets of its networks.
        """
        allowance = self.find(kind, caller.user)
        if allowance.networks != caller.networks:
            self._return_unspent(allowance)
            allowance.networks = caller.networks
            if kind != "memory":
                allowance.set_block(NEW_ACCOUNT_BLOCK if caller.networks else self._get_block(kind))
        return allowance

    def charge(self, kind: Kind, subject: str, cost: int) -> None:
        """Charge a subject for a cost that has already occurred; the balance may become negative.

        The tokens are taken from Redis if this process has no allowance for the subject.
        """
        if cost <= 0:
            return
        allowance = self._allowances.get((kind, subject))
        if allowance is not None:
            allowance.charge(cost)
        else:
            self._enqueue(None, (kind, subject), cost)

    def charge_memory(self, subject: str, size_bytes: int) -> None:
        """Charge a user for a request's memory."""
        self.charge("memory", subject, size_bytes)

    def return_tokens(self, kind: Kind, subject: str) -> None:
        """Remove an allowance; return unspent tokens to Redis, or charge a negative balance."""
        allowance = self._allowances.pop((kind, subject), None)
        if allowance is not None:
            allowance.is_removed = True
            self._return_unspent(allowance)

    def _return_unspent(self, allowance: Allowance) -> None:
        if allowance.tokens:
            self._enqueue(None, allowance.key, -allowance.tokens)
            # A debt (`Allowance.owe`) that is left is the account's own: other accounts do not pay
            # it.
            for network in allowance.networks if allowance.tokens > 0 else ():
                self._enqueue(None, (_OF_NETWORK[allowance.key[0]], network), -allowance.tokens)
            allowance.tokens = 0

    def request_soon(self, allowance: Allowance, requested: int) -> None:
        """Request tokens from Redis at the end of this event loop iteration, in one batch."""
        self._enqueue(allowance, allowance.key, requested)

    def _enqueue(self, allowance: Allowance | None, key: tuple[Kind, str], requested: int) -> None:
        if not self._requests:
            asyncio.get_running_loop().call_soon(self._flush)
        self._requests.append((allowance, key, requested))

    def _flush(self) -> None:
        requests, self._requests = self._requests, []
        groups: dict[int, list[tuple[Allowance | None, tuple[Kind, str], int]]] = {}
        for request in requests:
            if request[0] is not None and request[0].networks:
                self._start(self._request_for_new_account(request[0], request[2]))
                continue
            groups.setdefault(self._hot.keys.get_partition(UserId(request[1][1])), []).append(
                request
            )
        for group in groups.values():
            for start in range(0, len(group), _BATCH_MAX):
                self._start(self._request_batch(group[start : start + _BATCH_MAX]))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="limits-request")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _request_batch(
        self, requests: list[tuple[Allowance | None, tuple[Kind, str], int]]
    ) -> None:
        items = [
            self._make_item(key, requested, is_charge=allowance is None)
            for allowance, key, requested in requests
        ]
        reply = await self._consume(items)
        for i, (allowance, _, _) in enumerate(requests):
            if allowance is not None:
                self._grant(allowance, reply[2 * i], reply[2 * i + 1])

    async def _request_for_new_account(self, allowance: Allowance, requested: int) -> None:
        """Request tokens from the buckets of the account and of its networks.

        Tokens of which another bucket has fewer are returned.
        """
        if allowance.key[0] == "memory" and self._hot.health.is_low_on_memory:
            self._grant(allowance, 0, LOW_MEMORY_PAUSE_MS, is_low_on_memory=True)
            return
        granted, wait_ms, own_wait_ms = requested, 0, 0
        taken: list[tuple[tuple[Kind, str], int]] = []
        kind = _OF_NETWORK[allowance.key[0]]
        keys: list[tuple[Kind, str]] = [(kind, network) for network in allowance.networks]
        # One call per bucket: in a cluster, each may be in another partition.
        for key in (*keys, allowance.key):
            item = self._make_item(key, granted, is_new_account=True)
            granted, own_wait_ms = await self._consume([item])  # the account's own bucket is last
            wait_ms = max(wait_ms, own_wait_ms)
            taken.append((key, granted))
        for key, count in taken:
            if count > granted:
                self._enqueue(None, key, granted - count)
        self._grant(allowance, granted, wait_ms, own_wait_ms=own_wait_ms)

    def _make_item(
        self,
        key: tuple[Kind, str],
        requested: int,
        *,
        is_charge: bool = False,
        is_new_account: bool = False,
    ) -> dict[str, Value]:
        """Return the input of `consume_rate_limits` for a bucket."""
        kind, subject = key
        rule = self._rules[kind]
        if kind in _OF_NETWORK.values() and is_wide_network(subject):
            rule = _multiply(rule, WIDE_FACTOR)
        if kind == "memory" and is_new_account:
            burst = max(MEMORY_BURST_BYTES_MIN, round(rule.burst * NEW_ACCOUNT_SHARE))
            rule = config.RateLimit(rule.per_s, burst)
        if kind == "sends" and is_new_account:
            burst = math.ceil(rule.burst / 2)
            rule = config.RateLimit(rule.per_s * NEW_ACCOUNT_SENDS_SHARE, burst)
        return {
            "limit": self._hot.keys.limit(kind, subject),
            "burst": rule.burst,
            "rate": repr(rule.per_s),
            "requested": min(requested, 0) if is_charge else requested,
            "owed": max(requested, 0) if is_charge else 0,
        }

    async def _consume(self, items: list[dict[str, Value]]) -> list[int]:
        """Return the tokens granted and the wait (ms) of each bucket. Without Redis, grant all."""
        try:
            reply: list[int] = await self._hot.run(load_script("consume_rate_limits"), items=items)
        except ChatError as exc:
            log.warning("limits.check_failed", error=exc.message)
            return [part for item in items for part in (max(0, int(item["requested"])), 0)]
        return reply

    def _grant(
        self,
        allowance: Allowance,
        count: int,
        wait_ms: int,
        *,
        own_wait_ms: int | None = None,
        is_low_on_memory: bool = False,
    ) -> None:
        allowance.add_granted(
            count, wait_ms, own_wait_ms=own_wait_ms, is_low_on_memory=is_low_on_memory
        )
        if self._allowances.get(allowance.key) is not allowance:
            # The subject's allowance was removed while the request was pending.
            self._return_unspent(allowance)

    async def run(self) -> None:
        """Return the tokens of idle allowances to Redis, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for kind, subject in [
                key
                for key, allowance in self._allowances.items()
                if key[0] in self._swept and allowance.is_idle
            ]:
                self.return_tokens(kind, subject)

    async def close(self) -> None:
        """Return all unspent tokens."""
        for kind, subject in list(self._allowances):
            self.return_tokens(kind, subject)
        # The tokens are returned to Redis at the end of this event loop iteration.
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(self._tasks)
