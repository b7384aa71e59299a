"""Password accounts: registration, login, refresh and logout (API2, API6, row 22).

DynamoDB refuses requests with the limits of AWS.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import httpx
import pytest

from chatserver import config
from chatserver.dev.servers import Server
from chatserver.domain.ids import UserId
from chatserver.hot.redis.factory import open_hot
from tests.security.support.fixtures import FAST_HASHES
from tests.security.support.users import PASSWORD, NewClient, bearer, log_in, make_key, register
from tests.support.rawchat import RawChat
from tests.support.servers.processes import redis_client
from tests.support.stack import PATIENT, NewName, Stack, open_stack

UNAUTHENTICATED = 3500


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose DynamoDB has the limits of AWS."""
    folder = tmp_path_factory.mktemp("limited")
    with open_stack(folder, fsync="no", env=PATIENT, is_limited=True) as made:
        yield made


@pytest.fixture(scope="session")
def accounts_api(stack: Stack) -> Server:
    """An API process of that stack with fast password hashes."""
    return stack.start_api(**FAST_HASHES)


def device_of(stack: Stack, user: str, token: str, device: str = "d1") -> RawChat:
    """Return a device with this token."""
    return RawChat(user, stack.port, lambda _: token, device=device)


async def test_registered_account_connects_until_logout(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """The gateway accepts the token of a new account until the logout."""
    user = new_name("zoe")
    granted = await register(client, user.upper(), name="Zoë", device="Laptop")
    chat = await device_of(stack, user, granted["token"]).start()

    me = (await client.get("/v1/me", headers=bearer(granted["token"]))).json()
    out = await client.post("/v1/auth/logout", json={}, headers=bearer(granted["token"]))

    assert (granted["user"], me["user"], me["name"]) == (user, user, "Zoë")
    assert granted["expires_in_s"] <= 3600
    assert out.status_code == 204
    await asyncio.wait_for(chat.ended.wait(), 30)
    again = await client.get("/v1/me", headers=bearer(granted["token"]))
    assert (again.status_code, again.json()["code"]) == (401, "unauthenticated")
    body = {"refresh_token": granted["refresh_token"]}
    assert (await client.post("/v1/auth/refresh", json=body)).status_code == 401


async def test_register_with_taken_or_reserved_name_is_refused(
    client: httpx.AsyncClient, new_name: NewName
) -> None:
    """Existing names in any spelling, reserved names and lookalikes are refused."""
    user = new_name("zoe")
    await register(client, user)

    for name in (user, user.upper(), "system", "admin", "r00t", "Supp0rt"):
        body = {"user": name, "password": PASSWORD}
        answer = await client.post("/v1/auth/register", json=body)
        assert answer.json()["code"] == "conflict", name


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("ab", PASSWORD),
        ("a#b", PASSWORD),
        ("a{b}", PASSWORD),
        ("_zoe", PASSWORD),
        ("zoe\n", "short"),
        ("zoe-x", "1234567"),
        ("zoe-x-long", "zoe-x-long1!"),
        ("zoe-x", "aaaaaaaaaaaa"),
        ("zoe-x", "password"),
        ("zoe-x", "12345678"),
        ("zoe-x", "chatserver1"),
        ("zoe-x", "with\u0000null"),
        ("zoe-x", "ü" * 257),
    ],
)
async def test_register_with_invalid_name_or_password_is_refused(
    client: httpx.AsyncClient, user: str, password: str
) -> None:
    """An invalid id, or a password that is too easy or too long, creates no account."""
    answer = await client.post("/v1/auth/register", json={"user": user, "password": password})

    assert answer.status_code in (400, 413), answer.text
    assert f'"{password}"' not in answer.text, "the response must not contain the password"


async def test_login_unknown_user_and_wrong_password_get_the_same_response(
    client: httpx.AsyncClient, new_name: NewName
) -> None:
    """Status and body are equal, and both take the time of a password hash."""
    user = new_name("zoe")
    await register(client, user)
    answers: dict[str, list[float]] = {user: [], new_name("nobody"): []}
    seen = set()
    for _ in range(4):
        for name, times in answers.items():
            started = time.monotonic()
            body = {"user": name, "password": "wrong password"}
            answer = await client.post("/v1/auth/login", json=body)
            times.append(time.monotonic() - started)
            seen.add((answer.status_code, answer.text))

    assert len(seen) == 1
    assert next(iter(seen))[0] == 401
    known, unknown = (min(times) for times in answers.values())
    # Both include a hash. The wide range allows for a slow machine.
    assert 0.05 < known / unknown < 20


async def test_login_attempts_per_name_are_limited(
    client: httpx.AsyncClient, new_name: NewName
) -> None:
    """After five attempts a name, existing or not, is refused. Others can still log in."""
    user, other = new_name("zoe"), new_name("yan")
    await register(client, user)
    await register(client, other)

    for name in (user, new_name("nobody")):
        body = {"user": name, "password": "wrong password"}
        codes = [(await client.post("/v1/auth/login", json=body)).status_code for _ in range(8)]
        assert codes[:5] == [401] * 5
        assert codes[-1] == 429

    refused = await client.post("/v1/auth/login", json={"user": user, "password": PASSWORD})
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    await log_in(client, other)


async def test_refresh_rotates_and_concurrent_requests_get_the_same_token(
    client: httpx.AsyncClient, new_name: NewName
) -> None:
    """A refresh token works once. Concurrent requests get the same next token."""
    granted = await register(client, new_name("zoe"))
    body = {"refresh_token": granted["refresh_token"]}

    first, second = await asyncio.gather(
        client.post("/v1/auth/refresh", json=body), client.post("/v1/auth/refresh", json=body)
    )

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["refresh_token"] == second.json()["refresh_token"]
    assert first.json()["refresh_token"] != granted["refresh_token"]
    assert first.json()["device"] == granted["device"]


async def test_reused_refresh_token_ends_the_login(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """Late use of a spent token indicates theft, so the login ends for both holders."""
    user = new_name("zoe")
    stolen = (await register(client, user))["refresh_token"]
    granted = (await client.post("/v1/auth/refresh", json={"refresh_token": stolen})).json()
    third = await client.post("/v1/auth/refresh", json={"refresh_token": granted["refresh_token"]})
    chat = await device_of(stack, user, third.json()["token"]).start()

    # Two generations old, so outside of the grace period for retries.
    reused = await client.post("/v1/auth/refresh", json={"refresh_token": stolen})

    assert reused.status_code == 401
    await asyncio.wait_for(chat.ended.wait(), 30)
    rest = {"refresh_token": third.json()["refresh_token"]}
    assert (await client.post("/v1/auth/refresh", json=rest)).status_code == 401


async def test_forged_refresh_token_does_not_end_the_login(
    client: httpx.AsyncClient, new_name: NewName
) -> None:
    """A token with a valid login id and a wrong MAC does not end the login."""
    granted = await register(client, new_name("zoe"))
    user, login, _, mac = granted["refresh_token"].split(".")
    forged = [
        f"{user}.{login}.1.{'A' * 43}",
        f"{user}.{login}.2.{mac}",
        f"{user}.{login}.0.{mac}",
        f"someone.{login}.1.{mac}",
        f"{user}.{login}.1.{mac}\n",
        "x",
    ]

    for token in forged:
        answer = await client.post("/v1/auth/refresh", json={"refresh_token": token})
        assert answer.status_code == 401, token

    body = {"refresh_token": granted["refresh_token"]}
    assert (await client.post("/v1/auth/refresh", json=body)).status_code == 200


async def test_row_01_password_change_logs_out_every_other_device(
    stack: Stack, new_client: NewClient, new_name: NewName
) -> None:
    """The device that changed the password stays logged in. The old password is refused."""
    user, client = new_name("zoe"), new_client()
    here = await register(client, user)
    there = await log_in(client, user)
    chats = [
        await device_of(stack, user, granted["token"], f"d{n}").start()
        for n, granted in enumerate((here, there))
    ]
    change = {"current": PASSWORD, "password": "another long secret"}
    wrong = {"current": "not this one", "password": "another long secret"}

    refused = await client.put("/v1/me/password", json=wrong, headers=bearer(there["token"]))
    done = await client.put("/v1/me/password", json=change, headers=bearer(here["token"]))

    assert (refused.status_code, done.status_code) == (403, 204)
    await asyncio.wait_for(chats[1].ended.wait(), 30)
    await chats[0].request("chats")
    await chats[0].stop()
    body = {"refresh_token": there["refresh_token"]}
    assert (await client.post("/v1/auth/refresh", json=body)).status_code == 401
    old = await client.post("/v1/auth/login", json={"user": user, "password": PASSWORD})
    assert old.status_code == 401
    await log_in(client, user, "another long secret")


async def test_devices_are_listed_and_logged_out_individually(
    stack: Stack, new_client: NewClient, new_name: NewName
) -> None:
    """Users can list and log out only their own devices."""
    user, client = new_name("zoe"), new_client()
    here = await register(client, user, device="Laptop")
    there = await log_in(client, user)
    other = await register(client, new_name("yan"))
    mine = bearer(here["token"])
    newest = (await client.get("/v1/me/devices?limit=1", headers=mine)).json()
    query = {"limit": 1, "cursor": newest["next"]}
    oldest = (await client.get("/v1/me/devices", params=query, headers=mine)).json()
    shown = [*newest["items"], *oldest["items"]]

    foreign = await client.delete(
        f"/v1/me/devices/{there['device']}", headers=bearer(other["token"])
    )
    own = await client.delete(f"/v1/me/devices/{there['device']}", headers=bearer(here["token"]))

    assert [device["device"] for device in shown] == [there["device"], here["device"]]
    assert oldest["next"] is None
    by_id = {device["device"]: device for device in shown}
    assert by_id.keys() == {here["device"], there["device"]}
    assert by_id[here["device"]]["name"] == "Laptop"
    assert [by_id[one["device"]]["is_current"] for one in (here, there)] == [True, False]
    assert (foreign.status_code, own.status_code) == (404, 204)
    assert (await client.get("/v1/me", headers=bearer(there["token"]))).status_code == 401
    assert (await client.get("/v1/me", headers=bearer(here["token"]))).status_code == 200


async def test_login_beyond_the_device_limit_ends_the_least_recently_used(
    client: httpx.AsyncClient, new_name: NewName
) -> None:
    """The login succeeds, and the least recently used device is logged out."""
    user = new_name("zoe")
    granted = [await register(client, user)]
    granted += [await log_in(client, user) for _ in range(4)]

    codes = [
        (await client.get("/v1/me", headers=bearer(each["token"]))).status_code for each in granted
    ]

    assert codes == [401, 200, 200, 200, 200]


async def test_row_22_banned_user_cannot_log_in_refresh_or_connect(
    stack: Stack, accounts_api: Server, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """Password, refresh token and access token are refused until the ban is lifted."""
    user = new_name("zoe")
    granted = await register(client, user)
    key = await make_key(stack, "users:write", "users:read")
    chat = await device_of(stack, user, granted["token"]).start()

    banned = await client.put(f"/v1/admin/users/{user}/ban", headers=bearer(key))

    assert banned.status_code == 204
    await asyncio.wait_for(chat.ended.wait(), 30)
    body = {"user": user, "password": PASSWORD}
    assert (await client.post("/v1/auth/login", json=body)).status_code == 403
    refresh = {"refresh_token": granted["refresh_token"]}
    assert (await client.post("/v1/auth/refresh", json=refresh)).status_code == 403
    assert (await client.get("/v1/me", headers=bearer(granted["token"]))).status_code == 403
    account = (await client.get(f"/v1/admin/users/{user}", headers=bearer(key))).json()
    assert account["is_banned"]
    await client.delete(f"/v1/admin/users/{user}/ban", headers=bearer(key))
    await log_in(client, user)


async def test_refresh_cookie_is_unusable_by_scripts_and_other_sites(
    client: httpx.AsyncClient, new_name: NewName
) -> None:
    """It is HttpOnly, SameSite=Strict, for one path, and accepted only from our own origin."""
    ours = {"X-Chat-Client": "web", "Origin": str(client.base_url).rstrip("/")}
    body = {"user": new_name("zoe"), "password": PASSWORD, "cookie": True}

    answer = await client.post("/v1/auth/register", json=body, headers=ours)

    flags = answer.headers["set-cookie"].lower()
    assert all(f in flags for f in ("httponly", "samesite=strict", "path=/v1/auth"))
    assert "refresh_token" not in answer.json()
    for wrong in (
        {},
        {**ours, "Origin": "https://evil.example"},
        {**ours, "Origin": "null"},
        {**ours, "Sec-Fetch-Site": "cross-site"},
        {**ours, "Sec-Fetch-Site": "same-site"},
    ):
        refused = await client.post("/v1/auth/refresh", json={}, headers=wrong)
        assert refused.status_code == 403, wrong
    assert (await client.post("/v1/auth/refresh", json={}, headers=ours)).status_code == 200
    out = await client.post("/v1/auth/logout", json={}, headers=ours)
    assert out.status_code == 204
    assert (await client.post("/v1/auth/refresh", json={}, headers=ours)).status_code == 401


@pytest.mark.parametrize("path", ["register", "login"])
async def test_login_repeated_with_its_idempotency_key_is_one_login(
    client: httpx.AsyncClient, new_name: NewName, path: str
) -> None:
    """A retry gets the same response, but the key does not replace the password."""
    user, key = new_name("zoe"), {"Idempotency-Key": new_name("k")}
    body = {"user": user, "password": PASSWORD, "device": "Laptop"}
    if path == "login":
        await register(client, user)

    async def send(**other: str) -> httpx.Response:
        return await client.post(f"/v1/auth/{path}", json=body | other, headers=key)

    first, second = await asyncio.gather(send(), send())
    again = await send()
    guess = await send(password="a wrong password")
    other = await send(device="Phone")

    assert [each.is_success for each in (first, second, again)] == [True] * 3
    tokens = {each.json()["refresh_token"] for each in (first, second, again)}
    assert len(tokens) == 1
    assert guess.status_code == (409 if path == "register" else 401)
    assert "token" not in guess.json()
    assert other.status_code == 409
    me = bearer(again.json()["token"])
    devices = (await client.get("/v1/me/devices", headers=me)).json()["items"]
    assert [each["name"] for each in devices].count("Laptop") == 1
    spent = await client.post("/v1/auth/refresh", json={"refresh_token": tokens.pop()})
    assert spent.status_code == 200
    assert (await send()).status_code == 409


async def test_key_acting_for_a_banned_user_is_refused(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """A key with `act_as` cannot read, send or change anything for a banned user.

    This also holds if Redis has lost the ban.
    """
    user, other = new_name("zoe"), new_name("yan")
    for each in (user, other):
        await register(client, each)
    scopes = ("users:write", "users:read", "chats:write", "messages:write", "act_as")
    key = bearer(await make_key(stack, *scopes))
    acting = {**key, "X-Chat-As": user}
    opened = await client.put(f"/v1/direct-chats/{other}", headers=acting)
    assert opened.status_code in (200, 201), opened.text
    sending = f"/v1/chats/{opened.json()['chat']}/messages"
    assert (await client.put(f"/v1/admin/users/{user}/ban", headers=key)).status_code == 204

    async def check_refused() -> None:
        for method, path, body in (
            ("POST", sending, {"ref": "r1", "body": "hello"}),
            ("PATCH", "/v1/me", {"name": "Zoë"}),
            ("GET", "/v1/me", None),
        ):
            answer = await client.request(method, path, json=body, headers=acting)
            assert (answer.status_code, answer.json().get("code")) == (403, "forbidden"), path

    await check_refused()
    async with open_hot(config.Redis(url=stack.redis_url, call_timeout_s=20)) as hot:
        keys = hot.keys.box(UserId(user)), hot.keys.revoked(UserId(user))
        with redis_client(stack.redis_url) as redis:
            assert redis.delete(*keys) == 2
    await check_refused()

    await client.delete(f"/v1/admin/users/{user}/ban", headers=key)
    sent = await client.post(sending, json={"ref": "r2", "body": "hello"}, headers=acting)
    assert sent.status_code in (200, 201), sent.text
