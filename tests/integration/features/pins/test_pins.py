"""Pinned messages over HTTP: permissions, events, list, limit, and changes of messages."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from chatserver.dev.servers import Server
from tests.integration.api.support import Caller, make_group, problem_of, send
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually, eventually_equal
from tests.support.stack import NewName, Stack
from tests.support.stored_items import read_partitions

Fields = dict[str, Any]


async def list_pinned(client: httpx.AsyncClient, chat: str, **query: Any) -> list[str]:
    answer = await client.get(f"/v1/chats/{chat}/pins", params=query)
    assert answer.status_code == 200, answer.text
    return [item["message"]["body"] for item in answer.json()["items"]]


async def test_pin_by_the_owner_is_an_event_and_listed_for_members(
    caller: Caller, alice: RawChat, bob: RawChat
) -> None:
    """Pin and unpin are entries of the chat; each is delivered once and in order."""
    owner, member = caller(alice.user), caller(bob.user)
    chat = await make_group(owner, bob.user)
    first = (await send(owner, chat, "one")).json()["seq"]
    second = (await send(owner, chat, "two")).json()["seq"]

    for seq in (first, second):
        answer = await owner.put(f"/v1/chats/{chat}/pins/{seq}")
        assert (answer.status_code, answer.content) == (204, b"")
    both = await list_pinned(member, chat)
    await owner.delete(f"/v1/chats/{chat}/pins/{first}")
    event = await bob.expect_frame("event", chat=chat, kind="unpin")

    assert both == ["two", "one"]
    assert await list_pinned(member, chat) == ["two"]
    entries = [
        (each["kind"], each["message"]["target"], each["message"]["sender"])
        for each in bob.of_type("event", chat=chat)
        if each["kind"] in ("pin", "unpin")
    ]
    assert entries == [
        ("pin", first, alice.user),
        ("pin", second, alice.user),
        ("unpin", first, alice.user),
    ]
    assert event["message"]["body"] == ""


async def test_pin_in_a_group_requires_owner_or_admin(
    caller: Caller, alice: RawChat, bob: RawChat, new_name: NewName
) -> None:
    """A member may only list pins, and a stranger gets 404."""
    owner, member, stranger = caller(alice.user), caller(bob.user), caller(new_name("eve"))
    chat = await make_group(owner, bob.user)
    seq = (await send(member, chat, "hello")).json()["seq"]
    path = f"/v1/chats/{chat}/pins/{seq}"

    by_member = [await member.put(path), await member.delete(path)]
    by_stranger = [
        await stranger.put(path),
        await stranger.delete(path),
        await stranger.get(f"/v1/chats/{chat}/pins"),
    ]
    await owner.patch(f"/v1/chats/{chat}/members/{bob.user}", json={"role": "admin"})
    by_admin = await member.put(path)

    assert [problem_of(answer) for answer in by_member] == [(403, "forbidden")] * 2
    assert [problem_of(answer) for answer in by_stranger] == [(404, "not_found")] * 3
    assert by_admin.status_code == 204
    assert await list_pinned(owner, chat) == ["hello"]


async def test_pin_in_a_direct_chat_is_allowed_unless_blocked(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Both users may pin. After a block they may only list pins."""
    mine, theirs = caller(alice.user), caller(bob.user)
    seq = (await send(mine, pair, "address: 5 Main St")).json()["seq"]
    path = f"/v1/chats/{pair}/pins/{seq}"

    by_bob = await theirs.put(path)
    listed = await list_pinned(mine, pair)
    await mine.put(f"/v1/me/blocks/{bob.user}")
    refused = [await theirs.delete(path), await mine.put(path)]

    assert by_bob.status_code == 204
    assert [problem_of(answer) for answer in refused] == [(403, "forbidden")] * 2
    assert listed == await list_pinned(theirs, pair) == ["address: 5 Main St"]


async def test_pin_is_idempotent(caller: Caller, alice: RawChat, pair: str) -> None:
    """Repeats, with or without the same reference, add no pin and no entry."""
    client = caller(alice.user)
    seq = (await send(client, pair, "hello")).json()["seq"]
    path = f"/v1/chats/{pair}/pins/{seq}"

    answers = [
        await client.put(path, params={"ref": "p1"}),
        await client.put(path, params={"ref": "p1"}),
        await client.put(path),
        await client.delete(path, params={"ref": "u1"}),
        await client.delete(path, params={"ref": "u1"}),
        await client.delete(path),
    ]
    reused = await client.put(path, params={"ref": "u1"})
    history = (await client.get(f"/v1/chats/{pair}/messages")).json()["messages"]

    assert [answer.status_code for answer in answers] == [204] * 6
    assert problem_of(reused) == (409, "conflict")
    assert [entry["kind"] for entry in history] == ["text", "pin", "unpin"]
    assert await list_pinned(client, pair) == []


async def test_pin_of_absent_or_deleted_message_is_refused(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """A pin of an entry that is not a message is refused too."""
    client = caller(alice.user)
    seq = (await send(client, pair, "hello")).json()["seq"]
    await client.put(f"/v1/chats/{pair}/pins/{seq}")
    deleted = (await send(client, pair, "secret")).json()["seq"]
    await client.delete(f"/v1/chats/{pair}/messages/{deleted}")

    absent = [await client.put(f"/v1/chats/{pair}/pins/{each}") for each in (seq + 1, 99)]
    gone = await client.put(f"/v1/chats/{pair}/pins/{deleted}")

    assert [problem_of(answer) for answer in absent] == [(404, "not_found")] * 2
    assert problem_of(gone) == (409, "conflict")
    assert await list_pinned(client, pair) == ["hello"]


async def test_pinned_message_is_listed_with_its_changes(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """It is listed as edited, hidden or deleted, also before DynamoDB has the change."""
    mine, theirs = caller(alice.user), caller(bob.user)
    seqs = [(await send(mine, pair, f"m{n}")).json()["seq"] for n in range(3)]
    for seq in seqs:
        await mine.put(f"/v1/chats/{pair}/pins/{seq}")

    await mine.patch(f"/v1/chats/{pair}/messages/{seqs[0]}", json={"body": "edited"})
    await theirs.delete(f"/v1/chats/{pair}/messages/{seqs[1]}", params={"for": "me"})
    await mine.delete(f"/v1/chats/{pair}/messages/{seqs[2]}")

    assert await list_pinned(theirs, pair) == ["edited"]
    assert await list_pinned(mine, pair) == ["m1", "edited"]


async def test_pins_are_paged(caller: Caller, alice: RawChat, pair: str) -> None:
    """Pins are ordered by message, newest first; an invalid cursor is refused."""
    client = caller(alice.user)
    for number in range(3):
        seq = (await send(client, pair, f"m{number}")).json()["seq"]
        await client.put(f"/v1/chats/{pair}/pins/{seq}")

    first = (await client.get(f"/v1/chats/{pair}/pins", params={"limit": 2})).json()
    rest = await client.get(f"/v1/chats/{pair}/pins", params={"limit": 2, "cursor": first["next"]})
    bad = await client.get(f"/v1/chats/{pair}/pins", params={"cursor": "x"})

    assert [item["message"]["body"] for item in first["items"]] == ["m2", "m1"]
    assert [item["message"]["body"] for item in rest.json()["items"]] == ["m0"]
    assert rest.json()["next"] is None
    assert problem_of(bad)[0] == 400


@pytest.fixture(scope="module")
def small_api(stack: Stack) -> Server:
    return stack.start_api(**{"chatserver.features.pins.model.PINS_MAX": "2"})


async def test_concurrent_pins_do_not_exceed_the_limit(
    stack: Stack, small_api: Server, alice: RawChat, pair: str
) -> None:
    """Two of eight pins succeed. When a pinned message is deleted, another can be pinned."""
    headers = {"Authorization": f"Bearer {stack.token(alice.user)}"}
    async with httpx.AsyncClient(
        base_url=small_api.endpoint, headers=headers, timeout=20
    ) as client:
        seqs = [(await send(client, pair, f"m{n}")).json()["seq"] for n in range(8)]

        answers = await asyncio.gather(
            *(client.put(f"/v1/chats/{pair}/pins/{seq}") for seq in seqs)
        )
        refused = [answer for answer in answers if answer.status_code != 204]
        [kept, deleted] = [
            seq for seq, answer in zip(seqs, answers, strict=True) if answer.status_code == 204
        ]
        await client.delete(f"/v1/chats/{pair}/messages/{deleted}")
        again = await client.put(
            f"/v1/chats/{pair}/pins/{next(s for s in seqs if s not in (kept, deleted))}"
        )

        assert {problem_of(answer) for answer in refused} == {(413, "too_large")}
        assert "unpin one first" in refused[0].json()["detail"]
        assert again.status_code == 204
        assert len(await list_pinned(client, pair)) == 2


async def test_pinned_message_has_a_flag_until_it_is_unpinned(
    stack: Stack, caller: Caller, alice: RawChat, pair: str
) -> None:
    """An edit keeps the flag."""
    client = caller(alice.user)
    seq = (await send(client, pair, "hello")).json()["seq"]
    path = f"/v1/chats/{pair}/pins/{seq}"

    await client.put(path)
    with_pin = await list_flags(stack, pair, seq)
    edited = {"body": "edited"}
    await client.patch(f"/v1/chats/{pair}/messages/{seq}", json=edited)

    await eventually_equal(
        lambda: stack.read_warm(pair),
        ["edited"],
        of=lambda found: [row.body for row in found if row.seq == seq],
    )
    after_edit = await list_flags(stack, pair, seq)
    await client.delete(path)

    assert (with_pin, after_edit) == ([True], [True])
    assert await list_flags(stack, pair, seq) == [False]


async def test_pin_of_a_deleted_message_is_removed_by_the_worker(
    stack: Stack, caller: Caller, alice: RawChat, pair: str
) -> None:
    """The persisted deletion removes the pin without a request for the list."""
    client = caller(alice.user)
    seqs = [(await send(client, pair, f"m{n}")).json()["seq"] for n in range(2)]
    for seq in seqs:
        await client.put(f"/v1/chats/{pair}/pins/{seq}")

    await client.delete(f"/v1/chats/{pair}/messages/{seqs[0]}")

    async def is_deleted() -> bool:
        rows = await list_pin_rows(stack, pair)
        return [int(row["SK"]["S"].split("#")[1]) for row in rows[:-1]] == seqs[1:] and (
            rows[-1]["pins"] == {"N": "1"}
        )

    await eventually(is_deleted)
    assert await list_flags(stack, pair, seqs[0]) == [False]


async def list_flags(stack: Stack, chat: str, seq: int) -> list[bool]:
    """Return whether the item of a message has the flag, as a list with one value."""
    rows = await stack.read_items(chat)
    return ["pinned" in row for row in rows if row["seq"]["N"] == str(seq)]


async def list_pin_rows(stack: Stack, chat: str) -> list[Fields]:
    """Return the pin items of a chat by seq; the last item has their number."""
    partition = (stack.dynamodb.endpoint, "chat_directory", "PK", f"c#{chat}")
    rows = await asyncio.to_thread(read_partitions, *partition)
    return [row for row in rows if row["SK"]["S"].startswith("pin")]


async def test_pin_does_not_change_the_unread_count(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The chat list counts only the message and shows it as the last message."""
    mine = caller(alice.user)
    seq = (await send(mine, pair, "hello")).json()["seq"]
    await mine.put(f"/v1/chats/{pair}/pins/{seq}")
    await bob.expect_frame("event", chat=pair, kind="pin")

    async def is_listed() -> bool:
        found = (await bob.read_list())[pair]
        return bool(found["unread"] == 1 and found["last"]["body"] == "hello")

    await eventually(is_listed)
