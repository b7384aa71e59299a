"""Retention and legal holds over HTTP, for the host application."""

from __future__ import annotations

from typing import Any

import httpx

from chatserver.dev.servers import Server
from tests.integration.api.support import Caller, make_group, problem_of, send
from tests.security.support.users import bearer, make_key
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import Stack


async def open_host(stack: Stack, api: Server) -> httpx.AsyncClient:
    """Return a client of the host application with the scopes for holds and retention."""
    key = await make_key(stack, "holds", "chats:write")
    return httpx.AsyncClient(base_url=api.endpoint, headers=bearer(key), timeout=20)


async def test_retention_over_http_expires_later_messages(
    stack: Stack, api: Server, caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Earlier messages do not expire. Only the host application may set the retention."""
    mine = caller(alice.user)
    group = await make_group(mine, bob.user)
    async with await open_host(stack, api) as host:
        for chat in (pair, group):
            await send(mine, chat, "sent before")
            path = f"/v1/admin/chats/{chat}/retention"
            first = (await host.put(path, json={"retention_s": 3600})).json()
            again = await host.put(path, json={"retention_s": 3600})
            await send(mine, chat, "sent after")
            assert first["retention_s"] == 3600
            assert again.status_code == 200
        refused = await host.put(path, json={"retention_s": -1})
        absent = await host.put("/v1/admin/chats/nothing/retention", json={"retention_s": 1})
        by_member = await caller(bob.user).patch(f"/v1/chats/{group}", json={"retention_s": 0})

    await bob.expect(
        lambda me: [info.get("retention_s") for info in chats_of(me, pair)][-1:] == [3600]
    )
    for chat in (pair, group):
        listed = (await mine.get(f"/v1/chats/{chat}/messages")).json()["messages"]
        expires = {each["body"]: "expires_at" in each for each in listed if each["kind"] == "text"}
        assert expires == {"sent before": False, "sent after": True}
    assert problem_of(refused) == (400, "bad_request")
    assert "retention_s" in refused.json()["detail"]
    assert problem_of(absent) == (404, "not_found")
    assert problem_of(by_member) == (403, "forbidden")


def chats_of(device: RawChat, chat: str) -> list[dict[str, Any]]:
    """Return the chat infos that a device received."""
    return [each["info"] for each in device.of_type("event", kind="chat", chat=chat)]


async def test_hold_over_http_keeps_deleted_messages(
    stack: Stack, api: Server, caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Members see a deleted message; the host application reads it until the hold ends."""
    mine = caller(alice.user)
    path = f"/v1/admin/chats/{pair}"
    async with await open_host(stack, api) as host:
        none = await host.get(f"{path}/hold")
        without_reason = await host.put(f"{path}/hold", json={"reason": " "})
        made = (await host.put(f"{path}/hold", json={"reason": "case 7"})).json()
        again = (await host.put(f"{path}/hold", json={"reason": "another"})).json()
        await send(mine, pair, "secret")
        await mine.delete(f"/v1/chats/{pair}/messages/1")

        async def held() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = (await host.get(f"{path}/held")).json()["items"]
            return found

        await eventually(held, 60)
        (copy,) = await held()
        listed_for_member = (await mine.get(f"/v1/chats/{pair}/messages")).json()["messages"]
        holds = (await host.get("/v1/admin/holds", params={"limit": 200})).json()["items"]
        ended = await host.delete(f"{path}/hold")
        await host.delete(f"{path}/hold")
        state = (await host.get(f"{path}/hold")).json().get("state", "gone")

    assert problem_of(none) == (404, "not_found")
    assert problem_of(without_reason) == (400, "bad_request")
    assert (made["reason"], again["reason"]) == ("case 7", "case 7")
    assert made["state"] == "starting"
    assert (copy["body"], copy["sender"], copy["seq"]) == ("secret", alice.user, 1)
    assert [each["body"] for each in listed_for_member] == ["", ""]
    assert {"chat": pair} in holds
    assert ended.status_code == 204
    assert state in ("ending", "gone")
