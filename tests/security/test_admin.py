"""API keys of the host application, and the admin routes (API5)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from chatserver.auth.api_keys import SCOPES
from tests.security.support.users import (
    bearer,
    log_in,
    make_key,
    open_keys,
    register,
    run_any_cli,
    run_cli,
)
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack
from tests.support.stored_items import read_partitions


async def admin_routes(client: httpx.AsyncClient) -> list[tuple[str, str, str]]:
    """Return method, path and rule of each admin route, from the OpenAPI document."""
    document = (await client.get("/v1/openapi.json")).json()
    return [
        (
            method.upper(),
            re.sub(r"\{seq\}", "1", re.sub(r"\{(?!seq)\w+\}", "x", path)),
            operation["x-rule"],
        )
        for path, item in document["paths"].items()
        if path.startswith("/v1/admin")
        for method, operation in item.items()
    ]


async def test_api5_admin_routes_refuse_users_and_keys_without_the_scope(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """A user's token, no token, and a key with all other scopes are refused."""
    token = (await register(client, new_name("zoe")))["token"]
    routes = await admin_routes(client)
    assert len(routes) >= 12
    scopes = {rule.rpartition("key with scope ")[2] for _, _, rule in routes}
    assert scopes <= SCOPES.keys()
    async with open_keys(stack) as made:
        keys = {one: (await made.create("test", SCOPES.keys() - {one}))[1] for one in scopes}

    for method, path, rule in routes:
        wrong = keys[rule.rpartition("key with scope ")[2]]
        anonymous = await client.request(method, path)
        user = await client.request(method, path, headers=bearer(token))
        key = await client.request(method, path, headers=bearer(wrong))
        assert anonymous.status_code == 401, (method, path)
        assert user.status_code == 403, (method, path)
        assert key.status_code == 403, (method, path)


async def test_key_is_created_listed_rotated_and_revoked(
    stack: Stack, client: httpx.AsyncClient
) -> None:
    """A key works until it is revoked. Its secret is printed once and never stored."""
    made = (
        await run_cli(stack, "keys", "create", "--name", "billing", "--scope", "users:read")
    ).strip()
    key = made.split("_")[1]

    async def status(text: str) -> int:
        path = "/v1/admin/users/nobody-there"
        return (await client.get(path, headers=bearer(text))).status_code

    assert await status(made) == 404
    async with open_keys(stack) as keys:
        listed = str(await keys.list_all())
        rotated = await keys.rotate(key, 600)
    await wait_for_status(status, rotated, 404)
    assert await status(made) == 404
    await run_cli(stack, "keys", "revoke", key)
    await wait_for_status(status, rotated, 401)
    await wait_for_status(status, made, 401)
    rows = str(await asyncio.to_thread(read_partitions, *_key_partition(stack)))
    assert "billing" in listed
    for text in (made, rotated):
        secret = text.split("_", 2)[2]
        assert secret not in rows
        assert secret not in listed


def _key_partition(stack: Stack) -> tuple[str, str, str, str]:
    return (stack.dynamodb.endpoint, "chat_directory", "PK", "keys")


async def wait_for_status(status: Callable[[str], Any], text: str, wanted: int) -> None:
    """Wait until a request with a key gets a status, because processes cache keys for seconds."""

    async def has_status() -> bool:
        return bool(await status(text) == wanted)

    await eventually(has_status, deadline_s=60, what=f"a request with the key gets {wanted}")


async def test_key_without_act_as_scope_cannot_act_for_a_user(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """`X-Chat-As` needs a key with scope `act_as` and an existing user."""
    user = new_name("zoe")
    token = (await register(client, user))["token"]
    with_scope, without_scope = (
        await make_key(stack, "act_as", "users:read"),
        await make_key(stack, "users:read"),
    )

    async def me(credential: str, name: str) -> httpx.Response:
        return await client.get("/v1/me", headers={**bearer(credential), "X-Chat-As": name})

    assert (await me(with_scope, user)).json()["user"] == user
    assert (await me(without_scope, user)).status_code == 403
    assert (await me(token, user)).status_code == 403
    assert (await me(with_scope, new_name("nobody"))).status_code == 404
    assert (await me(with_scope, "a#b")).status_code == 400
    path = "/v1/me/devices"
    assert (
        await client.get(path, headers={**bearer(with_scope), "X-Chat-As": user})
    ).status_code == 403


@pytest.mark.parametrize("key", ["ck_", "ck_x_y", "ck_" + "0" * 26 + "_" + "A" * 43, "ck_" * 40])
async def test_invalid_api_key_is_refused(client: httpx.AsyncClient, key: str) -> None:
    """Whatever its form, an invalid key is unauthenticated."""
    answer = await client.get("/v1/admin/users/zoe", headers=bearer(key))

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_host_manages_users_sessions_and_messages(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """Create users and a chat, send and delete messages, list and close sessions."""
    ann, ben = new_name("ann"), new_name("ben")
    headers = bearer(await make_key(stack, *SCOPES))

    async def post(path: str, body: dict[str, Any], **more: str) -> httpx.Response:
        return await client.post(path, json=body, headers={**headers, **more})

    made = [await post("/v1/admin/users", {"user": user, "name": user}) for user in (ann, ben)]
    again = await post("/v1/admin/users", {"user": ann})
    password = {"password": "a password of ann"}
    given = await client.put(f"/v1/admin/users/{ann}/password", json=password, headers=headers)
    login = await client.post("/v1/auth/login", json={"user": ann, **password})
    chat = (await post("/v1/admin/chats", {"members": [ann, ben], "name": "news"})).json()["chat"]
    token = login.json()["token"]
    async with RawChat(ann, stack.port, lambda _: token) as device:
        sent = await post(f"/v1/admin/chats/{chat}/messages", {"body": "hello"})
        seq = sent.json()["seq"]
        pushed = await device.expect_frame("event", kind="message", chat=chat)
        written = await post(
            f"/v1/chats/{chat}/messages", {"body": "from ben"}, **{"X-Chat-As": ben}
        )
        gone = await client.delete(
            f"/v1/admin/chats/{chat}/messages/{written.json()['seq']}", headers=headers
        )
        await device.expect_frame("event", kind="delete", chat=chat)
        sessions, devices = [
            (await client.get(f"/v1/admin/users/{ann}/{what}", headers=headers)).json()["items"]
            for what in ("sessions", "devices")
        ]
        closed = await client.delete(f"/v1/admin/users/{ann}/sessions", headers=headers)
        await asyncio.wait_for(device.ended.wait(), 30)

    assert [answer.status_code for answer in made] == [201, 201]
    assert again.json()["code"] == "conflict"
    assert (given.status_code, login.status_code) == (204, 200)
    assert (pushed["message"]["sender"], pushed["message"]["seq"]) == ("system", seq)
    assert (gone.status_code, closed.status_code) == (204, 204)
    assert [session["device"] for session in sessions] == [f"{ann}-1"]
    assert [device["device"] for device in devices] == [login.json()["device"]]


async def test_system_message_reaches_a_group_without_membership(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """The host application can send to any group without making the system user a member."""
    headers = bearer(await make_key(stack, *SCOPES))
    ben = new_name("ben")
    await stack.add_users([ben])
    async with stack.chat_of(new_name("ann")) as ann:
        chat = (await ann.request("create_chat", ref="g", members=[ben], name="news"))["chat"][
            "chat"
        ]
        path = f"/v1/admin/chats/{chat}/messages"

        sent = await client.post(path, json={"body": "hello", "ref": "s1"}, headers=headers)
        again = await client.post(path, json={"body": "hello", "ref": "s1"}, headers=headers)
        event = await ann.expect_frame("event", kind="message", chat=chat)
        members = (await ann.read_list())[chat]["members"]
        nowhere = await client.post(
            "/v1/admin/chats/g-nowhere/messages", json={"body": "x"}, headers=headers
        )

    assert (sent.status_code, again.json()) == (201, sent.json())
    assert (event["message"]["sender"], event["message"]["body"]) == ("system", "hello")
    assert sorted(members) == sorted([ann.user, ben])
    assert nowhere.json()["code"] == "not_found"


async def test_broadcast_reaches_each_user_once(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """Each user gets the message once per ref, in the direct chat with the system user."""
    users = [new_name("fan") for _ in range(12)]
    await stack.add_users(users)
    headers = bearer(await make_key(stack, "broadcast"))
    body = {"users": [*users, new_name("nobody")], "body": "We are open.", "ref": new_name("b")}

    first = await client.post("/v1/admin/broadcasts", json=body, headers=headers)
    again = await client.post("/v1/admin/broadcasts", json=body, headers=headers)

    job = first.json()["broadcast"]
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json()["broadcast"] == job

    async def is_done() -> bool:
        found = (await client.get(f"/v1/admin/broadcasts/{job}", headers=headers)).json()
        return bool(found["state"] == "done")

    await eventually(is_done, deadline_s=60, what="the broadcast is done")
    found = (await client.get(f"/v1/admin/broadcasts/{job}", headers=headers)).json()
    assert (found["total"], found["done"], found["failed"]) == (13, 12, 1)
    token = bearer(stack.token(users[0]))
    chats = (await client.get("/v1/chats", headers=token)).json()["items"]
    assert [(chat["kind"], chat["top"]) for chat in chats] == [("direct", 1)]
    other = bearer(await make_key(stack, "users:read"))
    assert (await client.get(f"/v1/admin/broadcasts/{job}", headers=other)).status_code == 403


async def test_password_command_creates_a_user_only_with_an_allowed_password(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """A refused password, and a name that cannot log in, leave no account."""
    ann = new_name("ann")
    keys = bearer(await make_key(stack, *SCOPES))
    short = await run_any_cli(stack, "password", ann, "--password", "short")
    large = await run_any_cli(stack, "password", ann.upper(), "--password", "a long password")
    found = [
        (await client.get(f"/v1/admin/users/{user}", headers=keys)).status_code
        for user in (ann, ann.upper())
    ]
    for password in ("the first password", "the second password"):
        await run_cli(stack, "password", ann, "--password", password)

    assert (short.returncode, large.returncode) == (1, 1)
    assert "password: " in short.stderr and "uppercase" in large.stderr
    assert found == [404, 404]
    assert (await log_in(client, ann, "the second password"))["user"] == ann
