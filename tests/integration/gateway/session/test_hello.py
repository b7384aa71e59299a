"""chat.v1: `hello` and `welcome`, authentication, and resume by cursor."""

from __future__ import annotations

from typing import Any

import jwt
import pytest

from tests.support.rawchat import RawChat
from tests.support.stack import PING_S, NewName, Stack
from tests.support.wire import TEXT, Ended, RawSocket

REPLACED, UNAUTHENTICATED, BAD_PROTOCOL = 3004, 3500, 3501


async def test_hello_is_answered_with_head_and_limits(stack: Stack, alice: RawChat) -> None:
    """`welcome` has the user, the inbox position and all limits."""
    welcome = alice.welcome

    assert welcome["user"] == alice.user
    assert welcome["seq"] == 0
    assert welcome["epoch"]
    assert welcome["session"]
    assert welcome["heartbeat_ms"] == PING_S * 1000
    assert welcome["large"] == []
    assert welcome["limits"] == {
        "frame_bytes_max": 65_536,
        "body_chars_max": 4000,
        "body_bytes_max": 16_384,
        "page_max": 200,
        "members_max": 100_000,
        "sends_in_flight_max": 64,
    }


async def test_hello_with_unknown_fields_is_accepted(stack: Stack, new_name: NewName) -> None:
    """A newer client can connect."""
    chat = stack.chat_of(new_name("alice"))

    await chat.start(colour="blue", state="bg", cursor=None)

    assert chat.welcome["type"] == "welcome"
    await chat.stop()


HELLO = {"type": "hello", "v": 1, "token": "t", "device": "d"}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"v": 2}, "v"),
        ({"v": None}, "v"),
        ({"token": ""}, "token"),
        ({"token": "x" * 4097}, "token"),
        ({"device": "a b"}, "device"),
        ({"device": "x" * 65}, "device"),
        ({"cursor": {"epoch": "e", "seq": -1}}, "cursor.seq"),
        ({"cursor": {"seq": 1}}, "cursor"),
        ({"state": "dead"}, "state"),
        ({"type": "nosuch"}, "type"),
    ],
    ids=str,
)
async def test_invalid_hello_is_closed_with_the_reason(
    stack: Stack, change: dict[str, Any], names: str
) -> None:
    """An invalid hello ends the connection; the `bye` names the field."""
    async with await RawSocket.open(stack.port) as ws:
        await ws.send_json(HELLO | change)

        bye = await ws.recv_json()
        assert bye["type"] == "bye"
        assert bye["reason"].startswith(f"{names}:")
        await ws.expect_close(BAD_PROTOCOL)


@pytest.mark.parametrize("payload", [b"", b"{", b"hello", b'{"type":"hello"', b"\x00"])
async def test_invalid_json_before_hello_is_closed(stack: Stack, payload: bytes) -> None:
    """A first message that is not JSON ends the connection."""
    async with await RawSocket.open(stack.port) as ws:
        await ws.send(TEXT, payload)

        await ws.expect_close(BAD_PROTOCOL)


async def test_second_hello_is_an_error_and_the_connection_stays_open(alice: RawChat) -> None:
    """A session accepts one `hello`."""
    await alice.send_frame("hello", v=1, token="t", device="d")

    error = await alice.expect_frame("error")
    assert error["code"] == "bad_request"
    assert await alice.request("chats")


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────


def forge_token(stack: Stack, user: str, **change: Any) -> str:
    """Return a token with changed claims, key or algorithm."""
    good = jwt.decode(stack.token(user), options={"verify_signature": False})
    header = jwt.get_unverified_header(stack.token(user))
    key = change.pop("key", stack.secret)
    algorithm = change.pop("algorithm", "HS256")
    claims = {name: value for name, value in (good | change).items() if value is not None}
    typ = {"typ": header["typ"]} if "typ" in header else {}
    return jwt.encode(claims, key, algorithm=algorithm, headers=typ)


@pytest.mark.parametrize(
    "change",
    [
        {"key": "x" * 64},
        {"key": "", "algorithm": "none"},
        {"algorithm": "HS512"},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"aud": "other"},
        {"aud": None},
        {"sub": None},
        {"sub": "not an id"},
        {"jti": None},
        {"exp": 99_999_999_999},
    ],
    ids=str,
)
async def test_invalid_token_is_closed_as_unauthenticated(
    stack: Stack, new_name: NewName, change: dict[str, Any]
) -> None:
    """A forged, expired, too long-lived or foreign token is refused and not echoed."""
    user = new_name("mallory")
    token = forge_token(stack, user, **change)
    async with await RawSocket.open(stack.port) as ws:
        await ws.send_json(HELLO | {"token": token})

        bye = await ws.recv_json()
        assert bye["code"] == UNAUTHENTICATED
        assert token not in str(bye)
        await ws.expect_close(UNAUTHENTICATED)


async def test_unchanged_token_of_the_forging_helper_is_accepted(
    stack: Stack, new_name: NewName
) -> None:
    """The tokens of `test_invalid_token…` are refused only because of the change."""
    user = new_name("alice")

    async with await RawSocket.open(stack.port) as ws:
        await ws.send_json(HELLO | {"token": forge_token(stack, user)})

        assert (await ws.recv_json())["user"] == user


# ── several devices ───────────────────────────────────────────────────────────────────────────────


async def test_second_connection_of_a_device_replaces_the_first(
    stack: Stack, new_name: NewName
) -> None:
    """The newest connection of a device stays, and the old one gets a reason."""
    user = new_name("alice")
    old = await stack.chat_of(user, device="phone").start()
    new = await stack.chat_of(user, device="phone").start()

    bye = await old.expect_close(REPLACED)

    assert bye is not None
    assert bye["code"] == REPLACED
    assert await new.request("chats")
    await new.stop()


async def test_session_that_replaces_the_only_one_of_its_user_can_send(
    stack: Stack, new_name: NewName, bob: RawChat
) -> None:
    """A device reconnects to the same gateway before that has noticed the end of its connection."""
    old = await stack.chat_of(new_name("alice"), device="d").start()
    chat = await old.open_direct(bob.user)
    await old.send(chat, "from the old session")

    async with stack.chat_of(old.user, device="d") as new:
        await old.expect_close(REPLACED)
        acks = [await new.send(chat, f"from the new session {n}") for n in range(3)]

    assert [ack["seq"] for ack in acks] == [2, 3, 4]


# ── resume ────────────────────────────────────────────────────────────────────────────────────────


async def test_reconnected_device_gets_missed_events_in_order(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """No event between two connections is lost or repeated."""
    await alice.send(pair, "one")
    await bob.expect_bodies(pair, ["one"])
    await bob.abort()
    for body in ("two", "three", "four"):
        await alice.send(pair, body)

    await bob.start()
    await alice.send(pair, "five")

    await bob.expect_bodies(pair, ["one", "two", "three", "four", "five"])
    events = bob.of_type("event")
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_device_without_cursor_starts_at_the_head(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A new device gets no earlier events; it reads history instead."""
    await alice.send(pair, "past")
    await bob.expect_bodies(pair, ["past"])
    second = await stack.chat_of(bob.user, device="tablet").start()

    await alice.send(pair, "now")

    await second.expect_bodies(pair, ["now"])
    assert second.welcome["seq"] == bob.of_type("event", kind="message")[0]["seq"]
    await second.stop()


async def test_cursor_at_the_head_gets_only_welcome(stack: Stack, bob: RawChat, pair: str) -> None:
    """A device that missed no events gets none after `welcome`."""
    await bob.abort()
    seen = len(bob.frames)

    await bob.start()

    await bob.request("chats")
    assert [frame["type"] for frame in bob.frames[seen:]] == ["welcome", "page"]


@pytest.mark.parametrize("fault", ["epoch", "ahead"])
async def test_invalid_cursor_is_reset(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str, fault: str
) -> None:
    """A cursor of another epoch, or ahead of the server, gets a snapshot."""
    await alice.send(pair, "one")
    await bob.expect_bodies(pair, ["one"])
    assert bob.cursor is not None
    epoch, seq = bob.cursor
    await bob.abort()

    await bob.start(cursor=("other-epoch", seq) if fault == "epoch" else (epoch, seq + 1))

    reset = await bob.expect_frame("reset")
    assert reset["cursor"] == {"epoch": epoch, "seq": seq}
    assert [(line["chat"], line["top"]) for line in reset["chats"]] == [(pair, 1)]
    await alice.send(pair, "two")
    await bob.expect_bodies(pair, ["one", "two"])


async def test_cursor_before_the_start_of_the_inbox_gets_too_long(
    small_hot_stack: Stack, new_name: NewName
) -> None:
    """A device that missed more events than the inbox holds gets a snapshot, then new events."""
    alice = await small_hot_stack.chat_of(new_name("alice")).start()
    bob = await small_hot_stack.chat_of(new_name("bob")).start()
    chat = await alice.open_direct(bob.user)
    await bob.request("open_direct", user=alice.user)
    await bob.abort()
    for number in range(60):
        await alice.send(chat, f"m{number}")

    await bob.start()

    too_long = await bob.expect_frame("too_long")
    line = too_long["chats"][0]
    assert (line["chat"], line["top"], line["unread"]) == (chat, 60, 60)
    assert line["last"]["body"] == "m59"
    await alice.send(chat, "new")
    await bob.expect_bodies(chat, ["new"])
    await alice.stop()
    await bob.stop()


async def test_frames_sent_before_welcome_are_answered_after_it(
    stack: Stack, new_name: NewName
) -> None:
    """A client may send requests before it has received `welcome`."""
    async with await RawSocket.open(stack.port) as ws:
        token = stack.token(new_name("alice"))
        await ws.send_json(HELLO | {"token": token})
        for number in range(5):
            await ws.send_json({"type": "chats", "id": number})

        assert (await ws.recv_json())["type"] == "welcome"
        answers = [await ws.recv_json() for _ in range(5)]

    assert sorted(answer["id"] for answer in answers) == [0, 1, 2, 3, 4]


async def test_disconnect_during_hello_does_not_affect_others(
    stack: Stack, new_name: NewName
) -> None:
    """The gateway serves other clients after peers disconnected during hello."""
    for _ in range(10):
        ws = await RawSocket.open(stack.port)
        await ws.send_json(HELLO | {"token": stack.token(new_name("alice"))})
        await ws.abort()

    async with stack.chat_of(new_name("alice")) as after:
        assert await after.request("chats")


async def test_close_of_the_client_is_answered_and_later_requests_fail(
    stack: Stack, alice: RawChat
) -> None:
    """The close handshake completes with 1000; requests on the closed connection fail."""
    await alice.stop()

    assert alice.close_frame is not None
    assert alice.close_frame.close_code == 1000
    with pytest.raises(Ended):
        await alice.request("chats")
