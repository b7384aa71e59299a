"""Sending of pushes: limited attempts, a claim before each push, independent services."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.errors import Unavailable
from chatserver.features.push.model import Notice, Subscription
from chatserver.features.push.providers.interface import PushOutcome, SendResult
from chatserver.features.push.worker import push_sender as module
from chatserver.features.push.worker.push_sender import PushSender
from tests.support.deadlines import EXIT_S

pytestmark = pytest.mark.constants(
    {
        "chatserver.features.push.worker.push_sender.ATTEMPTS_MAX": 3,
        "chatserver.features.push.worker.push_sender.DELIVERY_DEADLINE_S": 60.0,
        "chatserver.features.push.worker.push_sender.IN_FLIGHT_MAX": 2,
    }
)

NOTICE = Notice(ChatId("c"), Seq(7), 1, UserId("alice"), "alice", "", "hi", 1, 1)
SENT = SendResult(PushOutcome.SENT)
DOWN = SendResult(PushOutcome.DOWN)


def device(name: str, service: str = "one") -> Subscription:
    """Return a device whose service is named in its target."""
    return Subscription(name, UserId("bob"), "web", f"{service}/{name}")


class FakeServices:
    """Fake push services with scripted responses, and the callbacks of the sender."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.results: dict[str, list[SendResult]] = {}
        self.blocked: dict[str, asyncio.Event] = {}
        self.claims: list[tuple[str, bool]] = []
        self.unwanted: set[str] = set()
        self.deleted: list[str] = []
        self.until: list[tuple[str, int]] = []
        self.sender = PushSender(
            providers={"web": self},
            clock=SystemClock(),
            claim=self.claim,
            remove=self.delete,
        )

    def get_host(self, subscription: Subscription) -> str:
        return subscription.target.split("/")[0]

    async def send(self, subscription: Subscription, notice: Notice) -> SendResult:
        self.sent.append(subscription.id)
        if release := self.blocked.get(self.get_host(subscription)):
            async with asyncio.timeout(EXIT_S):
                await release.wait()
        results = self.results.get(subscription.id, [SENT])
        return results.pop(0) if len(results) > 1 else results[0]

    async def claim(self, subscription: Subscription, notice: Notice, is_retry: bool) -> bool:
        self.claims.append((subscription.id, is_retry))
        if subscription.id == "unclaimable":
            raise Unavailable("redis is down")
        return subscription.id not in self.unwanted

    async def delete(self, subscription: Subscription, until_ms: int) -> None:
        self.deleted.append(subscription.id)
        self.until.append((subscription.id, until_ms))

    async def deliver(self, *devices: Subscription) -> None:
        """Deliver, and wait until all attempts have ended."""
        for each in devices:
            self.sender.deliver(each, NOTICE)
        await self.sender.close(10)


@pytest.fixture
async def services(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeServices]:
    """Return fake services, with short waits between attempts."""
    monkeypatch.setattr(module, "BACKOFF_S", 0.001)
    monkeypatch.setattr(module, "OPEN_S", 0.001)
    fakes = FakeServices()
    yield fakes
    await fakes.sender.close(0)


async def test_temporarily_refused_push_is_retried_up_to_the_limit(
    services: FakeServices,
) -> None:
    """Only a push that was certainly not accepted is retried, with a claim for each attempt."""
    services.results = {"down": [DOWN], "later": [DOWN, DOWN, SENT]}

    await services.deliver(device("down"), device("later"))

    assert services.sent.count("down") == services.sent.count("later") == 3
    assert [retry for name, retry in services.claims if name == "down"] == [False, True, True]


@pytest.mark.parametrize(
    "outcome", [PushOutcome.SENT, PushOutcome.UNKNOWN, PushOutcome.REFUSED, PushOutcome.GONE]
)
async def test_push_with_unknown_or_final_outcome_is_not_retried(
    services: FakeServices, outcome: PushOutcome
) -> None:
    """A device that no longer exists is deleted, others are not."""
    services.results = {"d": [SendResult(outcome)]}

    await services.deliver(device("d"))

    assert services.sent == ["d"]
    assert services.deleted == (["d"] if outcome is PushOutcome.GONE else [])


async def test_push_without_a_claim_is_not_sent(services: FakeServices) -> None:
    """The push may not be wanted any more, or the claim may fail."""
    services.unwanted = {"read"}

    await services.deliver(device("read"), device("unclaimable"))

    assert services.sent == []


async def test_service_that_hangs_delays_only_its_own_pushes(services: FakeServices) -> None:
    """The number of concurrent calls per service is limited, and other services do not wait."""
    services.blocked["stuck"] = asyncio.Event()
    waiting = [services.sender.deliver(device(f"s{n}", "stuck"), NOTICE) for n in range(5)]

    await services.sender.deliver(device("free"), NOTICE)

    assert not any(future.done() for future in waiting)
    assert [name for name in services.sent if name != "free"] == ["s0", "s1"]
    services.blocked["stuck"].set()
    await asyncio.wait_for(asyncio.gather(*waiting), 10)


async def test_pushes_beyond_the_waiting_limit_are_dropped(
    services: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push that finds the queue full is dropped at once."""
    monkeypatch.setattr(module, "WAITING_MAX", 3)
    services.blocked["stuck"] = asyncio.Event()
    futures = [services.sender.deliver(device(f"s{n}", "stuck"), NOTICE) for n in range(5)]

    assert [future.done() for future in futures] == [False, False, False, True, True]
    services.blocked["stuck"].set()
    await services.sender.close(10)
    assert sorted(services.sent) == ["s0", "s1", "s2"]


async def test_circuit_opens_after_repeated_failures_of_a_service(
    services: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the circuit is open, pushes to the service are dropped at once."""
    monkeypatch.setattr(module, "OPEN_S", 3600.0)
    services.results = {
        f"d{n}": [SendResult(PushOutcome.UNKNOWN)] for n in range(module.FAILURES_MAX)
    }
    for n in range(module.FAILURES_MAX):
        await services.sender.deliver(device(f"d{n}"), NOTICE)

    await asyncio.wait_for(services.sender.deliver(device("next"), NOTICE), 10)
    await services.sender.deliver(device("other", "two"), NOTICE)

    assert "next" not in services.sent
    assert "other" in services.sent


async def test_busy_device_does_not_delay_other_devices(services: FakeServices) -> None:
    """A service may rate-limit a single device."""
    services.results = {
        "d": [SendResult(PushOutcome.BUSY, retry_after_s=3600.0, is_device_only=True)]
    }

    await services.sender.deliver(device("d"), NOTICE)
    await asyncio.wait_for(services.sender.deliver(device("e"), NOTICE), 10)

    assert services.sent == ["d", "e"]


async def test_deleted_device_has_the_time_of_its_deletion(services: FakeServices) -> None:
    """The time comes from the service, or else from the registration that the push used."""
    services.results = {
        "with-time": [SendResult(PushOutcome.GONE, gone_ms=7)],
        "without-time": [SendResult(PushOutcome.GONE)],
    }

    for name in services.results:
        each = dataclasses.replace(device(name), created_ms=5)
        await services.sender.deliver(each, NOTICE)
    await services.sender.close(10)

    assert sorted(services.until) == [("with-time", 7), ("without-time", 5)]


async def test_retry_after_of_a_service_is_respected(services: FakeServices) -> None:
    """The delay applies to all pushes of the service."""
    services.results = {"d": [SendResult(PushOutcome.BUSY, retry_after_s=0.05), SENT]}
    clock = asyncio.get_running_loop()
    started = clock.time()

    await services.sender.deliver(device("d"), NOTICE)
    services.sender.deliver(device("e"), NOTICE)
    await services.sender.close(10)

    assert clock.time() - started >= 0.05
    assert services.sent == ["d", "d", "e"] or services.sent == ["d", "e", "d"]
