"""Concurrent push delivery with retries. Failures are isolated per push service.

::

    deliver ─► queue of the service full? ─► claim ─► send ─► classify
                       ▲   circuit open: wait            │ certainly not accepted
                       └──── backoff, Retry-After ───────┘ at most `ATTEMPTS_MAX` attempts

Each push service has a limit on concurrent calls, a limit on waiting pushes, and a circuit breaker.
The circuit opens after `FAILURES_MAX` consecutive failures: at first for `OPEN_S`, then each time
for twice as long, up to `OPEN_S_MAX`. If a service's queue is full, pushes to it are dropped.

At most once: a push is claimed in Redis before the first attempt, and retried only if it was
certainly not accepted. If a process crashes, the pushes that it has claimed are lost.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable, Mapping

import attrs
import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError
from chatserver.features.push.model import Kind, Notice, Subscription
from chatserver.features.push.providers.interface import PushOutcome, PushProvider, SendResult
from chatserver.telemetry.failpoints import failpoint
from chatserver.telemetry.metrics import PUSH_NOTICES

log = structlog.get_logger()

ATTEMPTS_MAX = 4
DELIVERY_DEADLINE_S = 300.0  # no attempt starts more than this time after the call of `deliver`
IN_FLIGHT_MAX = 8  # maximum concurrent calls per push service

WAITING_MAX = 1_000
SERVICES_MAX = 1_000  # maximum push services in memory; needed because clients choose the hosts
FAILURES_MAX = 5
OPEN_S = 5.0  # how long a circuit first opens; doubled each time it opens again
OPEN_S_MAX = 60.0
BACKOFF_S = 1.0
BACKOFF_S_MAX = 60.0

Claim = Callable[[Subscription, Notice, bool], Awaitable[bool]]
RemoveSubscription = Callable[[Subscription, int], Awaitable[None]]


@dataclasses.dataclass(slots=True, eq=False)
class _Service:
    """Queue and circuit breaker of one push service."""

    slots: asyncio.Semaphore
    waiting: int = 0
    failures: int = 0
    opened: int = 0  # how many times in a row the circuit has opened
    blocked_until: float = 0.0

    def record(self, result: SendResult, now: float) -> None:
        """Update the circuit breaker with the result of a call."""
        match result.outcome:
            case PushOutcome.BUSY if not result.is_device_only:
                self.block(now + max(result.retry_after_s, BACKOFF_S))
            case PushOutcome.DOWN | PushOutcome.UNKNOWN:
                self.failures += 1
                if result.retry_after_s:
                    self.block(now + result.retry_after_s)
                if self.failures >= FAILURES_MAX and self.blocked_until <= now:
                    self.block(now + min(OPEN_S * 2**self.opened, OPEN_S_MAX))
                    self.opened = min(self.opened + 1, 10)
            case _:
                self.failures = self.opened = 0

    def block(self, until: float) -> None:
        self.blocked_until = max(self.blocked_until, until)


@attrs.define(eq=False, repr=False, kw_only=True)
class PushSender:
    """Delivers pushes.

    `claim` returns whether a push may be sent. `remove` deletes a subscription unless it has been
    renewed since a given time (ms since 1970).
    """

    _providers: Mapping[Kind, PushProvider]
    _clock: Clock
    _claim: Claim
    _remove: RemoveSubscription
    _services: collections.OrderedDict[str, _Service] = attrs.field(
        factory=collections.OrderedDict, init=False
    )
    _tasks: set[asyncio.Task[None]] = attrs.field(factory=set, init=False)

    def is_supported(self, subscription: Subscription) -> bool:
        """Return whether a provider for this kind of device is enabled."""
        return subscription.kind in self._providers

    def deliver(self, subscription: Subscription, notice: Notice) -> asyncio.Future[None]:
        """Start a delivery.

        The future completes after the first attempt, or immediately if the push is dropped or must
        wait for a service that is down.

        Guarantees:
            At most once per device and message; see the module docstring.
            Bounded: `WAITING_MAX` pushes per service; further pushes are dropped.
            Cancellation: cancelling the future does not stop the push; `close` does.
        """
        attempted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        provider = self._providers[subscription.kind]
        service = self._get_service(provider.get_host(subscription))
        if service is None or service.waiting >= WAITING_MAX:
            PUSH_NOTICES.labels("dropped").inc()
            attempted.set_result(None)
            return attempted
        service.waiting += 1
        work = self._deliver(provider, service, subscription, notice, attempted)
        task = asyncio.create_task(work, name="push")
        self._tasks.add(task)

        def finish_task(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            service.waiting -= 1
            _resolve(attempted)
            if not task.cancelled() and (failure := task.exception()) is not None:
                log.error("push.crashed", user=subscription.user, exc_info=failure)

        task.add_done_callback(finish_task)
        return attempted

    async def close(self, within_s: float) -> None:
        """Wait up to `within_s` for calls in progress, then cancel all remaining pushes."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        for task in list(self._tasks):
            task.cancel()

    def _get_service(self, name: str) -> _Service | None:
        service = self._services.get(name)
        if service is None:
            while len(self._services) >= SERVICES_MAX:
                idle = next(
                    (n for n, other_service in self._services.items() if not other_service.waiting),
                    None,
                )
                if idle is None:
                    return None
                del self._services[idle]
            service = self._services[name] = _Service(asyncio.Semaphore(IN_FLIGHT_MAX))
        self._services.move_to_end(name)
        return service

    async def _deliver(
        self,
        provider: PushProvider,
        service: _Service,
        subscription: Subscription,
        notice: Notice,
        attempted: asyncio.Future[None],
    ) -> None:
        deadline = self._clock.monotonic() + DELIVERY_DEADLINE_S
        for attempt in range(ATTEMPTS_MAX):
            if service.blocked_until > self._clock.monotonic():
                _resolve(attempted)  # do not make the caller wait until the circuit closes
            if not await self._acquire_slot(service, deadline):
                break
            try:
                result = await self._send_once(provider, subscription, notice, is_retry=attempt > 0)
                if result is None:
                    PUSH_NOTICES.labels("not_wanted").inc()
                    return
                service.record(result, self._clock.monotonic())
            finally:
                service.slots.release()
                _resolve(attempted)
            if result.outcome not in (PushOutcome.BUSY, PushOutcome.DOWN):
                await self._record_result(subscription, result)
                return
            wait_s = max(
                result.retry_after_s, add_jitter(min(BACKOFF_S * 2**attempt, BACKOFF_S_MAX))
            )
            if self._clock.monotonic() + wait_s > deadline:
                break
            await asyncio.sleep(wait_s)
        PUSH_NOTICES.labels("given_up").inc()
        log.warning("push.given_up", user=subscription.user, subscription=subscription.id)

    async def _acquire_slot(self, service: _Service, deadline: float) -> bool:
        """Wait until the service accepts another call; return False if the deadline passes.

        The circuit must be closed, with fewer than `IN_FLIGHT_MAX` calls in progress.
        """
        while True:
            await service.slots.acquire()
            now = self._clock.monotonic()
            if service.blocked_until <= now <= deadline:
                return True
            service.slots.release()
            if service.blocked_until > deadline or now > deadline:
                return False
            await asyncio.sleep(add_jitter(service.blocked_until - now) + 0.01)

    async def _send_once(
        self,
        provider: PushProvider,
        subscription: Subscription,
        notice: Notice,
        *,
        is_retry: bool,
    ) -> SendResult | None:
        try:
            if not await self._claim(subscription, notice, is_retry):
                return None
        except ChatError as exc:
            # It is unknown whether this process has the claim. Another process may have it, and a
            # push is sent at most once, so do not send.
            log.warning("push.claim_failed", user=subscription.user, error=exc.message)
            return None
        failpoint("notify.after_claim")
        result = await provider.send(subscription, notice)
        failpoint("notify.after_send")
        return result

    async def _record_result(self, subscription: Subscription, result: SendResult) -> None:
        PUSH_NOTICES.labels(result.outcome.value).inc()
        if result.outcome is PushOutcome.SENT:
            return
        log.info(
            "push.send_failed",
            user=subscription.user,
            subscription=subscription.id,
            outcome=result.outcome.value,
            reason=result.reason,
        )
        if result.outcome is PushOutcome.GONE:
            # Keep a device that registered again while this push was in progress.
            until_ms = subscription.created_ms if result.gone_ms is None else result.gone_ms
            await self._remove(subscription, until_ms)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
