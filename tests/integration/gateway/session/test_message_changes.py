"""chat.v1: edit, delete and react, seen by two users: live, after a reconnect and in each tier."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatserver.protocol import codec, frames
from chatserver.protocol.message_change_effects import apply_entry, is_message
from tests.support.rawchat import RawChat, get_refusal
from tests.support.servers.processes import redis_client
from tests.support.stack import NewName, Stack


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


async def test_change_of_a_message_with_another_ref_is_not_found(
    alice: RawChat, pair: str, stack: Stack
) -> None:
    """After a loss of Redis, another message may have the seq of the one that is meant."""
    requests: dict[str, dict[str, Any]] = {
        "edit": {"body": "two"},
        "react": {"emoji": "👍"},
        "hide": {"for": "me"},
        "delete": {},
    }
    for is_evicted in (False, True):
        ref = f"meant-{is_evicted}"
        seq = (await alice.send(pair, "one", ref, durability="stored"))["seq"]
        with redis_client(stack.redis_url) as client:
            if is_evicted:
                client.xtrim(f"{{p0}}:log:{pair}", maxlen=0)
        for name, fields in requests.items():
            type_ = "delete" if name == "hide" else name
            request = {"ref": f"{name}-{is_evicted}", **fields}
            refused = await get_refusal(
                change(alice, type_, pair, seq, target_ref="lost", **request)
            )
            assert (refused.code, refused.message) == (
                "not_found",
                "seq: the chat has no such message",
            )
            await change(alice, type_, pair, seq, target_ref=ref, **request)
            # The retry of a committed change is acked, also if another message has the seq now.
            if name != "hide":
                await change(alice, type_, pair, seq, target_ref="lost", **request)


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
