"""chat.v1: edit, delete and react, seen by two users: live, after a reconnect and in each tier."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from chatserver.protocol import codec, frames
from chatserver.protocol.message_change_effects import apply_entry, is_message
from tests.support.rawchat import RawChat, get_refusal
from tests.support.servers.processes import eventually, redis_client
from tests.support.stack import NewName, Stack
from tests.support.stored_items import read_partitions


async def read(device: RawChat, chat: str, **window: Any) -> dict[int, dict[str, Any]]:
    """Read a page of history; return its messages by seq."""
    page = await device.request("history", chat=chat, **window)
    return {message["seq"]: message for message in page["messages"]}


async def change(device: RawChat, type_: str, chat: str, seq: int, **fields: Any) -> dict[str, Any]:
    """Request a change under a new ref; return the ack."""
    ref = fields.pop("ref", f"{device.device}-{type_}-{len(device.frames)}")
    return await device.request(type_, chat=chat, seq=seq, ref=ref, **fields)


def replay(device: RawChat, chat: str) -> dict[int, frames.Message]:
    """Apply the events that a device received, as a client does; return the messages."""
    kept: dict[int, frames.Message] = {}
    for event in device.of_type("event", chat=chat):
        if "message" in event:
            entry = codec.decode_message(json.dumps(event["message"]).encode())
            assert event["cs"] == entry.seq
            assert event["kind"] == ("message" if is_message(entry) else entry.kind)
            if is_message(entry):
                kept[entry.seq] = entry
            elif entry.target in kept:
                kept[entry.target] = apply_entry(kept[entry.target], entry)
    return kept


# delivery


async def test_changes_reach_both_sides_live(alice: RawChat, bob: RawChat, pair: str) -> None:
    """An edit, a reaction and a deletion are events with their own seq."""
    one, two = [(await alice.send(pair, text))["seq"] for text in ("one", "two")]

    edit = await change(alice, "edit", pair, one, body="uno")
    react = await change(bob, "react", pair, one, emoji="👍")
    delete = await change(alice, "delete", pair, two)

    assert [edit["seq"], react["seq"], delete["seq"]] == [3, 4, 5]
    assert not edit["dup"] and edit["durability"] == "hot"
    for side in (alice, bob):
        event = await side.expect_frame("event", kind="delete", chat=pair)
        assert (event["cs"], event["message"]["target"]) == (5, two)
        kinds = [event["kind"] for event in side.of_type("event", chat=pair) if "cs" in event]
        assert kinds == ["message", "message", "edit", "reaction", "delete"]
        kept = replay(side, pair)
        assert (kept[one].body, kept[one].reactions) == ("uno", {bob.user: "👍"})
        assert (kept[two].body, kept[two].deleted) == ("", True)


async def test_missed_changes_are_delivered_on_resume(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A reconnected device has the same messages as others and gets no deleted text."""
    one = (await alice.send(pair, "one"))["seq"]
    await bob.expect_bodies(pair, ["one"])
    await bob.abort()
    secret = (await alice.send(pair, "secret-1"))["seq"]
    await change(alice, "edit", pair, one, body="uno")
    await change(alice, "edit", pair, secret, body="secret-2")
    await change(alice, "delete", pair, secret)
    await change(alice, "react", pair, one, emoji="🎉")

    await bob.reconnect()
    await bob.expect_frame("event", kind="reaction", chat=pair)

    kept = replay(bob, pair)
    assert (kept[one].body, kept[one].reactions) == ("uno", {alice.user: "🎉"})
    assert kept[secret].deleted
    assert "secret" not in str(bob.frames)
    seqs = [event["cs"] for event in bob.of_type("event", chat=pair) if "cs" in event]
    assert seqs == list(range(1, 7))


async def test_history_returns_the_current_state_of_messages(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """History in the hot tier has edits and reactions, and no deleted text."""
    one, secret = [(await alice.send(pair, text))["seq"] for text in ("one", "secret-1")]
    edit = await change(alice, "edit", pair, secret, body="secret-2")
    await change(alice, "edit", pair, one, body="uno")
    react = await change(bob, "react", pair, one, emoji="👍")
    delete = await change(alice, "delete", pair, secret)

    for window in ({}, {"after": 0}, {"before": 7}, {"limit": 6}):
        rows = await read(bob, pair, **window)

        assert sorted(rows) == [1, 2, 3, 4, 5, 6]
        assert rows[one]["body"] == "uno"
        assert (rows[one]["rev"], rows[one]["reactions"]) == (react["seq"], {bob.user: "👍"})
        assert (rows[secret]["body"], rows[secret]["deleted"]) == ("", True)
        assert rows[secret]["rev"] == delete["seq"]
        assert (rows[edit["seq"]]["body"], rows[edit["seq"]]["deleted"]) == ("", True)
        assert "secret" not in str(rows)
    assert (await read(bob, pair, before=secret, limit=1)).keys() == {one}
    assert (await read(bob, pair, after=one, limit=1))[secret]["deleted"]


# permissions


async def test_changes_of_others_messages_are_forbidden(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Users of a direct chat change only their own messages, but may react to all."""
    seq = (await alice.send(pair, "mine"))["seq"]

    assert (await get_refusal(change(bob, "edit", pair, seq, body="yours"))).code == "forbidden"
    assert (await get_refusal(change(bob, "delete", pair, seq))).code == "forbidden"
    assert (await change(bob, "react", pair, seq, emoji="👍"))["seq"] == 2


async def test_owner_of_a_group_may_delete_messages_of_others(alice: RawChat, bob: RawChat) -> None:
    """A member who is not the owner may not do so."""
    chat = await alice.create_group([bob.user], ref="g1", name="Team")
    mine, yours = (await alice.send(chat, "a"))["seq"], (await bob.send(chat, "b"))["seq"]

    assert (await get_refusal(change(bob, "delete", chat, mine))).code == "forbidden"
    await change(alice, "delete", chat, yours)

    assert (await read(bob, chat))[yours]["deleted"]


async def test_changes_by_non_members_get_not_found(
    alice: RawChat, pair: str, stack: Stack, new_name: NewName
) -> None:
    """The error is the same as for a chat that does not exist (guarantee P7)."""
    seq = (await alice.send(pair, "mine"))["seq"]
    async with stack.chat_of(new_name("carol")) as carol:
        for type_, fields in (
            ("edit", {"body": "x"}),
            ("delete", {}),
            ("delete", {"for": "me"}),
            ("react", {"emoji": "👍"}),
        ):
            failed = await get_refusal(change(carol, type_, pair, seq, **fields))
            assert (failed.code, failed.message) == (
                "not_found",
                "chat: no such chat, or you are not a member",
            )
        assert (
            await get_refusal(change(carol, "edit", "nowhere", 1, body="x"))
        ).code == "not_found"


async def test_invalid_changes_are_refused(alice: RawChat, bob: RawChat, pair: str) -> None:
    """Each error has the code and message for its cause."""
    seq = (await alice.send(pair, "one"))["seq"]
    react = (await change(bob, "react", pair, seq, emoji="👍"))["seq"]

    assert (await get_refusal(change(alice, "edit", pair, 99, body="x"))).code == "not_found"
    assert (
        await get_refusal(change(alice, "delete", pair, 99, **{"for": "me"}))
    ).code == "not_found"
    assert (await get_refusal(change(alice, "delete", pair, react))).code == "not_found"
    assert (await get_refusal(change(alice, "edit", pair, seq, body=""))).code == "bad_request"
    assert (
        await get_refusal(change(alice, "edit", pair, seq, body="x" * 4001))
    ).code == "too_large"
    assert (
        await get_refusal(change(alice, "react", pair, seq, emoji="👍" * 17))
    ).code == "too_large"
    assert (await get_refusal(change(alice, "react", pair, seq, emoji="a b"))).code == "bad_request"
    await change(alice, "delete", pair, seq)
    for type_, fields in (("edit", {"body": "x"}), ("react", {"emoji": "👍"})):
        failed = await get_refusal(change(alice, type_, pair, seq, **fields))
        assert (failed.code, failed.message) == ("conflict", "seq: the message is deleted")


async def test_deleting_a_deleted_message_is_acked_without_an_event(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The retry of a delete with another `ref` succeeds; the chat gets one entry.

    Its ack has the place of that entry, so that a device repeats it if Redis loses the entry.
    """
    seq = (await alice.send(pair, "one"))["seq"]
    first = await change(alice, "delete", pair, seq)

    again = await change(alice, "delete", pair, seq)
    following = await alice.send(pair, "two")

    assert (again["seq"], again["mid"], again["ts"], again["dup"]) == (first["seq"], "", 0, True)
    assert following["seq"] == first["seq"] + 1


@pytest.mark.parametrize("kind", frames.RESERVED_KINDS)
async def test_send_of_a_reserved_kind_is_refused(alice: RawChat, pair: str, kind: str) -> None:
    """A message cannot pass as a change or as another reserved entry."""
    refused = await get_refusal(alice.send_unrecorded(pair, "r", "x", kind=kind))

    assert refused.code == "bad_request"
    assert refused.message.startswith("kind: expected a lower-case word")


# refs


async def test_retry_of_a_change_returns_the_first_ack(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A retry with the same ref returns the same seq and changes nothing (guarantee P2)."""
    seq = (await alice.send(pair, "one"))["seq"]
    for type_, fields in (
        ("edit", {"body": "two"}),
        ("react", {"emoji": "👍"}),
        ("delete", {}),
    ):
        first = await change(alice, type_, pair, seq, ref=f"r-{type_}", **fields)
        again = await change(alice, type_, pair, seq, ref=f"r-{type_}", **fields)

        names = ("seq", "ts", "mid", "ref")
        assert [again[name] for name in names] == [first[name] for name in names]
        assert (first["dup"], again["dup"]) == (False, True)
    assert sorted(await read(bob, pair)) == [1, 2, 3, 4]


async def test_change_with_a_used_ref_is_a_conflict(alice: RawChat, pair: str) -> None:
    """Messages and changes of a sender in a chat share one namespace of refs."""
    seq = (await alice.send(pair, "one", ref="r1"))["seq"]
    await change(alice, "edit", pair, seq, ref="r2", body="two")

    for ref in ("r1", "r2"):
        failed = await get_refusal(change(alice, "edit", pair, seq, ref=ref, body="three"))
        assert failed.code == "conflict"
    assert (
        await get_refusal(change(alice, "react", pair, seq, ref="r2", emoji="🎉"))
    ).code == "conflict"
    refused = await get_refusal(alice.send_unrecorded(pair, "r2", "two"))
    assert refused.code == "conflict"


# delete for oneself


async def test_delete_for_me_hides_the_message_from_its_user_only(
    alice: RawChat, bob: RawChat, pair: str, stack: Stack
) -> None:
    """It is hidden on all devices of the user: live, in history and in `sync`."""
    one, two = [(await alice.send(pair, text))["seq"] for text in ("secret", "two")]
    await bob.expect_bodies(pair, ["secret", "two"])
    async with stack.chat_of(bob.user, device="bob-late") as other:
        ack = await change(bob, "delete", pair, one, ref="h", **{"for": "me"})
        again = await change(bob, "delete", pair, one, ref="h", **{"for": "me"})

        for device in (bob, other):
            event = await device.expect_frame("event", kind="hidden", chat=pair)
            assert event["hidden"] == [one]
        assert (ack["seq"], ack["mid"], ack["dup"], again["dup"]) == (one, "", False, True)
        await change(alice, "edit", pair, one, body="secret-2")
        assert (await read(other, pair))[one]["deleted"]
        cursor = {"epoch": bob.welcome["epoch"], "seq": 0}
        missed = (await other.request("sync", cursor=cursor))["events"]
        assert "secret" not in str((await read(other, pair), missed))
    assert (await read(alice, pair))[one]["body"] == "secret-2"
    assert (await read(bob, pair))[two]["body"] == "two"
    assert not alice.of_type("event", kind="hidden")


async def test_delete_for_me_is_stored_in_the_directory(
    alice: RawChat, bob: RawChat, pair: str, stack: Stack
) -> None:
    """Hidden messages are stored in DynamoDB, so they survive the loss of Redis."""
    for number in range(3):
        await alice.send(pair, f"m{number}")
    for seq in (1, 3):
        await change(bob, "delete", pair, seq, **{"for": "me"})

    async def is_stored() -> bool:
        partition = (stack.dynamodb.endpoint, "chat_directory", "PK", f"c#{pair}")
        rows = await asyncio.to_thread(read_partitions, *partition)
        hidden = {row["SK"]["S"]: set(row["hidden"]["NS"]) for row in rows if "hidden" in row}
        return hidden == {f"m#{bob.user}": {"1", "3"}}

    await eventually(is_stored)


# the warm tier


async def fill(alice: RawChat, chat: str, count: int = 45) -> None:
    """Send enough messages that earlier ones are only in the warm tier."""
    for number in range(count - 1):
        await alice.send_nowait(chat, f"filler {number}")
    await alice.send(chat, "last filler", durability="stored")


async def test_messages_in_the_warm_tier_can_be_changed(
    small_hot_stack: Stack, new_name: NewName
) -> None:
    """Messages that are no longer in Redis can be edited, reacted to and deleted."""
    bob = await small_hot_stack.chat_of(new_name("bob")).start()
    async with small_hot_stack.chat_of(new_name("alice")) as alice:
        chat = await alice.open_direct(bob.user)
        one, secret = [(await alice.send(chat, text))["seq"] for text in ("one", "secret-1")]
        old_edit = (await change(alice, "edit", chat, secret, body="secret-2"))["seq"]
        await fill(alice, chat)
        page = await alice.request("history", chat=chat, after=0, limit=5)
        assert page["tier"] == "warm"
        assert [message["body"] for message in page["messages"][:2]] == ["one", "secret-2"]

        react = await change(bob, "react", chat, one, emoji="👍")
        await change(alice, "edit", chat, one, body="uno")
        await change(alice, "delete", chat, secret)

        # First the overlay has the changes, later the items to which they were applied.
        rows = await read(bob, chat, after=0, limit=5)
        assert (rows[one]["body"], rows[one]["reactions"]) == ("uno", {bob.user: "👍"})
        assert (rows[secret]["body"], rows[secret]["deleted"]) == ("", True)
        assert rows[old_edit]["deleted"]
        await fill(alice, chat)
        await bob.stop()
        assert await read(alice, chat, after=0, limit=5) == rows
        with redis_client(small_hot_stack.redis_url) as client:
            assert list(client.scan_iter(f"*:over:{chat}")) == []
        items = {int(item["seq"]["N"]): item for item in await small_hot_stack.read_items(chat)}
        assert "secret" not in str(items)
        assert items[secret]["status"]["S"] == "deleted"
        assert items[secret]["status_ts"]["S"].startswith("deleted#")
        assert items[one]["status_ts"]["S"].startswith("active#")
        assert int(items[one]["rev"]["N"]) == react["seq"] + 1
        assert sorted(items) == list(range(1, len(items) + 1))


async def test_chat_list_previews_the_current_state_of_the_newest_message(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Edits and reactions are not messages; an edited message shows its new text."""
    seq = (await alice.send(pair, "helo"))["seq"]
    await change(alice, "edit", pair, seq, body="hello")
    await change(bob, "react", pair, seq, emoji="👍")

    line = (await bob.request("chats"))["chats"][0]

    assert line["top"] == 3
    assert (line["last"]["seq"], line["last"]["body"]) == (seq, "hello")


async def test_change_moves_no_read_mark(alice: RawChat, bob: RawChat, pair: str) -> None:
    """Sending a message marks earlier ones as read; a reaction does not."""
    one = (await alice.send(pair, "one"))["seq"]
    await alice.send(pair, "two")

    await change(bob, "react", pair, one, emoji="👍")
    line = (await bob.request("chats"))["chats"][0]
    await bob.send(pair, "three")
    after = (await bob.request("chats"))["chats"][0]

    assert (line["top"], line.get("read", 0), line["unread"]) == (3, 0, 2)
    assert (after["top"], after["read"], after.get("unread", 0)) == (4, 4, 0)
