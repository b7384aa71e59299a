"""Sending: bounded attempts, a claim before each push, independent services."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.errors import Unavailable
from chatserver.features.push.model import Notice, Subscription
from chatserver.features.push.providers import sender as module
from chatserver.features.push.providers.interface import Outcome, Verdict
from chatserver.features.push.providers.sender import PushSender

pytestmark = pytest.mark.constants(
    {
        "chatserver.features.push.providers.sender.ATTEMPTS_MAX": 3,
        "chatserver.features.push.providers.sender.GIVE_UP_S": 60.0,
        "chatserver.features.push.providers.sender.IN_FLIGHT_MAX": 2,
    }
)

NOTICE = Notice(ChatId("c"), Seq(7), 1, UserId("alice"), "alice", "", "hi", 1, 1)
SENT = Verdict(Outcome.SENT)
DOWN = Verdict(Outcome.DOWN)


def device(name: str, service: str = "one") -> Subscription:
    """A device whose service is named in its target."""
    return Subscription(name, UserId("bob"), "web", f"{service}/{name}")


class Services:
    """A fake push service with scripted responses, and the callbacks of the sender."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.verdicts: dict[str, list[Verdict]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.claims: list[tuple[str, bool]] = []
        self.unwanted: set[str] = set()
        self.gone: list[str] = []
        self.until: list[tuple[str, int]] = []
        self.sender = PushSender(
            providers={"web": self},
            clock=SystemClock(),
            claim=self.claim,
            gone=self.forget,
        )

    def lane_of(self, subscription: Subscription) -> str:
        return subscription.target.split("/")[0]

    async def send(self, subscription: Subscription, notice: Notice) -> Verdict:
        self.sent.append(subscription.id)
        if gate := self.gates.get(self.lane_of(subscription)):
            await gate.wait()
        verdicts = self.verdicts.get(subscription.id, [SENT])
        return verdicts.pop(0) if len(verdicts) > 1 else verdicts[0]

    async def claim(self, subscription: Subscription, notice: Notice, is_retry: bool) -> bool:
        self.claims.append((subscription.id, is_retry))
        if subscription.id == "unclaimable":
            raise Unavailable("redis is away")
        return subscription.id not in self.unwanted

    async def forget(self, subscription: Subscription, until_ms: int) -> None:
        self.gone.append(subscription.id)
        self.until.append((subscription.id, until_ms))

    async def deliver(self, *devices: Subscription) -> None:
        """Deliver and wait for the end, not for the first attempt only."""
        for one in devices:
            self.sender.deliver(one, NOTICE)
        await self.sender.close(10)


@pytest.fixture
async def services(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Services]:
    """Services, with short waits between attempts."""
    monkeypatch.setattr(module, "BACKOFF_S", 0.001)
    monkeypatch.setattr(module, "OPEN_S", 0.001)
    made = Services()
    yield made
    await made.sender.close(0)


async def test_push_that_is_refused_for_now_is_tried_so_often_and_no_more(
    services: Services,
) -> None:
    """Only what was surely not taken is attempted again, and each time it is asked for leave."""
    services.verdicts = {"down": [DOWN], "later": [DOWN, DOWN, SENT]}

    await services.deliver(device("down"), device("later"))

    assert services.sent.count("down") == services.sent.count("later") == 3
    assert [retry for name, retry in services.claims if name == "down"] == [False, True, True]


@pytest.mark.parametrize("outcome", [Outcome.SENT, Outcome.UNKNOWN, Outcome.REFUSED, Outcome.GONE])
async def test_push_that_may_have_been_taken_or_never_will_be_is_tried_once(
    services: Services, outcome: Outcome
) -> None:
    """A device that is gone is forgotten, others are not."""
    services.verdicts = {"d": [Verdict(outcome)]}

    await services.deliver(device("d"))

    assert services.sent == ["d"]
    assert services.gone == (["d"] if outcome is Outcome.GONE else [])


async def test_push_that_is_not_claimed_is_not_sent(services: Services) -> None:
    """Neither if the push is not wanted nor if the claim fails."""
    services.unwanted = {"read"}

    await services.deliver(device("read"), device("unclaimable"))

    assert services.sent == []


async def test_service_that_hangs_holds_only_its_own_pushes_up(services: Services) -> None:
    """So many calls at once for one service, and others do not notice."""
    services.gates["stuck"] = asyncio.Event()
    waiting = [services.sender.deliver(device(f"s{n}", "stuck"), NOTICE) for n in range(5)]

    await services.sender.deliver(device("free"), NOTICE)

    assert not any(future.done() for future in waiting)
    assert [name for name in services.sent if name != "free"] == ["s0", "s1"]
    services.gates["stuck"].set()
    await asyncio.wait_for(asyncio.gather(*waiting), 10)


async def test_service_with_too_much_waiting_is_given_no_more(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pushes beyond the limit are dropped at once, not kept."""
    monkeypatch.setattr(module, "WAITING_MAX", 3)
    services.gates["stuck"] = asyncio.Event()
    futures = [services.sender.deliver(device(f"s{n}", "stuck"), NOTICE) for n in range(5)]

    assert [future.done() for future in futures] == [False, False, False, True, True]
    services.gates["stuck"].set()
    await services.sender.close(10)
    assert sorted(services.sent) == ["s0", "s1", "s2"]


async def test_service_that_fails_again_and_again_is_left_alone_for_a_while(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open circuit delays nothing: waiting pushes count as attempted."""
    monkeypatch.setattr(module, "OPEN_S", 3600.0)
    services.verdicts = {f"d{n}": [Verdict(Outcome.UNKNOWN)] for n in range(module.FAILURES_MAX)}
    for n in range(module.FAILURES_MAX):
        await services.sender.deliver(device(f"d{n}"), NOTICE)

    await asyncio.wait_for(services.sender.deliver(device("next"), NOTICE), 10)
    await services.sender.deliver(device("other", "two"), NOTICE)

    assert "next" not in services.sent
    assert "other" in services.sent


async def test_device_that_has_too_much_holds_no_other_up(services: Services) -> None:
    """A service may refuse for one device alone."""
    services.verdicts = {"d": [Verdict(Outcome.BUSY, retry_after_s=3600.0, is_device_only=True)]}

    await services.sender.deliver(device("d"), NOTICE)
    await asyncio.wait_for(services.sender.deliver(device("e"), NOTICE), 10)

    assert services.sent == ["d", "e"]


async def test_device_that_is_gone_is_forgotten_as_of_then(services: Services) -> None:
    """With the time from the service, or else the registration when this push began."""
    services.verdicts = {
        "told": [Verdict(Outcome.GONE, gone_ms=7)],
        "untold": [Verdict(Outcome.GONE)],
    }

    for name in services.verdicts:
        one = dataclasses.replace(device(name), created_ms=5)
        await services.sender.deliver(one, NOTICE)
    await services.sender.close(10)

    assert sorted(services.until) == [("told", 7), ("untold", 5)]


async def test_service_that_says_when_is_asked_no_earlier(services: Services) -> None:
    """Retry-After is for all that goes to the service."""
    services.verdicts = {"d": [Verdict(Outcome.BUSY, retry_after_s=0.3), SENT]}
    clock = asyncio.get_running_loop()
    started = clock.time()

    await services.sender.deliver(device("d"), NOTICE)
    services.sender.deliver(device("e"), NOTICE)
    await services.sender.close(10)

    assert clock.time() - started >= 0.3
    assert services.sent == ["d", "d", "e"] or services.sent == ["d", "e", "d"]
