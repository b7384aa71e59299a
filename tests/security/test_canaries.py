"""Secrets are not stored or logged (row 21): unique secrets are sent, then searched everywhere."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

import httpx

from tests.security.support.users import bearer, make_key
from tests.support.rawchat import RawChat
from tests.support.scan import iter_logs, iter_redis, iter_tables
from tests.support.stack import NewName, Stack
from tests.support.wire import Ended


async def test_row_21_no_secret_is_logged_or_stored(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """No log, Redis key or table has a password, token, refresh token, key or server secret."""
    user, mark = new_name("zoe"), secrets.token_hex(8)
    passwords = {name: f"canary {name} {mark}" for name in ("first", "second", "wrong")}
    repeat = {"Idempotency-Key": f"key-{mark}"}

    async def post(path: str, body: dict[str, str], **headers: str) -> httpx.Response:
        return await client.post(path, json=body, headers={**repeat, **headers})

    first = {"user": user, "password": passwords["first"]}
    granted = (await post("/v1/auth/register", first)).json()
    wrong = await post("/v1/auth/login", {"user": user, "password": passwords["wrong"]})
    misspelled = await post("/v1/auth/login", {"user": user, "passwort": passwords["wrong"]})
    change = {"current": passwords["first"], "password": passwords["second"]}
    changed = await client.put("/v1/me/password", json=change, headers=bearer(granted["token"]))
    again = (await post("/v1/auth/refresh", {"refresh_token": granted["refresh_token"]})).json()
    key = await make_key(stack, "users:read")
    shown = await client.get(f"/v1/admin/users/{user}", headers=bearer(key))
    query = await client.get("/v1/me", params={"token": again["token"]})
    async with RawChat(user, stack.port, lambda _: again["token"]) as device:
        await device.request("auth", token=again["token"])
    forged = again["token"][:-4] + "AAAA"
    with contextlib.suppress(Ended):
        await RawChat(user, stack.port, lambda _: forged).start()
    codes = [each.status_code for each in (wrong, misspelled, changed, shown, query)]
    assert codes == [401, 400, 204, 200, 401]

    canaries = {
        **passwords,
        "access token": granted["token"],
        "newer access token": again["token"],
        "forged token": forged,
        "refresh token": granted["refresh_token"].rpartition(".")[2],
        "newer refresh token": again["refresh_token"].rpartition(".")[2],
        "API key": key.split("_", 2)[2],
        "auth.secret": stack.secret,
    }

    def find_canaries() -> list[str]:
        return [
            f"{name} in {where}"
            for found in (iter_logs(stack), iter_redis(stack), iter_tables(stack))
            for where, content in found
            for name, secret in canaries.items()
            if secret.encode() in content
        ]

    assert await asyncio.to_thread(find_canaries) == []
