"""Companions and their sessions over HTTP and the WebSocket, on real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from chatserver.client import ChatClient
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.domain.write_restrictions import ENDED
from chatserver.errors import Conflict, Forbidden
from chatserver.features.companions.model import CompanionSession, session_chat_id
from tests.integration.api.support import Caller, problem_of, send
from tests.integration.features.companions.support import (
    PROMPT,
    make_companion,
    open_companions,
    open_session_rows,
)
from tests.security.support.users import make_key, run_cli
from tests.support.rawchat import RawChat, get_refusal
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack


@pytest.fixture
async def ada(stack: Stack, new_name: NewName) -> str:
    return (await make_companion(stack, new_name("ai-ada"))).id


@pytest.fixture
async def manager(stack: Stack, caller: Caller) -> AsyncIterator[httpx.AsyncClient]:
    client = caller("")
    key = await make_key(stack, "companions:read", "companions:write")
    client.headers["Authorization"] = f"Bearer {key}"
    yield client


async def create_session(user_id: RawChat, companion: str, ref: str = "s1") -> str:
    answer = await user_id.request("create_session", companion=companion, ref=ref)
    chat: str = answer["session"]["chat"]
    await user_id.expect_frame("event", kind="chat", chat=chat)
    return chat


async def get_error(user_id: RawChat, type_: str, **fields: Any) -> tuple[str, str]:
    """Send a request that must be refused; return the code and message of the error."""
    refused = await get_refusal(user_id.request(type_, **fields))
    return refused.code, refused.message


async def test_companions_are_managed_with_an_api_key(
    manager: httpx.AsyncClient, caller: Caller, alice: RawChat, new_name: NewName
) -> None:
    """The key can create, get, update and delete. Users are refused and do not see the prompt."""
    id_, mine = new_name("ai-eve"), caller(alice.user)
    body = {"id": id_, "name": "Eve", "provider": "scripted", "model": "echo", "prompt": PROMPT}

    created = await manager.post("/v1/companions", json=body, headers={"Idempotency-Key": id_})
    again = await manager.post("/v1/companions", json=body, headers={"Idempotency-Key": id_})
    twice = await manager.post("/v1/companions", json=body)
    updated = await manager.patch(f"/v1/companions/{id_}", json={"name": "Eva"})
    first = await manager.get(f"/v1/companions/{id_}/versions/1")
    for_user = await mine.get(f"/v1/companions/{id_}")
    refused = [
        await mine.post("/v1/companions", json=body),
        await mine.patch(f"/v1/companions/{id_}", json={"name": "Mine"}),
        await mine.delete(f"/v1/companions/{id_}"),
        await mine.get(f"/v1/companions/{id_}/versions/1"),
    ]
    deleted = await manager.delete(f"/v1/companions/{id_}")
    gone = await mine.get(f"/v1/companions/{id_}")

    assert (created.status_code, again.json()) == (201, created.json())
    assert problem_of(twice) == (409, "conflict")
    assert (updated.json()["version"], updated.json()["prompt"]) == (2, PROMPT)
    assert first.json() == created.json()
    assert for_user.json() == {"id": id_, "name": "Eva", "version": 2}
    assert [problem_of(each) for each in refused] == [(403, "forbidden")] * 4
    assert deleted.status_code == 204 and problem_of(gone) == (404, "not_found")


async def test_companion_list_is_the_same_over_socket_and_http(
    caller: Caller, alice: RawChat, ada: str
) -> None:
    """The list has pages and no prompts."""
    by_http: list[Any] = []
    by_socket: list[Any] = []
    cursor: str | None = None
    after: str | None = None
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = (await caller(alice.user).get("/v1/companions", params=query)).json()
        by_http += page["items"]
        cursor = page["next"]
        if cursor is None:
            break
    while True:
        answer = await alice.request("companions", limit=2, **({"after": after} if after else {}))
        by_socket += answer["companions"]
        after = answer.get("next")
        if after is None:
            break

    assert by_socket == by_http
    assert {"id": ada, "name": "Ada", "version": 1} in by_http
    assert PROMPT not in str(by_http)


async def test_companions_are_managed_on_the_command_line(stack: Stack, new_name: NewName) -> None:
    """The commands create, update, list, get and delete."""
    id_ = new_name("ai-cli")
    fields = ("--name", "Cleo", "--provider", "scripted", "--model", "echo", "--prompt", PROMPT)

    created = await run_cli(stack, "companion", "create", id_, *fields)
    updated = await run_cli(stack, "companion", "update", id_, "--name", "Clio")
    listed = await run_cli(stack, "companion", "list")
    shown = await run_cli(stack, "companion", "get", id_, "--version", "1")
    deleted = await run_cli(stack, "companion", "delete", id_)
    after = await run_cli(stack, "companion", "list")

    assert created.split() == [id_, "version", "1"]
    assert updated.split() == [id_, "version", "2"]
    assert f"{id_}  2  scripted  echo  Clio" in listed
    assert PROMPT in shown and '"name": "Cleo"' in shown
    assert deleted.split() == ["deleted", id_] and id_ not in after


async def test_companion_id_as_user_id_is_refused(stack: Stack, caller: Caller, ada: str) -> None:
    """Registration, creation with an API key and acting as a user are refused."""
    key = caller("")
    scopes = ("users:write", "act_as", "chats:read")
    key.headers["Authorization"] = f"Bearer {await make_key(stack, *scopes)}"
    body = {"user": "ai-mallory", "password": "correct horse battery"}

    registered = await caller("").post("/v1/auth/register", json=body)
    created = await key.post("/v1/admin/users", json={"user": "ai-mallory"})
    acted = await key.get("/v1/chats", headers={"X-Chat-As": ada})

    assert [problem_of(each) for each in (registered, created, acted)] == [(400, "bad_request")] * 3


async def test_session_is_a_chat_of_user_and_companion(
    stack: Stack, caller: Caller, alice: RawChat, ada: str
) -> None:
    """The chat is listed, messages are sent and read, and every device gets its events."""
    async with stack.chat_of(alice.user, device="second") as second:
        answer = await alice.request("create_session", companion=ada, ref="s1")
        chat = answer["session"]["chat"]
        event_of_chat = await second.expect_frame("event", kind="chat", chat=chat)
        await alice.send(chat, "hello")
        event = await second.expect_frame("event", kind="message", chat=chat)
    page = await alice.request("history", chat=chat)
    line = (await alice.read_list())[chat]
    by_http = (await caller(alice.user).get(f"/v1/chats/{chat}")).json()

    assert answer["chat"] == event_of_chat["info"] == by_http
    assert answer["chat"]["kind"] == "companion"
    assert (answer["chat"]["members"], answer["chat"]["name"]) == (sorted((ada, alice.user)), "Ada")
    assert answer["session"]["ai_version"] == 1 and answer["session"]["companion"] == ada
    assert event["message"]["body"] == "hello"
    assert [each["body"] for each in page["messages"]] == ["hello"]
    assert (line["kind"], line["name"]) == ("companion", "Ada")
    assert line["members"] == sorted((ada, alice.user))


async def test_second_create_is_conflict_but_same_ref_returns_the_session(
    caller: Caller, alice: RawChat, ada: str
) -> None:
    """Both WebSocket and HTTP refuse it; the error has the active chat."""
    mine, path = caller(alice.user), f"/v1/companions/{ada}/session"
    chat = await create_session(alice, ada)

    again = await alice.request("create_session", companion=ada, ref="s1")
    same = await mine.post(path, json={"ref": "s1"})
    code, message = await get_error(alice, "create_session", companion=ada, ref="s2")
    other = await mine.post(path, json={})
    got = await mine.get(path)

    assert again["session"]["chat"] == same.json()["session"]["chat"] == chat
    assert code == "conflict" and chat in message
    assert problem_of(other) == (409, "conflict") and chat in other.json()["detail"]
    assert got.json()["session"] == again["session"]


@pytest.mark.parametrize("interface", ["http", "socket"])
async def test_deleted_session_is_read_only(
    caller: Caller, alice: RawChat, ada: str, interface: str
) -> None:
    """Messages, edits and reactions are refused; history and deletions work."""
    chat = await create_session(alice, ada)
    await alice.send(chat, "remember this")

    if interface == "http":
        answer = await caller(alice.user).delete(f"/v1/companions/{ada}/session")
        session = answer.json()
    else:
        session = (await alice.request("delete_session", companion=ada))["session"]
    send_refused = await get_error(alice, "send", chat=chat, ref="r9", body="more?")
    by_http = await send(caller(alice.user), chat, "more?")
    edit_refused = await get_error(alice, "edit", chat=chat, seq=1, ref="r10", body="other")
    react_refused = await get_error(alice, "react", chat=chat, seq=1, ref="r11", emoji="👍")
    page = await alice.request("history", chat=chat)
    line = (await alice.read_list())[chat]
    gone = await get_error(alice, "get_session", companion=ada)
    deleted = await alice.request("delete", chat=chat, seq=1, ref="r12")

    assert session["chat"] == chat and session["delete_time"] > 0
    assert send_refused == edit_refused == react_refused == ("forbidden", ENDED)
    assert problem_of(by_http) == (403, "forbidden")
    assert [each["body"] for each in page["messages"]] == ["remember this"]
    assert line["ended"] is True
    assert gone[0] == "not_found" and deleted["type"] == "ack"


async def test_concurrent_and_repeated_deletes_of_a_session_succeed(
    caller: Caller, alice: RawChat, ada: str
) -> None:
    """All of them return the session that has ended, with and without its chat."""
    chat = await create_session(alice, ada)
    client, path = caller(alice.user), f"/v1/companions/{ada}/session"

    answers = await asyncio.gather(*(client.delete(path) for _ in range(8)))
    again = [await client.delete(path), await client.delete(path, params={"chat": chat})]

    assert [answer.status_code for answer in (*answers, *again)] == [200] * 10
    assert {answer.json()["chat"] for answer in (*answers, *again)} == {chat}
    assert {answer.json()["delete_time"] > 0 for answer in (*answers, *again)} == {True}


async def test_devices_get_one_event_when_a_session_ends(alice: RawChat, ada: str) -> None:
    """Clients use it to disable the input of the chat."""
    chat = await create_session(alice, ada)

    await alice.request("delete_session", companion=ada, chat=chat)
    await alice.request("delete_session", companion=ada, chat=chat)
    await create_session(alice, ada, "s2")

    event_of_chat = alice.of_type("event", kind="chat", chat=chat)
    assert [each["info"].get("ended", False) for each in event_of_chat] == [False, True]


async def test_renewed_session_has_a_new_chat_and_the_old_one_is_read_only(
    alice: RawChat, caller: Caller, ada: str
) -> None:
    """The same ref returns the new session. Both are listed, the active one first."""
    old = await create_session(alice, ada)
    await alice.send(old, "before")

    new = (await alice.request("renew_session", companion=ada, ref="n1"))["session"]["chat"]
    again = (await alice.request("renew_session", companion=ada, ref="n1"))["session"]["chat"]
    await alice.send(new, "after")
    refused = await get_error(alice, "send", chat=old, ref="r9", body="more?")
    by_socket = (await alice.request("sessions", companion=ada))["sessions"]
    query = {"companion": ada, "limit": 1}
    first = (await caller(alice.user).get("/v1/companion-sessions", params=query)).json()
    rest = (
        await caller(alice.user).get(
            "/v1/companion-sessions", params={**query, "cursor": first["next"]}
        )
    ).json()

    assert new == again != old and refused == ("forbidden", ENDED)
    assert [each["chat"] for each in by_socket] == [new, old]
    assert by_socket == [*first["items"], *rest["items"]] and rest["next"] is None
    assert "delete_time" not in by_socket[0] and by_socket[1]["delete_time"] > 0
    page = await alice.request("history", chat=old)
    assert [each["body"] for each in page["messages"]] == ["before"]


async def test_session_version_is_changed_only_while_it_is_active(
    stack: Stack, alice: RawChat, bob: RawChat, caller: Caller, ada: str, manager: httpx.AsyncClient
) -> None:
    """The default is the newest version. Unknown versions and ended sessions are refused."""
    chat = await create_session(alice, ada)
    await manager.patch(f"/v1/companions/{ada}", json={"prompt": "Be brief."})

    updated = (await alice.request("update_session", chat=chat))["session"]
    path = f"/v1/companion-sessions/{chat}/version"
    back = await caller(alice.user).put(path, json={"version": 1})
    absent = await caller(alice.user).put(path, json={"version": 9})
    by_other_user = await caller(bob.user).put(path, json={})
    await alice.request("delete_session", companion=ada)
    after_end = await get_error(alice, "update_session", chat=chat)

    assert updated["ai_version"] == 2 and back.json()["ai_version"] == 1
    assert problem_of(absent) == problem_of(by_other_user) == (404, "not_found")
    assert after_end[0] == "conflict"


async def test_session_of_another_user_is_not_found(
    alice: RawChat, bob: RawChat, caller: Caller, ada: str
) -> None:
    """Neither chat nor session is found; a cursor of another user or list is refused."""
    chat = await create_session(alice, ada)
    await alice.request("renew_session", companion=ada, ref="n1")
    page = (await alice.request("sessions", limit=1))["next"]

    assert (await get_error(bob, "history", chat=chat))[0] == "not_found"
    assert (await get_error(bob, "send", chat=chat, ref="r", body="x"))[0] == "not_found"
    assert (await get_error(bob, "get_session", companion=ada))[0] == "not_found"
    assert (await get_error(bob, "delete_session", companion=ada, chat=chat))[0] == "not_found"
    assert (await bob.request("sessions"))["sessions"] == []
    assert (await get_error(bob, "sessions", after=page))[0] == "bad_request"
    assert (await get_error(alice, "sessions", after=page, companion=ada))[0] == "bad_request"
    rest = (await alice.request("sessions", after=page))["sessions"]
    assert [each["chat"] for each in rest] == [chat]


async def test_deleted_companion_has_no_new_sessions(
    stack: Stack, alice: RawChat, ada: str
) -> None:
    """Existing sessions can still be read and ended."""
    chat = await create_session(alice, ada)
    async with open_companions(stack) as companions:
        await companions.delete(CompanionId(UserId(ada)))

    renewed = await get_error(alice, "renew_session", companion=ada, ref="n1")
    found = await alice.request("get_session", companion=ada)
    ended = await alice.request("delete_session", companion=ada)
    again = await get_error(alice, "create_session", companion=ada, ref="s2")

    assert renewed[0] == again[0] == "not_found"
    assert found["session"]["chat"] == ended["session"]["chat"] == chat


async def test_sdk_manages_sessions_and_is_notified_of_their_end(
    stack: Stack, new_name: NewName, ada: str
) -> None:
    """The SDK creates, gets, updates, renews, deletes and lists sessions."""
    user = new_name("zoe")
    url = f"ws://127.0.0.1:{stack.port}/"
    async with ChatClient(url, stack.token(user), device="sdk") as client:
        page = await client.companions(limit=200)
        chat = await client.create_session(ada, ref="s1")
        with pytest.raises(Conflict, match=chat.id):
            await client.create_session(ada)
        same = await client.get_session(ada)
        updated = await client.update_session(chat.id)
        await client.send(chat.id, "hello")
        newer = await client.renew_session(ada)
        await client.delete_session(ada, chat=newer.id)
        listed = await client.sessions(ada)
        with pytest.raises(Forbidden):
            await client.send(newer.id, "more?")

        assert ada in [each.id for each in page.companions]
        assert same is chat and (chat.kind, chat.name) == ("companion", "Ada")
        assert updated.ai_version == 1
        assert [each.chat for each in listed.sessions] == [newer.id, chat.id]
        assert all(each.delete_time for each in listed.sessions)
        await eventually(lambda: chat.is_ended and newer.is_ended, what="both chats are ended")


# sessions that a killed process left incomplete


async def create_row_only(stack: Stack, user: str, companion: str) -> ChatId:
    """Write the row of a session without its chat, as after a crash in between."""
    user_id, companion_id = UserId(user), CompanionId(UserId(companion))
    chat = session_chat_id(user_id, companion_id, Ref("half"), 1_795_000_000.0)
    async with open_session_rows(stack) as rows:
        await rows.create(CompanionSession(user_id, companion_id, chat, 1, 1_795_000_000_000))
    return chat


async def test_session_without_chat_is_completed_by_a_send(
    stack: Stack, alice: RawChat, ada: str
) -> None:
    """The chat id comes from the session's row."""
    chat = await create_row_only(stack, alice.user, ada)

    ack = await alice.send(chat, "anybody there?")
    page = await alice.request("history", chat=chat)

    assert ack["seq"] == 1
    assert [each["body"] for each in page["messages"]] == ["anybody there?"]


@pytest.mark.parametrize("operation", ["get_session", "renew_session", "delete_session"])
async def test_session_without_chat_is_completed_by_the_next_request(
    stack: Stack, alice: RawChat, ada: str, operation: str
) -> None:
    """Each kind of request completes it."""
    chat = await create_row_only(stack, alice.user, ada)
    fields = {"ref": "n1"} if operation == "renew_session" else {}

    answer = await alice.request(operation, companion=ada, **fields)

    assert (answer["session"]["chat"] == chat) == (operation != "renew_session")
    page = await alice.request("history", chat=chat)
    assert page["messages"] == []
