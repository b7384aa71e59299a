"""Concurrent push delivery with retries; failures are isolated per service.

::

    deliver ─► lane of the service: room? ─► claim ─► send ─► classify
                  ▲    circuit open: wait                │ certainly not accepted
                  └────────── backoff, Retry-After ──────┘ (at most `ATTEMPTS_MAX`, `GIVE_UP_S`)

Each service has a lane with a limit on concurrent calls, a limit on waiting pushes, and a circuit
breaker. The circuit opens after `FAILURES_MAX` consecutive failures, first for `OPEN_S`, then twice
as long each time. A push whose lane is full is dropped; other lanes are not affected.

At most once: a push is claimed in Redis before the first attempt, and retried only if it was
certainly not accepted. Pushes that a crashed process had claimed are lost.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable, Mapping

import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.jitter import jittered
from chatserver.errors import ChatError
from chatserver.features.push.model import Kind, Notice, Subscription
from chatserver.features.push.providers.interface import Outcome, Provider, Verdict
from chatserver.telemetry.failpoints import failpoint
from chatserver.telemetry.metrics import PUSH_NOTICES

log = structlog.get_logger()

ATTEMPTS_MAX = 4  # of one push
GIVE_UP_S = 300.0  # no attempt starts later
IN_FLIGHT_MAX = 8  # concurrent calls of one push service

WAITING_MAX = 1_000  # pushes per service
LANES_MAX = 1_000  # push services; users' browsers choose them
FAILURES_MAX = 5
OPEN_S = 5.0  # first open period of a circuit
OPEN_S_MAX = 60.0
BACKOFF_S = 1.0
BACKOFF_S_MAX = 60.0

Claim = Callable[[Subscription, Notice, bool], Awaitable[bool]]
Gone = Callable[[Subscription, int], Awaitable[None]]


@dataclasses.dataclass(slots=True, eq=False)
class _Lane:
    """Queue and circuit breaker of one service."""

    slots: asyncio.Semaphore
    waiting: int = 0
    failures: int = 0
    opened: int = 0  # consecutive openings
    blocked_until: float = 0.0

    def record(self, verdict: Verdict, now: float) -> None:
        """Update the circuit breaker with an outcome."""
        match verdict.outcome:
            case Outcome.BUSY if not verdict.is_device_only:
                self.block(now + max(verdict.retry_after_s, BACKOFF_S))
            case Outcome.DOWN | Outcome.UNKNOWN:
                self.failures += 1
                if verdict.retry_after_s:
                    self.block(now + verdict.retry_after_s)
                if self.failures >= FAILURES_MAX and self.blocked_until <= now:
                    self.block(now + min(OPEN_S * 2**self.opened, OPEN_S_MAX))
                    self.opened = min(self.opened + 1, 10)
            case _:
                self.failures = self.opened = 0

    def block(self, until: float) -> None:
        self.blocked_until = max(self.blocked_until, until)


class PushSender:
    """Delivers pushes.

    `claim` returns whether a push may be sent. `gone` removes a subscription, unless it was
    registered again after a given time (ms since 1970).
    """

    def __init__(
        self,
        *,
        providers: Mapping[Kind, Provider],
        clock: Clock,
        claim: Claim,
        gone: Gone,
    ) -> None:
        self._providers = providers
        self._clock = clock
        self._claim = claim
        self._gone = gone
        self._lanes: collections.OrderedDict[str, _Lane] = collections.OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def serves(self, subscription: Subscription) -> bool:
        """Return whether a provider for this kind of device is enabled."""
        return subscription.kind in self._providers

    def deliver(self, subscription: Subscription, notice: Notice) -> asyncio.Future[None]:
        """Start a delivery.

        The future completes after the first attempt. It completes at once if the push is dropped or
        has to wait for a service that is down.

        Guarantees:
            At most once per device and message; see the module docstring.
            Bounded: at most `WAITING_MAX` per service; further pushes are dropped at once.
            Cancellation of the future has no effect; a push continues until `close`.
        """
        attempted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        provider = self._providers[subscription.kind]
        lane = self._lane(provider.lane_of(subscription))
        if lane is None or lane.waiting >= WAITING_MAX:
            PUSH_NOTICES.labels("dropped").inc()
            attempted.set_result(None)
            return attempted
        lane.waiting += 1
        work = self._deliver(provider, lane, subscription, notice, attempted)
        task = asyncio.create_task(work, name="push")
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            lane.waiting -= 1
            _resolve(attempted)
            if not task.cancelled() and (failure := task.exception()) is not None:
                log.error("push.crashed", user=subscription.user, exc_info=failure)

        task.add_done_callback(done)
        return attempted

    async def close(self, within_s: float) -> None:
        """Wait for calls in progress; drop waiting pushes."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        for task in list(self._tasks):
            task.cancel()

    def _lane(self, name: str) -> _Lane | None:
        lane = self._lanes.get(name)
        if lane is None:
            while len(self._lanes) >= LANES_MAX:
                idle = next((n for n, one in self._lanes.items() if not one.waiting), None)
                if idle is None:
                    return None
                del self._lanes[idle]
            lane = self._lanes[name] = _Lane(asyncio.Semaphore(IN_FLIGHT_MAX))
        self._lanes.move_to_end(name)
        return lane

    async def _deliver(
        self,
        provider: Provider,
        lane: _Lane,
        subscription: Subscription,
        notice: Notice,
        attempted: asyncio.Future[None],
    ) -> None:
        give_up_at = self._clock.monotonic() + GIVE_UP_S
        for attempt in range(ATTEMPTS_MAX):
            if lane.blocked_until > self._clock.monotonic():
                _resolve(attempted)  # a blocked service does not delay the caller
            if not await self._enter(lane, give_up_at):
                break
            try:
                verdict = await self._attempt(provider, subscription, notice, is_retry=attempt > 0)
                if verdict is None:
                    PUSH_NOTICES.labels("not_wanted").inc()
                    return
                lane.record(verdict, self._clock.monotonic())
            finally:
                lane.slots.release()
                _resolve(attempted)
            if verdict.outcome not in (Outcome.BUSY, Outcome.DOWN):
                await self._end(subscription, verdict)
                return
            wait_s = max(
                verdict.retry_after_s, jittered(min(BACKOFF_S * 2**attempt, BACKOFF_S_MAX))
            )
            if self._clock.monotonic() + wait_s > give_up_at:
                break
            await asyncio.sleep(wait_s)
        PUSH_NOTICES.labels("given_up").inc()
        log.warning("push.given_up", user=subscription.user, subscription=subscription.id)

    async def _enter(self, lane: _Lane, give_up_at: float) -> bool:
        """Wait for a free slot and a closed circuit; return False if that takes too long."""
        while True:
            await lane.slots.acquire()
            now = self._clock.monotonic()
            if lane.blocked_until <= now <= give_up_at:
                return True
            lane.slots.release()
            if lane.blocked_until > give_up_at or now > give_up_at:
                return False
            await asyncio.sleep(jittered(lane.blocked_until - now) + 0.01)

    async def _attempt(
        self,
        provider: Provider,
        subscription: Subscription,
        notice: Notice,
        *,
        is_retry: bool,
    ) -> Verdict | None:
        try:
            if not await self._claim(subscription, notice, is_retry):
                return None
        except ChatError as exc:
            # The claim may have succeeded, here or in another process: do not send.
            log.warning("push.claim_failed", user=subscription.user, error=exc.message)
            return None
        failpoint("notify.after_claim")
        verdict = await provider.send(subscription, notice)
        failpoint("notify.after_send")
        return verdict

    async def _end(self, subscription: Subscription, verdict: Verdict) -> None:
        PUSH_NOTICES.labels(verdict.outcome.value).inc()
        if verdict.outcome is Outcome.SENT:
            return
        log.info(
            "push.send_failed",
            user=subscription.user,
            subscription=subscription.id,
            outcome=verdict.outcome.value,
            reason=verdict.reason,
        )
        if verdict.outcome is Outcome.GONE:
            # A device that registered while this push was in flight is kept, regardless of the
            # response.
            until_ms = subscription.created_ms if verdict.gone_ms is None else verdict.gone_ms
            await self._gone(subscription, until_ms)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
