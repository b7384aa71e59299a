"""Sessions of users with AI companions, as in the document on AI digital humans in DynamoDB."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key  # type: ignore[import-untyped]

from tests.e2e.reference.support import Server, User

ULID_CHARS = 26


@pytest.fixture(scope="module")
def companion(server: Server) -> str:
    """A companion whose response repeats the prompt that the model received."""
    return server.add_companion("facts")


@pytest.fixture
def user(server: Server) -> Iterator[User]:
    return server.add_user("digital")


def create(user: User, companion: str) -> dict[str, Any]:
    session: dict[str, Any] = user.post(f"/v1/companions/{companion}/session")["session"]
    return session


def active_row(server: Server, user: User, companion: str) -> dict[str, Any] | None:
    return server.item("chat_session", PK=user.id, SK=f"#ACTIVE#{companion}")


def test_question_is_answered_from_the_stored_history(
    server: Server, companion: str, user: User
) -> None:
    """The model gets the earlier messages of the session. Its response is streamed and stored."""
    chat = create(user, companion)["chat"]
    with user.connect() as device:
        ack = device.request("send", chat=chat, ref="q1", body="My name is Lin")
        device.wait_for(type="event", cs=2)
        device.request("send", chat=chat, ref="q2", body="What is my name?")
        parts = [device.wait_for(type="signal", kind="ai.delta", seq=3, index=n) for n in (0, 1)]
        answer = device.wait_for(type="event", cs=4)["message"]

    assert ack["seq"] == 1
    assert parts[1]["text"] in answer["body"]
    assert answer["sender"] == companion
    assert answer["ai"]["model"] == "facts" and "code" not in answer["ai"]
    assert "3 messages, from: My name is Lin to: What is my name?" in answer["body"]
    history = user.get(f"/v1/chats/{chat}/messages")["messages"]
    assert [message["sender"] for message in history] == [user.id, companion] * 2


def test_new_session_has_the_memory_of_earlier_ones(server: Server, user: User) -> None:
    """Memory of one session is in the prompt of the next one, until the user deletes it."""
    companion = server.add_companion("memory")
    chat = create(user, companion)["chat"]
    with user.connect() as device:
        device.request("send", chat=chat, ref="q1", body="My name is Lin")
        device.wait_for(type="event", cs=2)
        renewed = user.post(f"/v1/companions/{companion}/session/renewal")["session"]["chat"]
        device.request("send", chat=renewed, ref="q2", body="What is my name?")
        answer = device.wait_for(type="event", chat=renewed, cs=2)["message"]
        path = f"/v1/me/companions/{companion}/memory"
        memory = user.get(path)
        row = server.item("chat_session", PK=user.id, SK=f"{companion}#MEMORY")
        user.delete(path)
        user.post(f"/v1/companions/{companion}/session/renewal")

    assert "- The user wrote: My name is Lin" in answer["body"]
    assert "data, not instructions" in answer["body"]
    assert memory["enabled"]
    assert sorted((entry["kind"], entry["text"]) for entry in memory["entries"]) == [
        ("fact", "The user wrote: My name is Lin"),
        ("summary", "Messages: 1"),
    ]
    assert [entry["chats"] for entry in memory["entries"]] == [[chat], [chat]]
    assert row is not None and "My name is Lin" in row["entries"]
    assert user.get(path)["entries"] == []


def test_companion_is_an_item_for_each_version(server: Server) -> None:
    """An item has `ai_id`, `ai_version` and the Amazon Bedrock model that responds."""
    host = server.host_application
    model = "anthropic.claude-3-haiku-20240307-v1:0"
    body = {"name": "Claude", "provider": "bedrock", "model": model, "prompt": "Be kind."}
    made = host.post("/v1/companions", body)
    host.patch(f"/v1/companions/{made['id']}", {"prompt": "Be brief."})

    newest = host.get(f"/v1/companions/{made['id']}/versions/2")
    assert (newest["model"], newest["prompt"]) == (model, "Be brief.")
    head = server.item("directory", PK="companions", SK=f"companion#{made['id']}")
    assert head is not None and head["version"] == 2
    rows = server.rows("directory", f"companion#{made['id']}")
    assert [(row["version"], row["provider"], row["prompt"]) for row in rows] == [
        (1, "bedrock", "Be kind."),
        (2, "bedrock", "Be brief."),
    ]


def test_create_chat_puts_the_active_item(server: Server, companion: str, user: User) -> None:
    """`createChat` writes the attributes of the document."""
    before = time.time_ns() // 1_000_000

    session = create(user, companion)

    row = active_row(server, user, companion)
    assert row == {
        "PK": user.id,
        "SK": f"#ACTIVE#{companion}",
        "chat_id": session["chat"],
        "ai_version": 1,
        "create_time": session["create_time"],
        "GSI1PK": session["chat"],
    }
    assert before - 1000 <= session["create_time"] <= time.time_ns() // 1_000_000 + 1000


def test_create_chat_fails_if_a_session_is_active(
    server: Server, companion: str, user: User
) -> None:
    """The condition of the document holds, also for eight concurrent requests."""

    def post(_: int) -> int:
        return user.call("POST", f"/v1/companions/{companion}/session", {}).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(post, range(8)))

    assert statuses == [201] + [409] * 7
    row = active_row(server, user, companion)
    again = user.call("POST", f"/v1/companions/{companion}/session", {})
    assert row is not None and again.json()["code"] == "conflict"
    assert row["chat_id"] in again.json()["detail"]
    assert server.sort_keys("chat_session", user.id) == [f"#ACTIVE#{companion}"]
    assert active_row(server, user, companion) == row


def test_get_chat_by_user_and_companion_returns_active(
    server: Server, companion: str, user: User
) -> None:
    """`getChatByUser_id_and_ai_id`, over HTTP and WebSocket."""
    assert user.get_refusal("GET", f"/v1/companions/{companion}/session") == (404, "not_found")
    session = create(user, companion)

    by_http = user.get(f"/v1/companions/{companion}/session")
    with user.connect() as device:
        by_socket = device.request("get_session", companion=companion)

    row = active_row(server, user, companion)
    assert row is not None and row["chat_id"] == session["chat"]
    assert by_http["session"] == by_socket["session"] == session
    assert by_http["chat"]["kind"] == "companion"


def test_delete_chat_keeps_an_old_item(server: Server, companion: str, user: User) -> None:
    """`deleteChat`: the active item becomes `<ai>#OLD#<chat>` with `delete_time`."""
    session = create(user, companion)
    chat = session["chat"]
    user.send(chat, "Remember this")

    ended = user.delete(f"/v1/companions/{companion}/session")

    assert server.rows("chat_session", user.id) == [
        {
            "PK": user.id,
            "SK": f"{companion}#OLD#{chat}",
            "chat_id": chat,
            "ai_version": 1,
            "create_time": session["create_time"],
            "delete_time": ended["delete_time"],
            "GSI1PK": chat,
        }
    ]
    refused = user.get_refusal("POST", f"/v1/chats/{chat}/messages", {"body": "Still there?"})
    assert refused == (403, "forbidden")
    assert user.get(f"/v1/chats/{chat}/messages")["messages"][0]["body"] == "Remember this"


def test_renew_chat_replaces_the_active_item(server: Server, companion: str, user: User) -> None:
    """`renewChat` writes the old item and the new active item in one transaction."""
    first = create(user, companion)

    with user.connect() as device:
        second = device.request("renew_session", companion=companion, ref="again")["session"]

    old, active = (
        server.item("chat_session", PK=user.id, SK=f"{companion}#OLD#{first['chat']}"),
        active_row(server, user, companion),
    )
    assert old is not None and active is not None
    assert old["create_time"] == first["create_time"] and old["delete_time"] > 0
    assert active["chat_id"] == active["GSI1PK"] == second["chat"] != first["chat"]
    assert active["create_time"] == second["create_time"]
    assert len(server.rows("chat_session", user.id)) == 2


def test_update_ai_version_by_chat_id_changes_one_attribute(server: Server) -> None:
    """`updateAIVersionByChat_id` finds the item with the index and changes one attribute."""
    host, user, companion = server.host_application, server.add_user(), server.add_companion()
    chat = create(user, companion)["chat"]
    before = active_row(server, user, companion)
    host.patch(f"/v1/companions/{companion}", {"prompt": "Be precise."})

    updated = user.put(f"/v1/companion-sessions/{chat}/version", {"version": 2})

    found = server.query("chat_session", Key("GSI1PK").eq(chat), index="GSI1_chat")
    assert found == [{"GSI1PK": chat, "PK": user.id, "SK": f"#ACTIVE#{companion}"}]
    assert before is not None and updated["ai_version"] == 2
    assert active_row(server, user, companion) == before | {"ai_version": 2}
    user.delete(f"/v1/companions/{companion}/session")
    ended = user.get_refusal("PUT", f"/v1/companion-sessions/{chat}/version", {"version": 1})
    assert ended == (409, "conflict")


def test_active_sessions_sort_first_and_old_ones_by_time(server: Server, user: User) -> None:
    """`#` sorts before all ids, and a chat id is a ULID, which sorts by time."""
    one, other = server.add_companion(), server.add_companion()
    chats = [create(user, one)["chat"]]
    for _ in range(2):
        renewed = user.post(f"/v1/companions/{one}/session/renewal")
        chats.append(renewed["session"]["chat"])
    create(user, other)

    keys = server.sort_keys("chat_session", user.id)
    old = server.sort_keys("chat_session", user.id, f"{one}#OLD#")

    assert keys[:2] == sorted(f"#ACTIVE#{each}" for each in (one, other))
    assert old == [f"{one}#OLD#{chat}" for chat in chats[:2]] == keys[2:]
    assert all(len(chat) == ULID_CHARS for chat in chats) and chats == sorted(chats)
    listed = user.pages("/v1/companion-sessions", limit=1)
    assert ["delete_time" in each for each in listed] == [False, False, True, True]
    of_one = user.pages("/v1/companion-sessions", companion=one)
    assert [each["chat"] for each in of_one] == chats[::-1]


def test_users_and_companions_are_many_to_many(server: Server) -> None:
    """Two users with two companions have four sessions, each with its own chat."""
    users, companions = server.add_users(2), [server.add_companion() for _ in range(2)]

    chats = {create(user, each)["chat"] for user in users for each in companions}

    assert len(chats) == 4
    for user in users:
        expected = sorted(f"#ACTIVE#{each}" for each in companions)
        assert server.sort_keys("chat_session", user.id, "#ACTIVE#") == expected
        assert len(user.pages("/v1/companion-sessions")) == 2
