"""chat.v1: expiring messages disappear on time from every tier and leave a tombstone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.support.rawchat import RawChat, get_refusal
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack
from tests.support.stored_items import dynamodb_client

LENGTH = 30  # messages in a chat; the small hot tier keeps about 20 of them
EXPIRING = {2, 3, 7, LENGTH}  # seqs of the messages that expire within two seconds


@pytest.fixture
async def expiring_chat(
    small_hot_stack: Stack, new_name: NewName
) -> AsyncIterator[tuple[RawChat, RawChat, str]]:
    """Two devices and their chat, which is in both tiers; some of its messages expire soon."""
    alice = await small_hot_stack.chat_of(new_name("alice")).start()
    bob = await small_hot_stack.chat_of(new_name("bob")).start()
    chat = await alice.open_direct(bob.user)
    for number in range(1, LENGTH):
        extra = {"expires_s": 1} if number in EXPIRING else {}
        await alice.send(chat, f"m{number}", ref=f"r{number}", **extra)
    await alice.send(chat, f"m{LENGTH}", ref=f"r{LENGTH}", expires_s=1, durability="stored")
    await bob.expect(lambda me: len(me.messages(chat)) == LENGTH)
    yield alice, bob, chat
    await alice.abort()
    await bob.abort()


async def read_all(device: RawChat, chat: str) -> list[dict[str, Any]]:
    """Return the whole history, page by page."""
    messages: list[dict[str, Any]] = []
    while True:
        after = messages[-1]["seq"] if messages else 0
        page = await device.request("history", chat=chat, after=after, limit=8)
        messages += page["messages"]
        if not page["more"]:
            return messages


def is_tombstone(message: dict[str, Any]) -> bool:
    """Return whether a message is deleted and its body empty."""
    return message["body"] == "" and message.get("deleted") is True


async def read_after_expiry(device: RawChat, chat: str) -> list[dict[str, Any]]:
    """Wait until the last message of the chat has expired; return the whole history."""
    expires_at = device.messages(chat)[-1]["expires_at"]
    last_shown = 0.0  # time of the last request that returned the text

    async def is_over() -> bool:
        nonlocal last_shown
        requested_at = time.time()
        page = await device.request("history", chat=chat, limit=1)
        if is_tombstone(page["messages"][0]):
            return True
        last_shown = requested_at
        return False

    await eventually(is_over)  # type: ignore[arg-type]  # mypy loses the type variable
    assert last_shown < expires_at + 0.5, "the message was returned after its expiry"
    return await read_all(device, chat)


async def test_expiring_message_has_expires_at(alice: RawChat, bob: RawChat, pair: str) -> None:
    """Until its expiry it is an ordinary message with `expires_at`, in pushes and in history."""
    before = time.time()
    await alice.send(pair, "expiring", expires_s=60)
    await bob.expect_bodies(pair, ["expiring"])

    (shown,) = bob.messages(pair)
    page = await bob.request("history", chat=pair)

    assert before + 60 <= shown["expires_at"] <= time.time() + 61
    assert page["messages"] == [shown]


async def test_expired_messages_leave_tombstones_in_both_tiers(
    expiring_chat: tuple[RawChat, RawChat, str],
) -> None:
    """History stays contiguous: an expired message keeps its seq and loses its content."""
    alice, bob, chat = expiring_chat
    shown = {message["seq"]: message for message in bob.messages(chat)}

    messages = await read_after_expiry(alice, chat)

    assert [message["seq"] for message in messages] == list(range(1, LENGTH + 1))
    assert {m["seq"] for m in messages if is_tombstone(m)} == EXPIRING
    for message in messages:
        same = {"ts", "mid", "sender", "ref", "kind"}
        assert {name: message[name] for name in same} == {
            name: shown[message["seq"]][name] for name in same
        }


async def test_expired_message_has_no_text_in_sync_and_chat_list(
    expiring_chat: tuple[RawChat, RawChat, str],
) -> None:
    """`sync` and the preview in the chat list return the same tombstone as history."""
    alice, bob, chat = expiring_chat
    epoch, seq = bob.cursor or ("", 0)
    await read_after_expiry(alice, chat)

    page = await bob.request("sync", cursor={"epoch": epoch, "seq": seq - 3})
    lines = await bob.read_list()

    entries = [event["message"] for event in page["events"]]
    assert [entry["body"] for entry in entries] == [f"m{LENGTH - 2}", f"m{LENGTH - 1}", ""]
    assert is_tombstone(entries[-1])
    assert is_tombstone(lines[chat]["last"])


async def test_items_deleted_by_dynamodb_ttl_are_still_tombstones_in_history(
    small_hot_stack: Stack, expiring_chat: tuple[RawChat, RawChat, str]
) -> None:
    """Pages stay contiguous after DynamoDB's TTL has deleted the items."""
    alice, _, chat = expiring_chat
    before = await read_after_expiry(alice, chat)
    client = dynamodb_client(small_hot_stack.dynamodb.endpoint)
    items = await small_hot_stack.read_items(chat)
    for item in items:
        if "expires_at" in item:
            key = {"chatid": item["chatid"], "ts": item["ts"]}
            client.delete_item(TableName="chat_messages", Key=key)

    after = await read_all(alice, chat)
    page = await alice.request("history", chat=chat, before=4, limit=2)

    assert {int(item["seq"]["N"]) for item in items if "expires_at" in item} == EXPIRING
    assert after == before
    assert [(m["seq"], is_tombstone(m)) for m in page["messages"]] == [(2, True), (3, True)]


async def test_retry_of_an_expired_message_creates_no_duplicate(
    expiring_chat: tuple[RawChat, RawChat, str],
) -> None:
    """The `ref` identifies the message even after its text has expired."""
    alice, _, chat = expiring_chat
    await read_after_expiry(alice, chat)

    again = await alice.send(chat, f"m{LENGTH}", ref=f"r{LENGTH}", expires_s=1)

    assert (again["dup"], again["seq"]) == (True, LENGTH)


@pytest.mark.parametrize("expires_s", [0, -1, 31_536_001, 1.5, "1"])
async def test_expiry_out_of_bounds_is_refused(
    alice: RawChat, pair: str, expires_s: object
) -> None:
    """`expires_s` is an integer from a second to a year."""
    refused = await get_refusal(alice.send(pair, "x", expires_s=expires_s))

    assert refused.code == "bad_request"
    assert refused.message.startswith("expires_s:")


async def test_messages_sent_after_retention_is_set_expire(alice: RawChat, bob: RawChat) -> None:
    """After the response every new message expires in time, whichever gateway accepts it.

    Earlier messages do not. A shorter `expires_s` of the sender applies; a longer one does not.
    """
    group = await alice.create_group([bob.user], name="Trip")
    await bob.expect_frame("event", kind="chat", chat=group)
    await bob.send(group, "before")
    answer = await alice.request("update_chat", chat=group, ref="r1", retention_s=3600)
    sent_at = time.time()
    await bob.send(group, "an hour")
    await bob.send(group, "a minute", expires_s=60)
    await alice.send(group, "at most an hour", expires_s=86_400)
    await alice.request("update_chat", chat=group, ref="r2", retention_s=0)
    await bob.send(group, "after")

    await bob.expect_bodies(group, ["before", "an hour", "a minute", "at most an hour", "after"])
    expiries = {each["body"]: each.get("expires_at") for each in bob.messages(group)}
    assert answer["chat"]["retention_s"] == 3600
    assert expiries["before"] is None
    assert expiries["after"] is None
    for body, lifetime_s in (("an hour", 3600), ("a minute", 60)):
        assert sent_at - 1 <= expiries[body] - lifetime_s <= time.time() + 1
    assert sent_at - 1 <= expiries["at most an hour"] - 3600 <= time.time() + 1
    entries = bob.of_type("event", kind="update", chat=group)
    assert [each["message"]["body"] for each in entries] == [
        '{"retention_s":3600}',
        '{"retention_s":0}',
    ]


async def test_expired_messages_do_not_count_as_unread(
    small_hot_stack: Stack, new_name: NewName
) -> None:
    """The unread count includes only messages that the user can still read."""
    async with (
        small_hot_stack.chat_of(new_name("alice")) as alice,
        small_hot_stack.chat_of(new_name("bob")) as bob,
    ):
        chat = await alice.open_direct(bob.user)
        await alice.send(chat, "stays")
        for number in range(3):
            await alice.send(chat, f"expiring {number}", expires_s=1)
        await alice.request("delete", chat=chat, seq=2, ref="d1")

        async def unread() -> int:
            (line,) = [one for one in (await bob.read_list()).values() if one["chat"] == chat]
            return int(line["unread"])

        await eventually(lambda: _equals(unread, 1), what="the unread count is 1")


async def _equals(count: Callable[[], Awaitable[int]], expected: int) -> bool:
    return await count() == expected
