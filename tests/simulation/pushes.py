"""Simulated push service: the product's push provider without encryption and HTTP, with faults."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId
from chatserver.features.push.model import Kind, Notice, Subscription, subscription_id
from chatserver.features.push.providers.interface import PushOutcome, PushProvider, SendResult
from tests.simulation.loop import SimulatedLoop

DELAY_S = (0.005, 0.05)
_HOST = "push.simulated"
# Failures: busy, not reached, no response before or after the push was accepted.
_FAILURES = ("busy", "down", "lost_request", "lost_response")


class Taken(NamedTuple):
    """A push that the service accepted."""

    t: float
    notice: Notice


class PushService:
    """The service, its condition, and the pushes that it accepted."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.taken: dict[str, list[Taken]] = {}  # by user
        self.repair()

    def repair(self) -> None:
        """End all faults."""
        self.is_down = False
        self.failure_share = 0.0

    def get_host(self, subscription: Subscription) -> str:
        return _HOST

    async def send(self, subscription: Subscription, notice: Notice) -> SendResult:
        """Accept a push, or fail; see `PushProvider`."""
        rng = self.loop.rng
        await asyncio.sleep(rng.uniform(*DELAY_S))
        failure = "down" if self.is_down else ""
        if not failure and rng.random() < self.failure_share:
            failure = rng.choice(_FAILURES)
        match failure:
            case "busy":
                return SendResult(PushOutcome.BUSY, 0.5, failure)
            case "down":
                return SendResult(PushOutcome.DOWN, reason=failure)
            case "lost_request":
                return SendResult(PushOutcome.UNKNOWN, reason=failure)
        self.taken.setdefault(subscription.user, []).append(Taken(self.loop.now, notice))
        await asyncio.sleep(rng.uniform(*DELAY_S))
        return SendResult(PushOutcome.UNKNOWN if failure else PushOutcome.SENT, reason=failure)


class Browser:
    """A user's browser, as the model test reads it."""

    def __init__(self, service: PushService, user: str) -> None:
        self._service = service
        target = f"https://{_HOST}/{user}"
        self.subscription = Subscription(
            subscription_id("web", target), UserId(user), "web", target, "key", "secret"
        )

    @property
    def taken(self) -> list[Taken]:
        return self._service.taken.get(self.subscription.user, [])

    def read(self, taken: Taken) -> dict[str, Any]:
        """Return the content of a push."""
        return {"chat": taken.notice.chat, "seq": taken.notice.seq, "ts": taken.notice.ts}


@contextlib.asynccontextmanager
async def open_simulated_providers(
    service: PushService, settings: Settings, clock: Clock
) -> AsyncIterator[dict[Kind, PushProvider]]:
    """Replacement of `open_providers`."""
    yield {"web": service}
