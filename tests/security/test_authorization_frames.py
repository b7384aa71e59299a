"""Authorization of every frame for every kind of caller; a frame without a row fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from chatserver.auth.api_keys import SCOPES
from chatserver.dev.servers import Server
from chatserver.requests.registry import list_operations
from tests.security.support.access_matrix import Kind, Row, make_world
from tests.security.support.users import make_key
from tests.support.rawchat import Failed, RawChat
from tests.support.stack import NewName, Stack
from tests.support.wire import Ended, RawSocket

OWN, MEMBER, MANAGER, SENDER = Kind.OWN, Kind.MEMBER, Kind.MANAGER, Kind.SENDER
CHAT = {"chat": "{chat}", "ref": "r1"}
ON_MESSAGE = {**CHAT, "seq": "{seq}"}
NO_RESPONSE = "no response"  # these frames get a response only if they are refused
MUTED = {"muted": "forbidden"}
CURSOR = {"epoch": "none", "seq": 0}

ROWS: dict[str, Row] = {
    "hello": Row(OWN, "bad_request", {"v": 1, "token": "none", "device": "d"}),  # a second hello
    "auth": Row(OWN, "ok"),
    "send": Row(MEMBER, "ack", {**CHAT, "body": "hello"}, MUTED),
    "edit": Row(SENDER, "ack", {**ON_MESSAGE, "body": "better"}, MUTED),
    "delete": Row(SENDER, "ack", ON_MESSAGE, {"admin": "ack", "owner": "ack"}),
    "react": Row(MEMBER, "ack", {**ON_MESSAGE, "emoji": "👍"}, MUTED),
    "mark": Row(MEMBER, "ok", {"chat": "{chat}", "read": 1}),
    "sync": Row(OWN, "reset", {"cursor": CURSOR}),
    "history": Row(MEMBER, "page", {"chat": "{chat}"}),
    "chats": Row(OWN, "page", {}),
    "open_direct": Row(OWN, "ok", {"user": "{bystander}"}),
    "create_chat": Row(OWN, "ok", {"ref": "c1", "members": ["{outsider}"]}),
    "invite": Row(MANAGER, "ok", {**CHAT, "users": ["{outsider}"]}),
    "join": Row(MEMBER, "ok", CHAT),
    "accept_invitation": Row(MEMBER, "ok", CHAT),
    "decline_invitation": Row(OWN, "ok", {"chat": "{chat}"}),
    "invitations": Row(OWN, "page", {}),
    "leave": Row(MEMBER, "ok", CHAT),
    "remove": Row(MANAGER, "ok", {**CHAT, "user": "{bystander}"}),
    "set_role": Row(
        MANAGER, "ok", {**CHAT, "user": "{bystander}", "role": "member"}, {"admin": "forbidden"}
    ),
    "update_chat": Row(MANAGER, "ok", {**CHAT, "name": "Renamed"}),
    "mute_member": Row(MANAGER, "ok", {**CHAT, "user": "{bystander}", "mute_s": 60}),
    "ban_member": Row(MANAGER, "ok", {**CHAT, "user": "{bystander}"}),
    "unban_member": Row(MANAGER, "ok", {**CHAT, "user": "{bystander}"}),
    "block": Row(OWN, "ok", {"user": "{bystander}"}, changes_accounts=True),
    "unblock": Row(OWN, "ok", {"user": "{bystander}"}),
    "blocks": Row(OWN, "page", {}),
    "report": Row(MEMBER, "ok", {"chat": "{chat}", "seq": "{seq}", "reason": "spam"}),
    "companions": Row(OWN, "page", {}),
    "create_session": Row(OWN, "not_found", {"companion": "ai-absent", "ref": "s1"}),
    "get_session": Row(OWN, "not_found", {"companion": "ai-absent"}),
    "renew_session": Row(OWN, "not_found", {"companion": "ai-absent", "ref": "s2"}),
    "delete_session": Row(OWN, "not_found", {"companion": "ai-absent"}),
    "update_session": Row(OWN, "not_found", {"chat": "{chat}"}),
    "sessions": Row(OWN, "page", {}),
    "search": Row(OWN, "not_found", {"q": "hello"}),  # no index here; see test_frames.py
    "stop": Row(MEMBER, "ok", {"chat": "{chat}"}),
    "join_turn": Row(MEMBER, "turn", {"chat": "{chat}"}),
    "typing": Row(MEMBER, NO_RESPONSE, {"chat": "{chat}", "on": True}),
    "watch": Row(OWN, NO_RESPONSE, {"users": ["{bystander}"]}),
    "unwatch": Row(OWN, NO_RESPONSE, {"users": ["{bystander}"]}),
    "state": Row(OWN, NO_RESPONSE, {"state": "bg"}),
}

OUTSIDE = ("stranger", "removed", "banned")  # former members have no rights either
CALLERS = (*OUTSIDE, "muted", "member", "admin", "owner")
MEANING: dict[Kind, dict[str, str | None]] = {
    OWN: dict.fromkeys(CALLERS),
    MEMBER: dict.fromkeys(CALLERS) | dict.fromkeys(OUTSIDE, "not_found"),
    MANAGER: dict.fromkeys(CALLERS, "forbidden")
    | dict.fromkeys(OUTSIDE, "not_found")
    | {"admin": None, "owner": None},
    SENDER: dict.fromkeys(CALLERS, "forbidden")
    | dict.fromkeys(OUTSIDE, "not_found")
    | {"muted": None, "member": None},
}


def all_tags() -> set[str]:
    """Return the types of frames that clients may send."""
    types = list_operations()
    return {str(msgspec.inspect.type_info(each).tag) for each in types}  # type: ignore[attr-defined]


@pytest.fixture
async def client(api: Server) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client that prepares the world."""
    async with httpx.AsyncClient(base_url=api.endpoint, timeout=20) as made:
        yield made


def test_every_frame_has_a_row_in_the_matrix() -> None:
    """A new frame needs a row with its permissions."""
    assert set(ROWS) == all_tags()


@pytest.mark.parametrize("tag", sorted(ROWS))
async def test_frame_response_to_each_caller_matches_the_matrix(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName, tag: str
) -> None:
    """Three kinds of non-members, a muted member, a member, an admin and the owner are tested."""
    row = ROWS[tag]
    world = await make_world(stack, client, row, new_name)
    seq = await world.send("author")
    # A valid frame without a response is not refused either.
    expected = dict.fromkeys(CALLERS) if row.ok == NO_RESPONSE else {**MEANING[row.kind], **row.but}
    outcomes = {}
    for caller in CALLERS:
        if row.kind is SENDER:
            sender = "member" if caller == "member" else "author"
            seq = world.own_seq if caller == "muted" else await world.send(sender)
        fields = world.fill(row.fields or {}, seq)
        if tag == "auth":
            fields["token"] = stack.token(world.users[caller])
        if "ref" in fields:
            fields["ref"] = f"{fields['ref']}-{caller}"
        async with stack.chat_of(world.users[caller]) as device:
            outcomes[caller] = await outcome(device, tag, fields, row)

    assert outcomes == {each: row.ok if code is None else code for each, code in expected.items()}


async def outcome(device: RawChat, tag: str, fields: dict[str, Any], row: Row) -> str:
    """Return the type of the response, or the error code of the refusal."""
    if row.ok != NO_RESPONSE:
        try:
            return str((await device.request(tag, **fields))["type"])
        except Failed as refused:
            return refused.code
    await device.send_frame(tag, **fields)
    for _ in range(3):
        await device.request("chats")
    refusals = [frame for frame in device.of_type("error") if "id" not in frame]
    return str(refusals[0]["code"]) if refusals else NO_RESPONSE


@pytest.mark.parametrize("tag", sorted(ROWS))
async def test_unauthenticated_frame_closes_the_socket(stack: Stack, tag: str) -> None:
    """Any frame before a valid `hello` gets a `bye` and a close."""
    fields = {"id": 1, "chat": "c", "ref": "r", "seq": 1, "user": "u", "users": ["u"]}
    fields |= {"body": "x", "emoji": "👍", "members": ["u"], "role": "member", "on": True}
    fields |= {"q": "x", "companion": "ai-x", "state": "fg", "cursor": CURSOR}
    fields |= {"v": 1, "token": "none", "device": "d"}
    ws = await RawSocket.open(stack.port)
    await ws.send_json({"type": tag, **fields})

    received, code = await read_until_close(ws)

    assert [frame["type"] for frame in received] == ["bye"]
    assert code == 3500


async def test_hello_with_an_api_key_closes_the_socket(stack: Stack) -> None:
    """API keys are for HTTP only, whatever their scopes."""
    ws = await RawSocket.open(stack.port)
    key = await make_key(stack, *SCOPES)
    await ws.send_json({"type": "hello", "v": 1, "token": key, "device": "d"})

    received, code = await read_until_close(ws)

    assert [frame["type"] for frame in received] == ["bye"]
    assert code == 3500
    assert key not in str(received)


async def read_until_close(ws: RawSocket) -> tuple[list[dict[str, Any]], int]:
    """Return the frames before the close frame, and its code."""
    received: list[dict[str, Any]] = []
    try:
        while True:
            frame = await ws.recv_answer()
            if frame.opcode == 8:
                return received, int.from_bytes(frame.payload[:2], "big")
            received.append(msgspec.json.decode(frame.payload))
    except Ended:
        return received, 0
    finally:
        await ws.abort()
