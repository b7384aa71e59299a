"""Sessions with companions, by HTTP and by socket, on real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from chatserver.client import ChatClient
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.domain.moderation import ENDED
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
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import Stack

pytest_plugins = ["tests.support.stack_fixtures", "tests.integration.api.fixtures"]

NewName = Callable[[str], str]


@pytest.fixture
async def ada(stack: Stack, new_name: NewName) -> str:
    """A companion of the test's own."""
    return (await make_companion(stack, new_name("ai-ada"))).id


@pytest.fixture
async def keeper(stack: Stack, caller: Caller) -> AsyncIterator[httpx.AsyncClient]:
    """A client with an API key that manages companions."""
    client = caller("")
    key = await make_key(stack, "companions:read", "companions:write")
    client.headers["Authorization"] = f"Bearer {key}"
    yield client


async def begin(who: RawChat, companion: str, ref: str = "s1") -> str:
    """Begin a session by socket; return its chat."""
    answer = await who.ask("create_session", companion=companion, ref=ref)
    chat: str = answer["session"]["chat"]
    await who.expect_frame("event", kind="chat", chat=chat)
    return chat


async def refusal(who: RawChat, type_: str, **fields: Any) -> tuple[str, str]:
    """Return code and words of the error that a request is answered with."""
    with pytest.raises(Failed) as caught:
        await who.ask(type_, **fields)
    return caught.value.code, caught.value.message


# companions


async def test_companions_are_managed_by_key_and_seen_by_users_without_the_prompt(
    keeper: httpx.AsyncClient, caller: Caller, alice: RawChat, new_name: NewName
) -> None:
    """Create, get, update, delete; users do not see a companion's prompt."""
    id_, mine = new_name("ai-eve"), caller(alice.user)
    body = {"id": id_, "name": "Eve", "provider": "scripted", "model": "echo", "prompt": PROMPT}

    created = await keeper.post("/v1/companions", json=body, headers={"Idempotency-Key": id_})
    again = await keeper.post("/v1/companions", json=body, headers={"Idempotency-Key": id_})
    twice = await keeper.post("/v1/companions", json=body)
    updated = await keeper.patch(f"/v1/companions/{id_}", json={"name": "Eva"})
    first = await keeper.get(f"/v1/companions/{id_}/versions/1")
    seen = await mine.get(f"/v1/companions/{id_}")
    refused = [
        await mine.post("/v1/companions", json=body),
        await mine.patch(f"/v1/companions/{id_}", json={"name": "Mine"}),
        await mine.delete(f"/v1/companions/{id_}"),
        await mine.get(f"/v1/companions/{id_}/versions/1"),
    ]
    deleted = await keeper.delete(f"/v1/companions/{id_}")
    gone = await mine.get(f"/v1/companions/{id_}")

    assert (created.status_code, again.json()) == (201, created.json())
    assert problem_of(twice) == (409, "conflict")
    assert (updated.json()["version"], updated.json()["prompt"]) == (2, PROMPT)
    assert first.json() == created.json()
    assert seen.json() == {"id": id_, "name": "Eva", "version": 2}
    assert [problem_of(each) for each in refused] == [(403, "forbidden")] * 4
    assert deleted.status_code == 204 and problem_of(gone) == (404, "not_found")


async def test_companions_by_socket_are_those_of_http(
    caller: Caller, alice: RawChat, ada: str
) -> None:
    """One list, page by page, and no prompt in it."""
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
        answer = await alice.ask("companions", limit=2, **({"after": after} if after else {}))
        by_socket += answer["companions"]
        after = answer.get("next")
        if after is None:
            break

    assert by_socket == by_http
    assert {"id": ada, "name": "Ada", "version": 1} in by_http
    assert PROMPT not in str(by_http)


async def test_companions_by_command_line(stack: Stack, new_name: NewName) -> None:
    """Create, update, list, get, delete."""
    id_ = new_name("ai-cli")
    what = ("--name", "Cleo", "--provider", "scripted", "--model", "echo", "--prompt", PROMPT)

    created = await run_cli(stack, "companion", "create", id_, *what)
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


# names


async def test_nobody_takes_the_name_of_a_companion(stack: Stack, caller: Caller, ada: str) -> None:
    """Not by registering, not by a key that makes users or acts as one, not by a token."""
    key = caller("")
    scopes = ("users:write", "act_as", "chats:read")
    key.headers["Authorization"] = f"Bearer {await make_key(stack, *scopes)}"
    body = {"user": "ai-mallory", "password": "correct horse battery"}

    registered = await caller("").post("/v1/auth/register", json=body)
    made = await key.post("/v1/admin/users", json={"user": "ai-mallory"})
    acted = await key.get("/v1/chats", headers={"X-Chat-As": ada})

    assert [problem_of(each) for each in (registered, made, acted)] == [(400, "bad_request")] * 3


# sessions


async def test_session_is_an_ordinary_chat_of_both(
    stack: Stack, caller: Caller, alice: RawChat, ada: str
) -> None:
    """It is listed, written to, read, and comes to every device."""
    async with stack.chat_of(alice.user, device="second") as second:
        answer = await alice.ask("create_session", companion=ada, ref="s1")
        chat = answer["session"]["chat"]
        told = await second.expect_frame("event", kind="chat", chat=chat)
        await alice.say(chat, "hello")
        event = await second.expect_frame("event", kind="message", chat=chat)
    page = await alice.ask("history", chat=chat)
    line = (await alice.read_list())[chat]
    by_http = (await caller(alice.user).get(f"/v1/chats/{chat}")).json()

    assert answer["chat"] == told["info"] == by_http
    assert answer["chat"]["kind"] == "companion"
    assert (answer["chat"]["members"], answer["chat"]["name"]) == (sorted((ada, alice.user)), "Ada")
    assert answer["session"]["ai_version"] == 1 and answer["session"]["companion"] == ada
    assert event["message"]["body"] == "hello"
    assert [each["body"] for each in page["messages"]] == ["hello"]
    assert (line["kind"], line["name"]) == ("companion", "Ada")
    assert line["members"] == sorted((ada, alice.user))


async def test_second_create_is_conflict_and_the_same_ref_finds_it_again(
    caller: Caller, alice: RawChat, ada: str
) -> None:
    """By socket and by HTTP; the conflict contains the active chat."""
    mine, path = caller(alice.user), f"/v1/companions/{ada}/session"
    chat = await begin(alice, ada)

    again = await alice.ask("create_session", companion=ada, ref="s1")
    same = await mine.post(path, json={"ref": "s1"})
    code, words = await refusal(alice, "create_session", companion=ada, ref="s2")
    other = await mine.post(path, json={})
    got = await mine.get(path)

    assert again["session"]["chat"] == same.json()["session"]["chat"] == chat
    assert code == "conflict" and chat in words
    assert problem_of(other) == (409, "conflict") and chat in other.json()["detail"]
    assert got.json()["session"] == again["session"]


async def test_repeat_with_an_idempotency_key_begins_one_session(
    caller: Caller, alice: RawChat, ada: str
) -> None:
    """The stored answer comes again."""
    mine, key = caller(alice.user), {"Idempotency-Key": "begin"}

    first = await mine.post(f"/v1/companions/{ada}/session", json={}, headers=key)
    again = await mine.post(f"/v1/companions/{ada}/session", json={}, headers=key)

    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()


@pytest.mark.parametrize("way", ["http", "socket"])
async def test_deleted_session_is_read_and_not_written_to(
    caller: Caller, alice: RawChat, ada: str, way: str
) -> None:
    """One clear error for messages, edits and reactions; the history stays readable."""
    chat = await begin(alice, ada)
    await alice.say(chat, "remember this")

    if way == "http":
        answer = await caller(alice.user).delete(f"/v1/companions/{ada}/session")
        session = answer.json()
    else:
        session = (await alice.ask("delete_session", companion=ada))["session"]
    send_refused = await refusal(alice, "send", chat=chat, ref="r9", body="more?")
    by_http = await send(caller(alice.user), chat, "more?")
    edit_refused = await refusal(alice, "edit", chat=chat, seq=1, ref="r10", body="other")
    react_refused = await refusal(alice, "react", chat=chat, seq=1, ref="r11", emoji="👍")
    page = await alice.ask("history", chat=chat)
    line = (await alice.read_list())[chat]
    gone = await refusal(alice, "get_session", companion=ada)
    deleted = await alice.ask("delete", chat=chat, seq=1, ref="r12")

    assert session["chat"] == chat and session["delete_time"] > 0
    assert send_refused == edit_refused == react_refused == ("forbidden", ENDED)
    assert problem_of(by_http) == (403, "forbidden")
    assert [each["body"] for each in page["messages"]] == ["remember this"]
    assert line["ended"] is True
    assert gone[0] == "not_found" and deleted["type"] == "ack"


async def test_devices_are_told_that_a_session_is_over(alice: RawChat, ada: str) -> None:
    """Once, by an event in the inbox, so that they close what writes there."""
    chat = await begin(alice, ada)

    await alice.ask("delete_session", companion=ada, chat=chat)
    await alice.ask("delete_session", companion=ada, chat=chat)
    await begin(alice, ada, "s2")

    told = alice.of_type("event", kind="chat", chat=chat)
    assert [each["info"].get("ended", False) for each in told] == [False, True]


async def test_renewed_session_has_a_new_chat_and_the_old_one_is_read(
    alice: RawChat, caller: Caller, ada: str
) -> None:
    """The same ref finds the new one again; both are listed, the active one first."""
    old = await begin(alice, ada)
    await alice.say(old, "before")

    new = (await alice.ask("renew_session", companion=ada, ref="n1"))["session"]["chat"]
    again = (await alice.ask("renew_session", companion=ada, ref="n1"))["session"]["chat"]
    await alice.say(new, "after")
    refused = await refusal(alice, "send", chat=old, ref="r9", body="more?")
    by_socket = (await alice.ask("sessions", companion=ada))["sessions"]
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
    page = await alice.ask("history", chat=old)
    assert [each["body"] for each in page["messages"]] == ["before"]


async def test_session_moves_to_another_version_only_while_it_is_active(
    stack: Stack, alice: RawChat, bob: RawChat, caller: Caller, ada: str, keeper: httpx.AsyncClient
) -> None:
    """The newest by default; unknown versions and ended sessions are refused."""
    chat = await begin(alice, ada)
    await keeper.patch(f"/v1/companions/{ada}", json={"prompt": "Be brief."})

    moved = (await alice.ask("update_session", chat=chat))["session"]
    path = f"/v1/companion-sessions/{chat}/version"
    back = await caller(alice.user).put(path, json={"version": 1})
    absent = await caller(alice.user).put(path, json={"version": 9})
    his = await caller(bob.user).put(path, json={})
    await alice.ask("delete_session", companion=ada)
    over = await refusal(alice, "update_session", chat=chat)

    assert moved["ai_version"] == 2 and back.json()["ai_version"] == 1
    assert problem_of(absent) == problem_of(his) == (404, "not_found")
    assert over[0] == "conflict"


async def test_sessions_of_another_user_are_not_there(
    alice: RawChat, bob: RawChat, caller: Caller, ada: str
) -> None:
    """Neither the chat, nor the session, nor a page of the list by another's cursor."""
    chat = await begin(alice, ada)
    await alice.ask("renew_session", companion=ada, ref="n1")
    page = (await alice.ask("sessions", limit=1))["next"]

    assert (await refusal(bob, "history", chat=chat))[0] == "not_found"
    assert (await refusal(bob, "send", chat=chat, ref="r", body="x"))[0] == "not_found"
    assert (await refusal(bob, "get_session", companion=ada))[0] == "not_found"
    assert (await refusal(bob, "delete_session", companion=ada, chat=chat))[0] == "not_found"
    assert (await bob.ask("sessions"))["sessions"] == []
    assert (await refusal(bob, "sessions", after=page))[0] == "bad_request"
    assert (await refusal(alice, "sessions", after=page, companion=ada))[0] == "bad_request"
    rest = (await alice.ask("sessions", after=page))["sessions"]
    assert [each["chat"] for each in rest] == [chat]


async def test_deleted_companion_takes_no_new_session(
    stack: Stack, alice: RawChat, ada: str
) -> None:
    """Existing sessions can still be read and ended."""
    chat = await begin(alice, ada)
    async with open_companions(stack) as companions:
        await companions.delete(CompanionId(UserId(ada)))

    renewed = await refusal(alice, "renew_session", companion=ada, ref="n1")
    found = await alice.ask("get_session", companion=ada)
    ended = await alice.ask("delete_session", companion=ada)
    again = await refusal(alice, "create_session", companion=ada, ref="s2")

    assert renewed[0] == again[0] == "not_found"
    assert found["session"]["chat"] == ended["session"]["chat"] == chat


async def test_sdk_has_sessions_and_learns_that_one_is_over(
    stack: Stack, new_name: NewName, ada: str
) -> None:
    """Create, find, move, renew, end and list; the chat has the state."""
    user = new_name("zoe")
    url = f"ws://127.0.0.1:{stack.port}/"
    async with ChatClient(url, stack.token(user), device="sdk") as client:
        page = await client.companions(limit=200)
        chat = await client.create_session(ada, ref="s1")
        with pytest.raises(Conflict, match=chat.id):
            await client.create_session(ada)
        same = await client.get_session(ada)
        moved = await client.update_session(chat.id)
        await client.send(chat.id, "hello")
        newer = await client.renew_session(ada)
        await client.delete_session(ada, chat=newer.id)
        listed = await client.sessions(ada)
        with pytest.raises(Forbidden):
            await client.send(newer.id, "more?")

        assert ada in [each.id for each in page.companions]
        assert same is chat and (chat.kind, chat.name) == ("companion", "Ada")
        assert moved.ai_version == 1
        assert [each.chat for each in listed.sessions] == [newer.id, chat.id]
        assert all(each.delete_time for each in listed.sessions)
        await eventually(lambda: chat.is_ended and newer.is_ended, what="told that both are over")


# what a process leaves that dies in the middle


async def half_made(stack: Stack, user: str, companion: str) -> ChatId:
    """Write the row of a session without a chat, as a crash at that moment does."""
    who, whom = UserId(user), CompanionId(UserId(companion))
    chat = session_chat_id(who, whom, Ref("half"), 1_795_000_000.0)
    async with open_session_rows(stack) as rows:
        await rows.create(CompanionSession(who, whom, chat, 1, 1_795_000_000_000))
    return chat


async def test_session_without_its_chat_gets_it_when_somebody_writes_there(
    stack: Stack, alice: RawChat, ada: str
) -> None:
    """A send to the chat that the session's row names is all that it takes."""
    chat = await half_made(stack, alice.user, ada)

    ack = await alice.say(chat, "anybody there?")
    page = await alice.ask("history", chat=chat)

    assert ack["seq"] == 1
    assert [each["body"] for each in page["messages"]] == ["anybody there?"]


@pytest.mark.parametrize("way", ["get_session", "renew_session", "delete_session"])
async def test_session_without_its_chat_gets_it_with_the_next_request(
    stack: Stack, alice: RawChat, ada: str, way: str
) -> None:
    """The next request of any kind completes the session."""
    chat = await half_made(stack, alice.user, ada)
    fields = {"ref": "n1"} if way == "renew_session" else {}

    answer = await alice.ask(way, companion=ada, **fields)

    assert (answer["session"]["chat"] == chat) == (way != "renew_session")
    page = await alice.ask("history", chat=chat)
    assert page["messages"] == []
