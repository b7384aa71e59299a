"""APNs with a stub service: requests, responses, and removed devices."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator

import pytest

from chatserver import config
from chatserver.config import Warm
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.features.push.container import PushContainer
from chatserver.features.push.hot import PushState
from chatserver.features.push.model import Notice, Subscription, subscription_id
from chatserver.features.push.providers.apns import Apns
from chatserver.features.push.providers.interface import PushOutcome
from chatserver.features.push.settings import Notify
from chatserver.outbound.http2_client import open_http2
from chatserver.telemetry.metrics import PUSH_REFUSALS
from tests.integration.features.push.support import LOOPBACK, PushWorld, open_push_world
from tests.support.servers.apns_service import RESET, TOPIC, ApnsService
from tests.support.servers.processes import eventually
from tests.support.servers.push_service import PushService, Reply

pytestmark = pytest.mark.constants({"chatserver.features.push.worker.push_worker.POLL_MS": 20})
pytest_plugins = ["tests.integration.features.push.apns_fixtures"]

DEVICE = "ab" * 32
PHONE = Subscription("s", UserId("bob"), "apns", DEVICE)
NOTICE = Notice(
    ChatId("c1"), Seq(7), 1, UserId("alice"), "Alice", "Team", "Lunch?", unread=2, badge=5
)


def apns_error(status: int, reason: str, times: int | None = None, **more: int) -> Reply:
    """Return a response of APNs that refuses a push."""
    return Reply(status, body=json.dumps({"reason": reason, **more}), times=times)


@pytest.fixture
async def apns(apns_service: ApnsService) -> AsyncIterator[Apns]:
    settings = Notify(**apns_service.settings())
    outbound = config.Outbound(allow_private=LOOPBACK)
    async with open_http2(apns_service.url, outbound) as server:
        yield Apns(server, settings, SystemClock())


async def test_apns_request_has_the_documented_headers_and_payload(
    apns: Apns, apns_service: ApnsService
) -> None:
    """Two pushes share one connection and one provider token."""
    for _ in range(2):
        assert (await apns.send(PHONE, NOTICE)).outcome is PushOutcome.SENT

    assert (len(apns_service.tokens), apns_service.connected) == (1, 1)
    taken, _ = apns_service.requests_for(DEVICE)
    headers = taken.headers
    assert (headers[":method"], headers[":scheme"]) == ("POST", "https")
    assert headers["apns-topic"] == TOPIC
    assert (headers["apns-push-type"], headers["apns-priority"]) == ("alert", "10")
    assert abs(int(headers["apns-expiration"]) - time.time() - 86_400) < 60
    assert headers["apns-collapse-id"] == NOTICE.topic
    assert len(NOTICE.topic.encode()) <= 64
    assert json.loads(taken.body) == {
        "aps": {
            "alert": {"title": "Alice in Team", "body": "Lunch?"},
            "badge": 5,
            "thread-id": "c1",
            "sound": "default",
        },
        "v": 1,
        "chat": "c1",
        "seq": 7,
        "ts": 1,
        "sender": "alice",
        "unread": 2,
    }


@pytest.mark.parametrize(
    ("status", "reason", "outcome"),
    [
        (400, "BadDeviceToken", PushOutcome.GONE),
        (410, "Unregistered", PushOutcome.GONE),
        (410, "ExpiredToken", PushOutcome.GONE),
        (400, "DeviceTokenNotForTopic", PushOutcome.REFUSED),
        (400, "TopicDisallowed", PushOutcome.REFUSED),
        (403, "InvalidProviderToken", PushOutcome.REFUSED),
        (403, "ExpiredProviderToken", PushOutcome.DOWN),
        (404, "BadPath", PushOutcome.REFUSED),
        (413, "PayloadTooLarge", PushOutcome.REFUSED),
        (429, "TooManyRequests", PushOutcome.BUSY),
        (429, "TooManyProviderTokenUpdates", PushOutcome.BUSY),
        (500, "InternalServerError", PushOutcome.UNKNOWN),
        (503, "Shutdown", PushOutcome.DOWN),
        (403, "Ünheard", PushOutcome.REFUSED),
    ],
)
async def test_apns_error_has_an_outcome_by_its_reason(
    apns: Apns, apns_service: ApnsService, status: int, reason: str, outcome: PushOutcome
) -> None:
    """`GONE` deletes the device; `BUSY` and `DOWN` are retried."""
    label = reason if reason.isascii() else "other"
    before = PUSH_REFUSALS.labels("apns", label)._value.get()
    apns_service.set_replies(DEVICE, apns_error(status, reason))

    verdict = await apns.send(PHONE, NOTICE)

    assert verdict.outcome is outcome
    assert verdict.reason == f"status {status} {label}"
    assert verdict.is_device_only is (reason == "TooManyRequests"), "other devices must remain"
    assert PUSH_REFUSALS.labels("apns", label)._value.get() == before + 1


@pytest.mark.parametrize(
    ("body", "gone_ms"),
    [
        ('{"reason":"Unregistered","timestamp":1700000000000}', 1_700_000_000_000),
        ('{"reason":"Unregistered","timestamp":"soon"}', None),
        ('{"reason":"Unregistered","timestamp":true}', None),
        ('{"reason":7}', None),
        ("[" * 4000, None),
        ("", None),
    ],
)
async def test_apns_gone_device_has_a_time_if_the_body_is_valid(
    apns: Apns, apns_service: ApnsService, body: str, gone_ms: int | None
) -> None:
    """The status alone means that the device is gone."""
    apns_service.set_replies(DEVICE, Reply(410, body=body))

    verdict = await apns.send(PHONE, NOTICE)

    assert (verdict.outcome, verdict.gone_ms) == (PushOutcome.GONE, gone_ms)


async def test_apns_expired_provider_token_is_renewed_once(
    apns: Apns, apns_service: ApnsService
) -> None:
    """APNs refuses providers that renew their token too often."""
    apns_service.set_replies(DEVICE, apns_error(403, "ExpiredProviderToken"))

    first = await asyncio.gather(*(apns.send(PHONE, NOTICE) for _ in range(5)))
    later = [await apns.send(PHONE, NOTICE) for _ in range(3)]

    assert {verdict.outcome for verdict in [*first, *later]} == {PushOutcome.DOWN}
    assert len(apns_service.tokens) == 2
    apns_service.set_replies(DEVICE)
    assert (await apns.send(PHONE, NOTICE)).outcome is PushOutcome.SENT
    assert len(apns_service.tokens) == 2


async def test_apns_stream_reset_has_an_outcome_by_its_code(
    apns: Apns, apns_service: ApnsService
) -> None:
    """`REFUSED_STREAM` means that it was not processed. After another code, it may have been."""
    apns_service.set_replies(
        DEVICE,
        Reply(RESET, body="REFUSED_STREAM", times=1),
        Reply(RESET, body="INTERNAL_ERROR", times=1),
    )

    outcomes = [(await apns.send(PHONE, NOTICE)).outcome for _ in range(3)]

    assert outcomes == [PushOutcome.DOWN, PushOutcome.UNKNOWN, PushOutcome.SENT]


@pytest.fixture
async def world_with_apns(
    redis_url: str, push_warm: Warm, push_service: PushService, apns_service: ApnsService
) -> AsyncIterator[PushWorld]:
    """Three users, and the container of a worker that also uses APNs."""
    more = apns_service.settings()
    async with open_push_world(redis_url, push_warm, push_service, **more) as made:
        yield made


async def register(world: PushWorld, user: UserId, device: str | None = None) -> Subscription:
    """Register a user's mobile application, as the API does."""
    device = device or secrets.token_hex(32)
    made = Subscription(subscription_id("apns", device), user, "apns", device)
    await PushState(world.hot).record_devices(user)
    await world.container.get(PushContainer).subscriptions.put(made, time.time())
    return made


async def list_subscriptions(world: PushWorld, user: UserId) -> list[str]:
    return [
        one.id
        for one in await world.container.get(PushContainer).subscriptions.list_for_user(
            user, time.time()
        )
    ]


async def test_apns_absent_user_gets_one_push_of_the_newest_message_per_device(
    world_with_apns: PushWorld, apns_service: ApnsService
) -> None:
    """All messages within the delay get one push; the next push replaces it on the screen."""
    world = world_with_apns
    direct, group = await world.direct(), await world.group()
    phone, tablet = await register(world, world.bob), await register(world, world.bob)
    browser = await world.subscribe(world.bob)
    await world.send(direct, "One", "Two", "Three")

    async with world.running_worker():
        for one in (phone, tablet):
            (payload,) = await apns_service.wait_for(one.target, 1)
            aps = payload["aps"]
            assert aps["alert"] == {"title": world.alice, "body": "Three"}
            assert (aps["badge"], aps["thread-id"], payload["seq"]) == (3, direct.chat, 3)
        await browser.wait_for(1)
        await world.send(direct, "Four")
        await apns_service.wait_for(phone.target, 2)
        await world.send(group, "Hello")
        payloads = await apns_service.wait_for(phone.target, 3)
        await world.wait_until_scanned()

    assert [one["aps"]["badge"] for one in payloads] == [3, 4, 5]
    first, second, third = apns_service.requests_for(phone.target)
    collapse = "apns-collapse-id"
    assert first.headers[collapse] == second.headers[collapse] != third.headers[collapse]
    assert (len(apns_service.taken), apns_service.connected) == (6, 1)


async def test_apns_push_is_retried_only_if_it_was_not_sent(
    world_with_apns: PushWorld, apns_service: ApnsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device gets at most one push per message. An expired provider token is renewed."""
    monkeypatch.setattr("chatserver.features.push.worker.push_sender.BACKOFF_S", 0.01)
    world = world_with_apns
    direct = await world.direct()
    busy, expired, failing = [await register(world, world.bob) for _ in range(3)]
    apns_service.set_replies(busy.target, apns_error(429, "TooManyRequests", times=2))
    apns_service.set_replies(expired.target, apns_error(403, "ExpiredProviderToken", times=1))
    apns_service.set_replies(failing.target, apns_error(500, "InternalServerError", times=1))

    async with world.running_worker():
        await world.send(direct, "Hello")
        for one, count in ((busy, 3), (expired, 2), (failing, 1)):
            await apns_service.wait_for(one.target, count)
        await world.wait_until_scanned()
        await world.send(direct, "Again")
        for one, count in ((busy, 4), (expired, 3), (failing, 2)):
            await apns_service.wait_for(one.target, count)
        await world.wait_until_scanned()

    assert len(apns_service.taken) == 9
    assert len(apns_service.tokens) == 2
    assert sorted(await list_subscriptions(world, world.bob)) == sorted(
        [busy.id, expired.id, failing.id]
    )


async def test_apns_gone_device_is_removed_unless_registered_again(
    world_with_apns: PushWorld, apns_service: ApnsService
) -> None:
    """A device that registered after the reported time, or during the push, is kept."""
    world = world_with_apns
    direct, now_ms = await world.direct(), int(time.time() * 1000)
    bad, gone, registered_later, bad_key = [await register(world, world.bob) for _ in range(4)]
    returning = await register(world, world.bob)
    gate = asyncio.Event()
    apns_service.set_replies(bad.target, apns_error(400, "BadDeviceToken"))
    apns_service.set_replies(
        gone.target, apns_error(410, "Unregistered", timestamp=now_ms + 60_000)
    )
    apns_service.set_replies(
        registered_later.target, apns_error(410, "Unregistered", timestamp=now_ms - 60_000)
    )
    apns_service.set_replies(bad_key.target, apns_error(403, "InvalidProviderToken"))
    late = apns_error(400, "BadDeviceToken")
    late.gate = gate
    apns_service.set_replies(returning.target, late)

    async with world.running_worker():
        await world.send(direct, "Hello")
        for one in (bad, gone, registered_later, bad_key, returning):
            await apns_service.wait_for(one.target, 1)
        # The device registers again before the response arrives.
        await register(world, world.bob, returning.target)
        gate.set()

        async def are_removed() -> bool:
            return {bad.id, gone.id}.isdisjoint(await list_subscriptions(world, world.bob))

        await eventually(are_removed, 60)
        await world.wait_until_scanned()

    assert sorted(await list_subscriptions(world, world.bob)) == sorted(
        [registered_later.id, bad_key.id, returning.id]
    )
    assert len(apns_service.taken) == 5
