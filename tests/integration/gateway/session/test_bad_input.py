"""chat.v1: invalid input gets one error that names the field; the connection stays open.

The cases are generated from the frame types, so the bounds of a new field are tested at once.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.rawchat import RawChat
from tests.support.stack import NewName, Stack
from tests.support.wire import TEXT, RawSocket
from tests.unit.protocol.shapes import CLIENT_FRAMES, sample_of, tag_of

BAD_PROTOCOL = 3501
REQUESTS = [cls for cls in CLIENT_FRAMES if tag_of(cls) != "hello"]


async def error_for(ws: RawSocket, payload: bytes) -> dict[str, Any]:
    """Send a message that is refused; return the error."""
    await ws.send(TEXT, payload)
    error = await ws.recv_json()
    assert error["type"] == "error", error
    return error


async def expect_connection_open(ws: RawSocket) -> None:
    """Check that requests are still answered and that no other frame arrived."""
    await ws.send_json({"type": "chats", "id": 999})
    answer = await ws.recv_json()
    assert (answer["type"], answer["id"]) == ("page", 999)


WRONG_TYPES: list[Any] = [None, True, 1.5, "text", [], {}, [[]], -1, 2**53, 2**70]


# `auth` with an invalid token is "unauthenticated".
REFUSALS = {"bad_request", "not_found", "rate_limited", "unauthenticated"}


@pytest.mark.parametrize("cls", REQUESTS, ids=tag_of)
async def test_value_of_another_type_gets_a_response(
    live: RawSocket, cls: type[msgspec.Struct]
) -> None:
    """Any JSON value in any field gets a response or an error and never ends the connection."""
    for name in cls.__struct_encode_fields__:
        for value in WRONG_TYPES:
            fields = sample_of(cls) | {name: value}
            await live.send(TEXT, msgspec.json.encode(fields))
        await live.send_json({"type": "chats", "id": 777})
        while (answer := await live.recv_json()).get("id") != 777:
            assert answer["type"] in {"error", "ok", "page"}, answer
            if answer["type"] == "error":
                assert answer["code"] in REFUSALS, answer


@pytest.mark.parametrize(
    "payload",
    [
        b"[]",
        b"null",
        b"1",
        b'"hello"',
        b"{}",
        b'{"id":5}',
        b'{"type":null,"id":5}',
        b'{"type":"nosuch","id":5}',
        b'{"type":"' + b"x" * 60_000 + b'","id":5}',
        b'{"type":"welcome","id":5}',
        b'{"type":"state","state":"' + b"x" * 60_000 + b'"}',
        b'{"type":"chats","id":5,"limit":"50"}',
        b'{"type":"chats","id":5,"limit":1e2}',
        b'{"type":"chats","id":5,"after":"0-a\\n"}',
        b'{"type":"chats","id":5,"type":"state"}',
    ],
    ids=lambda payload: payload[:40].decode(),
)
async def test_json_that_is_not_a_frame_is_one_short_error(live: RawSocket, payload: bytes) -> None:
    """The error does not echo the client's long input."""
    error = await error_for(live, payload)

    assert error["code"] == "bad_request"
    assert len(error["message"]) <= 300
    await expect_connection_open(live)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b" ",
        b"{",
        b"hello",
        b"\x00",
        b"{'type':'chats'}",
        b'{"type":"chats","id":NaN}',
        b'{"type":"chats","id":1}{"type":"chats","id":2}',
        b'\xef\xbb\xbf{"type":"chats","id":1}',
        b'{"type":"chats","id":1,"x":"a\x01b"}',
        b'{"type":"send","x":' + b"[" * 60_000,
    ],
    ids=lambda payload: repr(payload[:40]),
)
async def test_invalid_json_ends_the_connection(live: RawSocket, payload: bytes) -> None:
    """A peer that does not send JSON is closed with 3501."""
    await live.send(TEXT, payload)

    await live.expect_close(BAD_PROTOCOL)


@pytest.mark.parametrize("field", ["chat", "ref", "body", "kind", "more"])
async def test_lone_surrogate_is_one_error_and_the_connection_stays_open(
    live: RawSocket, field: str
) -> None:
    """A text cut inside an emoji invalidates the request and not the connection."""
    fields = {"type": "send", "id": 5, "chat": "c", "ref": "r", "body": "b", field: "SURROGATE"}

    error = await error_for(live, msgspec.json.encode(fields).replace(b"SURROGATE", rb"\ud83d"))

    assert (error["id"], error["code"], error["temporary"]) == (5, "bad_request", False)
    assert error["message"].startswith(f"{field}: contains a lone surrogate")
    await expect_connection_open(live)


async def test_frame_without_id_gets_no_response(live: RawSocket) -> None:
    """Typing and a mark without `id` get no response, even for a chat that does not exist."""
    for frame in ({"type": "mark", "read": 1}, {"type": "typing", "on": True}):
        await live.send_json({**frame, "chat": "no-such-chat"})

    await expect_connection_open(live)


async def test_unknown_fields_are_ignored(live: RawSocket) -> None:
    """A newer client may send fields that the server does not know."""
    await live.send_json({"type": "chats", "id": 1, "x": 1, "nested": {"type": "send"}})

    answer = await live.recv_json()

    assert (answer["type"], answer["id"]) == ("page", 1)


async def test_error_of_an_invalid_frame_has_the_id_of_that_frame(alice: RawChat) -> None:
    """Other requests of the connection get their own responses."""
    await alice.send_frame("history", id=41, chat="not an id")
    page = await alice.request("chats")

    error = await alice.expect_frame("error")
    assert (error["id"], page["type"]) == (41, "page")


async def test_many_errors_do_not_end_the_connection(live: RawSocket) -> None:
    """Each of many invalid frames gets its own error."""
    for number in range(200):
        await live.send(TEXT, b'{"type":"nosuch","id":%d}' % number)

    for number in range(200):
        assert (await live.recv_json())["id"] == number
    await expect_connection_open(live)


async def test_requests_above_the_limit_in_flight_are_refused_temporarily(live: RawSocket) -> None:
    """A client that does not wait gets `rate_limited`; each request gets one response."""
    count = 200
    for number in range(count):
        await live.send_json({"type": "history", "id": number, "chat": "d-nosuch"})

    answers = [await live.recv_json() for _ in range(count)]

    assert sorted(answer["id"] for answer in answers) == list(range(count))
    codes = {answer["code"] for answer in answers}
    assert codes <= {"not_found", "rate_limited"}
    for answer in answers:
        if answer["code"] == "rate_limited":
            assert answer["temporary"]
            assert answer["retry_after_ms"] > 0


# ── requests of non-members ───────────────────────────────────────────────────────────────────────


async def test_sync_reads_only_the_inbox_of_its_user(
    stack: Stack, alice: RawChat, pair: str, new_name: NewName
) -> None:
    """A cursor is a position in the inbox of the authenticated user."""
    await alice.send(pair, "secret")
    async with stack.chat_of(new_name("mallory")) as mallory:
        cursor = {"epoch": mallory.welcome["epoch"], "seq": 0}

        page = await mallory.request("sync", cursor=cursor)

        assert page["events"] == []
