"""Push subscriptions and muted chats over HTTP, and the pushes to a browser."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from chatserver import config
from chatserver.api.app import create_app
from chatserver.config import Warm
from chatserver.container.storage import StorageContainer, open_storage_container
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.features.push.container import PushContainer
from chatserver.features.push.settings import Notify
from tests.integration.api.support import problem_of
from tests.integration.features.push.support import LOOPBACK, PushWorld
from tests.integration.workers.support import settings_of
from tests.support.servers.push_service import PushService

pytestmark = pytest.mark.constants({"chatserver.features.push.model.SUBSCRIPTIONS_MAX": 2})

SUBSCRIPTIONS = "/v1/me/push-subscriptions"
INVALID_FIELDS: list[dict[str, Any]] = [
    {"endpoint": "http://push.example/x"},
    {"endpoint": "https://10.0.0.1/x"},
    {"endpoint": "https://169.254.169.254/latest"},
    {"endpoint": "https://[::ffff:10.0.0.1]/x"},
    {"endpoint": "https://user:pass@push.example/x"},
    {"endpoint": "file:///etc/passwd"},
    {"endpoint": "https://push.example/" + "x" * 1024},
    {"keys": {"p256dh": "AAAA", "auth": "AAAA"}},
    {"keys": {"p256dh": "BA" + "A" * 85, "auth": "A" * 22}},
    {"keys": None},
    {"token": "also"},
    {"endpoint": None, "keys": None, "token": "with space"},
    {"kind": "apns"},
    {"endpoint": None, "keys": None, "kind": "apns"},
    {"endpoint": None, "keys": None, "kind": "web", "token": "ab" * 32},
    {"endpoint": None, "keys": None, "kind": "sms", "token": "ab" * 32},
    *(
        {"endpoint": None, "keys": None, "kind": "apns", "token": token}
        for token in ("fcm-like:token", "ab" * 31, "ab" * 101, "a" * 65, "../" * 24)
    ),
    {"endpoint": None, "keys": None},
]


@dataclasses.dataclass
class PushApi:
    """An API and a factory of its clients."""

    container: StorageContainer
    client_of: Callable[[str], httpx.AsyncClient]


@pytest.fixture
async def api(redis_url: str, push_warm: Warm, push_service: PushService) -> AsyncIterator[PushApi]:
    """An API with the Redis and the tables of the worker."""
    settings = settings_of(
        redis_url,
        push_warm,
        auth=config.Auth(secret=SecretStr("0123456789abcdef" * 2)),
        notify=Notify(vapid_public=push_service.vapid_public),
        outbound=config.Outbound(allow_private=LOOPBACK),
    )
    clock = SystemClock()
    async with open_storage_container(role="api", settings=settings, clock=clock) as container:
        transport = httpx.ASGITransport(create_app(settings, clock, container))

        def client_of(user: str) -> httpx.AsyncClient:
            headers = {"Authorization": f"Bearer {container.tokens.issue(UserId(user), 600)}"}
            return httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1", headers=headers
            )

        yield PushApi(container, client_of)


def form_of(browser: Any) -> dict[str, Any]:
    """Return the request body with a browser's subscription."""
    return {"endpoint": browser.endpoint, "expirationTime": None, "keys": browser.keys}


async def test_push_subscription_gets_pushes_until_it_is_removed(
    world: PushWorld, api: PushApi, push_service: PushService
) -> None:
    """The page subscribes, and the browser decrypts the text of the push."""
    direct, bob = await world.direct(), api.client_of(world.bob)
    browser = push_service.new_browser()

    made = await bob.post(SUBSCRIPTIONS, json=form_of(browser))
    assert made.status_code == 201, made.text
    again = await bob.post(SUBSCRIPTIONS, json=form_of(browser))
    assert again.json()["id"] == made.json()["id"]
    listed = (await bob.get(SUBSCRIPTIONS)).json()
    assert [(one["id"], one["kind"]) for one in listed["items"]] == [(made.json()["id"], "web")]
    assert browser.endpoint not in str(listed), "the response must not contain the endpoint"
    assert browser.keys["auth"] not in str(listed)

    async with world.running_worker():
        await world.send(direct, "Over HTTP")
        assert (await browser.wait_for(1))[0]["text"] == "Over HTTP"
        removed = await bob.delete(f"{SUBSCRIPTIONS}/{made.json()['id']}")
        assert removed.status_code == 204
        await world.send(direct, "Too late")
        await world.wait_until_scanned()
    assert len(browser.taken) == 1
    assert problem_of(await bob.delete(f"{SUBSCRIPTIONS}/{made.json()['id']}"))[0] == 404


async def test_push_subscription_of_an_application_is_for_fcm_or_apns(
    world: PushWorld, api: PushApi
) -> None:
    """One token is a different device for each service; APNs tokens ignore case."""
    bob, token = api.client_of(world.bob), secrets.token_hex(32)
    forms: list[dict[str, str]] = [
        {"token": token},
        {"token": token, "kind": "apns"},
        {"token": token.upper(), "kind": "apns"},
    ]

    made = [(await bob.post(SUBSCRIPTIONS, json=form)).json() for form in forms]

    assert [one["kind"] for one in made] == ["fcm", "apns", "apns"]
    assert made[1]["id"] == made[2]["id"] != made[0]["id"]
    answer = await bob.get(SUBSCRIPTIONS)
    assert [(one["kind"], one["service"]) for one in answer.json()["items"]] == [
        ("fcm", "fcm"),
        ("apns", "apns"),
    ]
    assert token not in answer.text.lower(), "the response must not contain the token"
    stored = await api.container.get(PushContainer).subscriptions.list_for_user(
        world.bob, api.container.clock.time()
    )
    assert [one.target for one in stored] == [token, token]


async def test_push_subscription_belongs_to_the_last_user_who_registered_it(
    world: PushWorld, api: PushApi, push_service: PushService
) -> None:
    """After another user logs in, the browser gets no pushes of the previous user."""
    direct, browser = await world.direct(), push_service.new_browser()
    bob, carol = api.client_of(world.bob), api.client_of(world.carol)

    await bob.post(SUBSCRIPTIONS, json=form_of(browser))
    assert (await carol.post(SUBSCRIPTIONS, json=form_of(browser))).status_code == 201

    assert (await bob.get(SUBSCRIPTIONS)).json()["items"] == []
    assert len((await carol.get(SUBSCRIPTIONS)).json()["items"]) == 1
    async with world.running_worker():
        await world.send(direct, "For Bob alone")
        await world.wait_until_scanned()
    assert browser.taken == []


async def test_push_subscriptions_are_limited_and_removed_with_their_device(
    world: PushWorld, api: PushApi, push_service: PushService
) -> None:
    """Beyond the limit, the oldest subscription is removed."""
    bob, subscriptions = api.client_of(world.bob), api.container.get(PushContainer).subscriptions
    names = []
    for _ in range(3):
        made = await bob.post(SUBSCRIPTIONS, json=form_of(push_service.new_browser()))
        names.append(made.json()["id"])
    listed = (await bob.get(SUBSCRIPTIONS)).json()["items"]
    assert [one["id"] for one in listed] == names[1:]

    now = api.container.clock.time()
    phone = push_service.new_browser().subscription_of(world.carol, "phone")
    await subscriptions.put(phone, now)
    laptop = push_service.new_browser().subscription_of(world.carol, "laptop")
    await subscriptions.put(laptop, now)
    assert await subscriptions.remove_for_device(world.carol, "phone", now) == 1
    assert [one.id for one in await subscriptions.list_for_user(world.carol, now)] == [laptop.id]
    assert await subscriptions.remove_all(world.bob, now) == 2


async def test_invalid_push_subscription_is_refused(
    api: PushApi, push_service: PushService
) -> None:
    """Private addresses, invalid keys and inconsistent fields are refused."""
    mallory = api.client_of("mallory")
    for change in INVALID_FIELDS:
        form = form_of(push_service.new_browser()) | change
        answer = await mallory.post(SUBSCRIPTIONS, json=form)
        assert problem_of(answer) == (400, "bad_request"), change


async def test_push_subscriptions_are_removed_with_their_login(
    world: PushWorld, api: PushApi, push_service: PushService
) -> None:
    """A logout removes the subscriptions of the login; the end of all logins removes all."""
    account = {"user": f"dora-{world.bob}", "password": "correct horse battery"}
    client = api.client_of("mallory")
    grants = [(await client.post("/v1/auth/register", json=account)).json()]
    for _ in range(2):
        grants.append((await client.post("/v1/auth/login", json=account)).json())
    headers = [{"Authorization": f"Bearer {grant['token']}"} for grant in grants]
    names = []
    for one in headers[:2]:
        form = form_of(push_service.new_browser())
        made = await client.post(SUBSCRIPTIONS, json=form, headers=one)
        names.append(made.json()["id"])

    async def listed() -> list[str]:
        answer = await client.get(SUBSCRIPTIONS, headers=headers[2])
        return [one["id"] for one in answer.json()["items"]]

    assert await listed() == names
    assert (await client.post("/v1/auth/logout", json={}, headers=headers[0])).status_code == 204
    assert await listed() == names[1:]
    await api.container.revocation.end_all(UserId(account["user"]), "test", but=grants[2]["device"])
    assert await listed() == []


async def test_muted_chat_is_a_setting_of_each_member(world: PushWorld, api: PushApi) -> None:
    """Other members are not affected, and a stranger gets 404."""
    direct = await world.direct()
    bob, alice = api.client_of(world.bob), api.client_of(world.alice)
    path = f"/v1/chats/{direct.chat}/notifications"

    assert (await bob.get(path)).json() == {"quiet": False, "until": None}
    assert (await bob.put(path, json={"quiet": True})).json() == {"quiet": True, "until": None}
    assert (await bob.get(path)).json() == {"quiet": True, "until": None}
    assert (await alice.get(path)).json()["quiet"] is False
    assert (await bob.put(path, json={"quiet": True, "until": 9_999_999_999})).status_code == 200
    assert (await bob.get(path)).json() == {"quiet": True, "until": 9_999_999_999}
    assert (await bob.put(path, json={"quiet": False})).json()["quiet"] is False
    assert (await bob.get(path)).json()["quiet"] is False
    stranger = api.client_of("mallory")
    assert problem_of(await stranger.get(path))[0] == 404
    assert problem_of(await stranger.put(path, json={"quiet": True}))[0] == 404
    assert problem_of(await bob.put(path, json={"quiet": True, "until": -1}))[0] == 400
