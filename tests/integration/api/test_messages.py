"""Messages over HTTP: send, read, change and mark; sockets receive the events."""

from __future__ import annotations

import asyncio
import unicodedata

import pytest

from tests.integration.api.support import Caller, make_group, problem_of, send
from tests.support.rawchat import RawChat
from tests.support.stack import NewName, Stack
from tests.support.written_texts import BLANK_TEXTS, TEXTS


async def test_message_sent_over_http_reaches_devices_and_history(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The sockets of the sender receive the event too."""
    client = caller(alice.user)
    answer = await send(client, pair, "hello", ref="one", kind="text")

    events = [await who.expect_frame("event", kind="message", chat=pair) for who in (alice, bob)]
    page = (await client.get(f"/v1/chats/{pair}/messages")).json()

    ack = answer.json()
    assert answer.status_code == 201
    assert (ack["ref"], ack["seq"], ack["dup"], ack["durability"]) == (
        "one",
        1,
        False,
        "hot",
    )
    assert [event["message"] for event in events] == page["messages"] * 2
    assert page["messages"][0]["mid"] == ack["mid"]
    assert (page["tier"], page["more"]) == ("hot", False)


async def test_message_sent_again_has_the_same_seq(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """One `ref` is one message. Another text with the same `ref` is a conflict."""
    client = caller(alice.user)
    first = await send(client, pair, "hello", ref="same")

    second = await send(client, pair, "hello", ref="same")
    other = await send(client, pair, "goodbye", ref="same")

    assert second.status_code == 200
    assert second.json() == first.json() | {"dup": True}
    assert problem_of(other) == (409, "conflict")


async def test_concurrent_and_repeated_deletes_of_a_message_succeed(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """One of them deletes the message; the others find it deleted."""
    client, path = caller(alice.user), f"/v1/chats/{pair}/messages"
    await send(client, pair, "hello")

    answers = await asyncio.gather(*(client.delete(f"{path}/1") for _ in range(8)))
    again = await client.delete(f"{path}/1")

    assert [answer.status_code for answer in (*answers, again)] == [200] * 9
    assert sorted(answer.json()["dup"] for answer in answers) == [False] + [True] * 7
    assert (again.json()["dup"], again.json()["seq"]) == (True, 2)  # that of the change


async def test_line_breaks_are_normalized(caller: Caller, alice: RawChat, pair: str) -> None:
    """CRLF and CR are stored as LF, also in edits. Limits and repeats use the stored text."""
    client, path = caller(alice.user), f"/v1/chats/{pair}/messages"
    sent = await send(client, pair, "one\r\ntwo\rthree", ref="breaks")
    again = await send(client, pair, "one\ntwo\nthree", ref="breaks")
    longest = await send(client, pair, "x\r\n" * 2000)
    edited = await client.patch(f"{path}/1", json={"body": "four\r\nfive"})

    assert [each.status_code for each in (sent, again, longest, edited)] == [201, 200, 201, 200]
    bodies = [message["body"] for message in (await client.get(path)).json()["messages"]]
    assert bodies[:2] == ["four\nfive", "x\n" * 2000]


async def test_message_sent_by_socket_and_repeated_over_http_is_a_duplicate(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """A client that loses its socket can retry over HTTP with the same `ref`."""
    by_socket = await alice.send(pair, "hello", "crossing")

    by_http = (await send(caller(alice.user), pair, "hello", ref="crossing")).json()

    assert (by_http["seq"], by_http["mid"], by_http["dup"]) == (
        by_socket["seq"],
        by_socket["mid"],
        True,
    )


async def test_stored_message_is_in_dynamodb_when_the_response_arrives(
    caller: Caller, stack: Stack, alice: RawChat, pair: str
) -> None:
    """With durability `stored`, the response is sent after the write to DynamoDB."""
    answer = await send(caller(alice.user), pair, "kept", durability="stored")

    assert (answer.status_code, answer.json()["durability"]) == (201, "stored")
    rows = await stack.read_warm(pair)
    assert [row.body for row in rows] == ["kept"]


async def test_message_changes_over_http_are_visible(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Edit, react, delete for oneself and for everyone; only the sender may edit."""
    mine, theirs = caller(alice.user), caller(bob.user)
    seq = (await send(mine, pair, "helo")).json()["seq"]
    path = f"/v1/chats/{pair}/messages/{seq}"

    edited = await mine.patch(path, json={"body": "hello"})
    reacted = await theirs.put(f"{path}/reaction", json={"emoji": "👍"})
    (changed, *_) = (await theirs.get(f"/v1/chats/{pair}/messages")).json()["messages"]
    foreign = await theirs.patch(path, json={"body": "mine now"})
    other = await theirs.delete(path, params={"for": "me", "target_ref": "lost"})
    hidden = await theirs.delete(path, params={"for": "me"})
    deleted = await mine.delete(path)
    (gone, *_) = (await mine.get(f"/v1/chats/{pair}/messages")).json()["messages"]

    assert [answer.status_code for answer in (edited, reacted, hidden, deleted)] == [200] * 4
    assert (changed["body"], changed["reactions"]) == ("hello", {bob.user: "👍"})
    assert problem_of(foreign) == (403, "forbidden")
    assert problem_of(other) == (404, "not_found")
    assert (gone["deleted"], gone["body"]) == (True, "")


async def test_blank_message_is_refused_and_nothing_is_unread(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Invisible characters are refused like an empty message, in edits too."""
    mine = caller(alice.user)
    first = await send(mine, pair, "seen")
    seq = first.json()["seq"]
    await caller(bob.user).put(f"/v1/chats/{pair}/marks", json={"read": seq})

    refused = [await send(mine, pair, text) for text in BLANK_TEXTS]
    edited = await mine.patch(f"/v1/chats/{pair}/messages/{seq}", json={"body": "\u3164"})

    assert {problem_of(answer) for answer in (*refused, edited)} == {(400, "bad_request")}
    (chat,) = (await caller(bob.user).get("/v1/chats")).json()["items"]
    assert (chat.get("unread", 0), chat["top"]) == (0, seq)


async def test_messages_of_any_script_are_returned_as_sent(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The recipient reads the same characters, in normalized form."""
    for text in TEXTS.values():
        assert (await send(caller(alice.user), pair, text)).status_code == 201

    page = (await caller(bob.user).get(f"/v1/chats/{pair}/messages")).json()["messages"]

    expected = [unicodedata.normalize("NFC", text) for text in TEXTS.values()]
    assert [message["body"] for message in page] == expected


async def test_one_emoji_in_two_forms_is_one_reaction(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Keyboards send a heart with or without its variation selector."""
    mine, theirs = caller(alice.user), caller(bob.user)
    seq = (await send(mine, pair, "look")).json()["seq"]
    path = f"/v1/chats/{pair}/messages/{seq}/reaction"

    await mine.put(path, json={"emoji": "❤"})
    await theirs.put(path, json={"emoji": "❤\ufe0f"})

    (message, *_) = (await mine.get(f"/v1/chats/{pair}/messages")).json()["messages"]
    assert message["reactions"] == {alice.user: "❤\ufe0f", bob.user: "❤\ufe0f"}


async def test_history_over_http_is_read_in_both_directions(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """A request has `before` or `after`; with both it is refused."""
    client, path = caller(alice.user), f"/v1/chats/{pair}/messages"
    for n in range(1, 6):
        await send(client, pair, f"m{n}")

    older = (await client.get(path, params={"before": 4, "limit": 2})).json()
    newer = (await client.get(path, params={"after": 3, "limit": 10})).json()
    both = await client.get(path, params={"before": 4, "after": 1})

    assert ([m["body"] for m in older["messages"]], older["more"]) == (["m2", "m3"], True)
    assert ([m["body"] for m in newer["messages"]], newer["more"]) == (["m4", "m5"], False)
    assert problem_of(both) == (400, "bad_request")


async def test_chat_of_other_users_is_not_found(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str, new_name: NewName
) -> None:
    """Every request gets the 404 of a chat that does not exist."""
    await send(caller(alice.user), pair, "private")
    eve = caller(new_name("eve"))
    for chat in (pair, "no-such-chat"):
        path = f"/v1/chats/{chat}/messages"
        answers = [
            await eve.get(path),
            await eve.post(path, json={"body": "let me in"}),
            await eve.patch(f"{path}/1", json={"body": "x"}),
            await eve.put(f"{path}/1/reaction", json={"emoji": "👍"}),
            await eve.delete(f"{path}/1"),
            await eve.delete(f"{path}/1", params={"for": "me"}),
            await eve.put(f"/v1/chats/{chat}/marks", json={"read": 1}),
        ]
        assert [problem_of(answer) for answer in answers] == [(404, "not_found")] * len(answers)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"body": 7}, "body"),
        ({}, "body"),
        ({"body": ""}, "body"),
        ({"body": "x" * 5000}, "body"),
        ({"body": "x", "ref": "a#b"}, "ref"),
        ({"body": "x", "kind": "edit"}, "kind"),
        ({"body": "x", "kind": "archived"}, "kind"),
        ({"body": "x", "kind": "lost"}, "kind"),
        ({"body": "x", "reply_to": 0}, "reply_to"),
        ({"body": "x", "durability": "never"}, "durability"),
        ({"body": "x", "chat": "another"}, "chat"),
        ({"body": "x", "sender": "bob"}, "sender"),
    ],
)
async def test_message_with_invalid_field_is_refused_with_its_name(
    caller: Caller, alice: RawChat, pair: str, fields: dict[str, object], field: str
) -> None:
    answer = await caller(alice.user).post(f"/v1/chats/{pair}/messages", json=fields)

    status, code = problem_of(answer)
    assert (status, code) in {(400, "bad_request"), (413, "too_large")}
    assert field in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chats/{chat}/messages?befor=7", "befor"),
        ("/v1/chats/{chat}/messages?limit=5&cursor=x", "cursor"),
        ("/v1/chats?Limit=5", "Limit"),
        ("/v1/me?nonsense", "nonsense"),
    ],
)
async def test_unknown_query_parameter_is_refused_with_its_name(
    caller: Caller, alice: RawChat, pair: str, path: str, name: str
) -> None:
    """Otherwise a client with a misspelled cursor would read the first page forever."""
    answer = await caller(alice.user).get(path.format(chat=pair))

    assert problem_of(answer) == (400, "bad_request")
    assert answer.json()["detail"].startswith(f"{name}: unknown query parameter; known: ")


async def test_web_page_ignores_unknown_query_parameters(caller: Caller) -> None:
    """Other sites may add parameters to links to the web client."""
    answer = await caller("alice").get("/?utm_source=mail")

    assert answer.status_code == 200


async def test_group_messages_sent_over_http_arrive_once_and_in_order(
    caller: Caller, alice: RawChat, bob: RawChat, new_name: NewName
) -> None:
    client = caller(alice.user)
    chat = await make_group(client, bob.user)
    for n in range(10):
        await send(client, chat, f"m{n}")

    await bob.expect_frame("event", kind="message", chat=chat, cs=10)

    received = [
        event["message"]["body"] for event in bob.of_type("event", kind="message", chat=chat)
    ]
    assert received == [f"m{n}" for n in range(10)]
