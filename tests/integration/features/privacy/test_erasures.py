"""Erasure of users: data in all stores, access afterwards, and killed workers."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio

from chatserver.dev.servers import Server
from tests.integration.features.privacy.support import PASSWORD, Person, Vault, wait_for_erasure
from tests.security.support.users import bearer, make_key
from tests.support.rawchat import RawChat
from tests.support.scan import iter_logs, iter_redis, iter_tables
from tests.support.servers.processes import eventually, redis_client
from tests.support.wire import Ended

pytest_plugins = ["tests.integration.features.privacy.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
NewPerson = Callable[[str], Person]
# The failpoints of an erasure, in the order in which it reaches them.
FAILPOINTS = (
    "erasure.after_chats",
    "erasure.in_messages",
    "erasure.in_files",
    "erasure.in_social",
    "erasure.after_traces",
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def key(vault: Vault) -> str:
    return await make_key(
        vault.stack, "users:write", "users:impersonate", "users:erase", "chats:read", "act_as"
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def erasure_worker(vault: Vault) -> AsyncIterator[Server]:
    worker = vault.start_worker("exports", "erasures")
    yield worker
    worker.kill()


def find(vault: Vault, mark: str) -> list[str]:
    """Return the names of log files, Redis keys, items and objects that contain a mark."""
    stores = (
        iter_logs(vault.stack), iter_redis(vault.stack), iter_tables(vault.stack),
        vault.iter_objects(),
    )  # fmt: skip
    return [name for found in stores for name, content in found if mark.encode() in content]


async def create_data(
    vault: Vault, zoe: Person, bob: Person, key: str, mark: str
) -> dict[str, Any]:
    """Write a mark to all data that zoe can create; return ids and the number of messages."""
    client = zoe.client
    made = {"user": zoe.user, "name": f"name {mark}"}
    headers = {**bearer(key), "Idempotency-Key": "make"}
    answer = await client.post("/v1/admin/users", json=made, headers=headers)
    assert answer.status_code == 201, answer.text
    path, body = f"/v1/admin/users/{zoe.user}/password", {"password": PASSWORD}
    assert (await client.put(path, json=body, headers=bearer(key))).status_code == 204
    login = {"user": zoe.user, "password": PASSWORD, "device": f"device {mark}"}
    zoe.token = (await zoe.request("POST", "/v1/auth/login", 200, login))["token"]
    await zoe.request("PATCH", "/v1/me", 200, {"about": f"about {mark}", "discoverable": True})
    await zoe.request("POST", "/v1/me/push-subscriptions", 201, {"token": f"token-{mark}"})
    chat = await zoe.open_direct(bob.user)
    group = (await zoe.request("POST", "/v1/chats", 201, {"members": [bob.user]}))["chat"]
    await bob.send(chat, "bob's own")
    await zoe.request("PUT", f"/v1/chats/{chat}/messages/1/report", 204, {"reason": f"why {mark}"})
    for chat_id in (chat, group):
        edited = await zoe.send(chat_id, f"one {mark}")
        for text in ("two", "three"):
            change = {"body": f"{text} {mark}"}
            await zoe.request("PATCH", f"/v1/chats/{chat_id}/messages/{edited}", 200, change)
        file = await zoe.upload(chat_id, f"content {mark}".encode(), f"file {mark}.txt")
        await zoe.send(chat_id, f"file {mark}", attachments=[file])
        await zoe.send(chat_id, f"for a while {mark}", expires_s=60)
    expiring = await send_expiring(zoe, chat, mark)
    await zoe.upload(chat, f"never sent {mark}".encode(), f"unsent {mark}.txt")
    bobs_post = (await bob.request("POST", "/v1/me/posts", 201, {"content": "bob posts"}))["id"]
    zoes_post = (await zoe.request("POST", "/v1/me/posts", 201, {"content": f"post {mark}"}))["id"]
    await zoe.request("PATCH", f"/v1/me/posts/{zoes_post}", 200, {"content": f"edited {mark}"})
    await zoe.request("PUT", f"/v1/users/{bob.user}/posts/{bobs_post}/like", 204)
    await zoe.request("PUT", f"/v1/me/favorites/posts/{bob.user}/{bobs_post}", 204)
    await zoe.request("PUT", f"/v1/me/favorites/messages/{chat}/1", 204)
    await zoe.request("PUT", f"/v1/me/following/{bob.user}", 204)
    await bob.request("PUT", f"/v1/me/following/{zoe.user}", 204)
    assert (await bob.request("GET", f"/v1/users/{zoe.user}"))["about"] == f"about {mark}"
    await zoe.request("POST", "/v1/me/export", 202)
    return {"chat": chat, "group": group, "post": bobs_post, "messages": 2 * 3 + expiring}


async def send_expiring(zoe: Person, chat: str, mark: str) -> int:
    """Send and edit a message that expires soon; return the number of messages sent."""
    for count, expires_s in enumerate((1, 10, 60), 1):
        seq = await zoe.send(chat, f"fleeting {mark}", expires_s=expires_s)
        change, headers = {"body": f"f {mark}"}, bearer(zoe.token)
        path = f"/v1/chats/{chat}/messages/{seq}"
        answer = await zoe.client.patch(path, json=change, headers=headers)
        if answer.status_code == 200:
            return count
        # On a slow machine, the message expired before the edit.
        assert answer.status_code == 404, answer.text
    raise AssertionError("every message expired before its edit")


def signal_to(worker: Server, number: signal.Signals) -> None:
    """Send a signal that pauses or continues a worker."""
    assert worker.process is not None
    worker.process.send_signal(number)


def add_dead_letter(vault: Vault, user: str, mark: str) -> None:
    """Add a message of the user to the dead letters of the persist worker."""
    tail = f'"chat":"x","mid":"m","sender":"{user}","body":"{mark}"}}'
    with redis_client(vault.stack.redis_url) as client:
        client.xadd("{p0}:dead", {"s": 1, "t": 1, "r": "", "m": tail, "why": "a test"})


async def test_erasure_removes_all_data_despite_killed_workers(
    vault: Vault, new_person: NewPerson, key: str, erasure_worker: Server
) -> None:
    """No store and no log contains the mark any more. The seqs of messages remain."""
    zoe, bob, mark = new_person("zoe"), new_person("bob"), f"canary{secrets.token_hex(8)}"
    await bob.register()
    async with RawChat(bob.user, vault.stack.port, lambda _: bob.token) as device:
        made = await create_data(vault, zoe, bob, key, mark)
        async with RawChat(zoe.user, vault.stack.port, lambda _: zoe.token) as zoe_device:
            await zoe_device.send(made["chat"], f"by the socket {mark}")
            await zoe.wait_for_export()

            async def has_dead_letter() -> bool:
                return "{p0}:hooks-dead" in await asyncio.to_thread(find, vault, mark)

            await eventually(has_dead_letter, 60, "an event is a dead letter")
            signal_to(erasure_worker, signal.SIGSTOP)
            add_dead_letter(vault, zoe.user, mark)
            before = await asyncio.to_thread(find, vault, mark)

            receipt = await zoe.request("DELETE", "/v1/me", 202, {"password": PASSWORD})
            await zoe_device.expect_close(3502)
        for name in FAILPOINTS:
            worker = vault.start_worker("erasures", failpoint=name)
            await eventually(lambda worker=worker: worker.process.poll() is not None, 60, name)
        signal_to(erasure_worker, signal.SIGCONT)
        done = await wait_for_erasure(bob.client, receipt["receipt"])
        after = await asyncio.to_thread(find, vault, mark)
        await device.request("chats", limit=10)

    assert {"{p0}:backlog", "{p0}:hooks-dead", "{p0}:dead"} - set(before) <= {"{p0}:backlog"}
    assert [place for place in before if place.startswith("exports/")]
    assert after == []
    page = await bob.request("GET", f"/v1/chats/{made['chat']}/messages?limit=100")
    seqs = [each["seq"] for each in page["messages"]]
    assert seqs == list(range(1, len(seqs) + 1))
    assert page["messages"][0]["body"] == "bob's own"
    assert {each["sender"] for each in page["messages"] if each.get("deleted")} == {zoe.user}
    members = await bob.request("GET", f"/v1/chats/{made['group']}/members")
    assert [(each["user"], each["role"]) for each in members["items"]] == [(bob.user, "owner")]
    await bob.request("GET", f"/v1/users/{zoe.user}", 404)
    profile = await bob.request("GET", f"/v1/users/{bob.user}")
    assert (profile["followers"], profile["following"]) == (0, 0)
    likes = await bob.request("GET", f"/v1/users/{bob.user}/posts/{made['post']}/likes")
    assert likes["items"] == []
    assert [each["step"] for each in done["steps"]][-1] == "check"
    counts = {each["what"]: each["count"] for each in done["steps"]}
    assert counts["favorites"] == 2
    # The other messages and the one sent over the socket.
    assert counts["messages whose text was deleted"] == made["messages"] + 1


async def test_erased_user_has_no_access_and_the_name_stays_taken(
    vault: Vault, new_person: NewPerson, key: str, erasure_worker: Server
) -> None:
    """Password, token, refresh token, acting as the user and a new registration are refused."""
    zoe, bob = new_person("zoe"), new_person("bob")
    await zoe.register()
    await bob.register()
    await zoe.open_direct(bob.user)
    refresh = await zoe.request("POST", "/v1/auth/login", 200, login_of(zoe))
    wrong = await zoe.request("DELETE", "/v1/me", 403, {"password": "another password"})

    receipt = await zoe.request("DELETE", "/v1/me", 202, {"password": PASSWORD})
    early = await zoe.client.get("/v1/me", headers=bearer(zoe.token))
    await wait_for_erasure(zoe.client, receipt["receipt"])

    assert wrong["code"] == "forbidden"
    assert early.status_code == 403
    await zoe.request("GET", "/v1/me", 403)
    vault.stack.delete_user_state(zoe.user)
    await zoe.request("GET", "/v1/me", 403)  # this also holds after Redis lost its data
    with pytest.raises(Ended):
        await RawChat(zoe.user, vault.stack.port, lambda _: zoe.token).start()
    zoe.token = ""
    await zoe.request("POST", "/v1/auth/login", 401, login_of(zoe))
    body = {"refresh_token": refresh["refresh_token"]}
    await zoe.request("POST", "/v1/auth/refresh", 401, body)
    await zoe.request("POST", "/v1/auth/register", 409, login_of(zoe))
    acting = {**bearer(key), "X-Chat-As": zoe.user}
    assert (await zoe.client.get("/v1/chats", headers=acting)).status_code == 404
    unban = await zoe.client.delete(f"/v1/admin/users/{zoe.user}/ban", headers=bearer(key))
    assert unban.status_code == 404
    await bob.request("PUT", f"/v1/direct-chats/{zoe.user}", 404)
    await bob.request("GET", f"/v1/erasures/{'0' * 48}", 404)


async def test_erasure_by_the_application_is_idempotent(
    vault: Vault, new_person: NewPerson, key: str, erasure_worker: Server
) -> None:
    """The receipt is the same. A user without a password needs a recent token."""
    zoe = new_person("zoe")
    path, headers = f"/v1/admin/users/{zoe.user}", bearer(key)
    absent = await zoe.client.delete(path, headers=headers)
    zoe.token = vault.stack.token(zoe.user)
    await zoe.request("GET", "/v1/me")

    first = (await zoe.client.delete(path, headers=headers)).json()
    again = (await zoe.client.delete(path, headers=headers)).json()
    await wait_for_erasure(zoe.client, first["receipt"])
    later = (await zoe.client.delete(path, headers=headers)).json()

    assert absent.status_code == 404
    assert first["receipt"] == again["receipt"] == later["receipt"]
    assert later["state"] == "done"
    yan = new_person("yan")
    yan.token = vault.stack.token(yan.user)
    await yan.request("GET", "/v1/me")
    await yan.request("DELETE", "/v1/me", 202, {})


def login_of(person: Person) -> dict[str, str]:
    return {"user": person.user, "password": PASSWORD}


async def test_erasure_of_the_system_user_is_refused(vault: Vault, key: str) -> None:
    """It is the sender of the host application's messages."""
    async with httpx.AsyncClient(base_url=vault.api.endpoint, timeout=30) as client:
        answer = await client.delete("/v1/admin/users/system", headers=bearer(key))

    assert answer.status_code == 403
