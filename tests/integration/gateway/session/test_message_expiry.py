"""chat.v1: messages that expire vanish on time, from every tier, and leave no hole."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import Stack, dynamodb_client

pytest_plugins = ["tests.support.stack_fixtures"]

NewName = Callable[[str], str]
LENGTH = 30  # of a chat of which the shallow hot tier holds about 20
BRIEF = {2, 3, 7, LENGTH}  # of them, these expire within a second or two


@pytest.fixture
async def brief(shallow: Stack, new_name: NewName) -> AsyncIterator[tuple[RawChat, RawChat, str]]:
    """Two devices and their chat, in both tiers, of which some messages expire soon."""
    alice = await shallow.chat_of(new_name("alice")).start()
    bob = await shallow.chat_of(new_name("bob")).start()
    chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
    for number in range(1, LENGTH):
        extra = {"expires_s": 1} if number in BRIEF else {}
        await alice.say(chat, f"m{number}", ref=f"r{number}", **extra)
    await alice.say(chat, f"m{LENGTH}", ref=f"r{LENGTH}", expires_s=1, durability="stored")
    await bob.expect(lambda me: len(me.messages(chat)) == LENGTH)
    yield alice, bob, chat
    await alice.abort()
    await bob.abort()


async def read_all(device: RawChat, chat: str) -> list[dict[str, Any]]:
    """Return the whole history, page by page."""
    messages: list[dict[str, Any]] = []
    while True:
        after = messages[-1]["seq"] if messages else 0
        page = await device.ask("history", chat=chat, after=after, limit=8)
        messages += page["messages"]
        if not page["more"]:
            return messages


def is_tombstone(message: dict[str, Any]) -> bool:
    """Return whether nothing of a message's content is left."""
    return message["body"] == "" and message.get("deleted") is True


async def wait_for_the_end(device: RawChat, chat: str) -> list[dict[str, Any]]:
    """Return the whole history as soon as the last message of the chat has expired."""
    end = device.messages(chat)[-1]["expires_at"]
    last_shown = 0.0  # to one who asked then

    async def is_over() -> bool:
        nonlocal last_shown
        asked = time.time()
        page = await device.ask("history", chat=chat, limit=1)
        if is_tombstone(page["messages"][0]):
            return True
        last_shown = asked
        return False

    await eventually(is_over)  # type: ignore[arg-type]  # mypy loses the type variable
    assert last_shown < end + 0.5, "it is shown after its time"
    return await read_all(device, chat)


async def test_expiring_message_is_shown_with_its_end(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Until its expiry it is an ordinary message with `expires_at`."""
    before = time.time()
    await alice.say(pair, "soon gone", expires_s=60)
    await bob.expect_bodies(pair, ["soon gone"])

    (shown,) = bob.messages(pair)
    page = await bob.ask("history", chat=pair)

    assert before + 60 <= shown["expires_at"] <= time.time() + 61
    assert page["messages"] == [shown]


async def test_expired_messages_leave_tombstones_in_both_tiers(
    brief: tuple[RawChat, RawChat, str],
) -> None:
    """History stays contiguous; an expired message has a position and no content."""
    alice, bob, chat = brief
    shown = {message["seq"]: message for message in bob.messages(chat)}

    messages = await wait_for_the_end(alice, chat)

    assert [message["seq"] for message in messages] == list(range(1, LENGTH + 1))
    assert {m["seq"] for m in messages if is_tombstone(m)} == BRIEF
    for message in messages:
        same = {"ts", "mid", "sender", "ref", "kind"}
        assert {name: message[name] for name in same} == {
            name: shown[message["seq"]][name] for name in same
        }


async def test_expired_message_is_gone_from_sync_and_list(
    brief: tuple[RawChat, RawChat, str],
) -> None:
    """A late device and the preview of a chat show as little as history."""
    alice, bob, chat = brief
    epoch, seq = bob.cursor or ("", 0)
    await wait_for_the_end(alice, chat)

    page = await bob.ask("sync", cursor={"epoch": epoch, "seq": seq - 3})
    lines = await bob.read_list()

    entries = [event["message"] for event in page["events"]]
    assert [entry["body"] for entry in entries] == [f"m{LENGTH - 2}", f"m{LENGTH - 1}", ""]
    assert is_tombstone(entries[-1])
    assert is_tombstone(lines[chat]["last"])


async def test_items_removed_by_the_database_leave_no_hole(
    shallow: Stack, brief: tuple[RawChat, RawChat, str]
) -> None:
    """When DynamoDB's TTL comes, a page goes on over what it removed."""
    alice, _, chat = brief
    before = await wait_for_the_end(alice, chat)
    client = dynamodb_client(shallow.dynamodb.endpoint)
    items = await shallow.read_items(chat)
    for item in items:
        if "expires_at" in item:
            key = {"chatid": item["chatid"], "ts": item["ts"]}
            client.delete_item(TableName="chat_messages", Key=key)

    after = await read_all(alice, chat)
    page = await alice.ask("history", chat=chat, before=4, limit=2)

    assert {int(item["seq"]["N"]) for item in items if "expires_at" in item} == BRIEF
    assert after == before
    assert [(m["seq"], is_tombstone(m)) for m in page["messages"]] == [(2, True), (3, True)]


async def test_retry_of_an_expired_message_is_no_second_one(
    brief: tuple[RawChat, RawChat, str],
) -> None:
    """The reference stands for the message also when its text is gone."""
    alice, _, chat = brief
    await wait_for_the_end(alice, chat)

    again = await alice.say(chat, f"m{LENGTH}", ref=f"r{LENGTH}", expires_s=1)

    assert (again["dup"], again["seq"]) == (True, LENGTH)


@pytest.mark.parametrize("expires_s", [0, -1, 31_536_001, 1.5, "1"])
async def test_expiry_out_of_its_bound_is_refused(
    alice: RawChat, pair: str, expires_s: object
) -> None:
    """From a second to a year."""
    with pytest.raises(Failed) as caught:
        await alice.say(pair, "x", expires_s=expires_s)

    assert caught.value.code == "bad_request"
    assert caught.value.message.startswith("expires_s:")


async def test_messages_of_a_chat_with_retention_end_from_the_change_on(
    alice: RawChat, bob: RawChat
) -> None:
    """Once the change is answered every message ends in time, whichever gateway takes it.

    What was sent before stays; a sender's own earlier end counts; a later one does not.
    """
    made = await alice.ask("create_chat", ref="g", members=[bob.user], name="Trip")
    group = made["chat"]["chat"]
    await bob.expect_frame("event", kind="chat", chat=group)
    await bob.say(group, "before")
    answer = await alice.ask("update_chat", chat=group, ref="keep", retention_s=3600)
    asked = time.time()
    await bob.say(group, "of an hour")
    await bob.say(group, "of a minute", expires_s=60)
    await alice.say(group, "no longer than an hour", expires_s=86_400)
    await alice.ask("update_chat", chat=group, ref="keep-on", retention_s=0)
    await bob.say(group, "after")

    await bob.expect_bodies(
        group, ["before", "of an hour", "of a minute", "no longer than an hour", "after"]
    )
    ends = {each["body"]: each.get("expires_at") for each in bob.messages(group)}
    assert answer["chat"]["retention_s"] == 3600
    assert ends["before"] is None
    assert ends["after"] is None
    for body, lives_s in (("of an hour", 3600), ("of a minute", 60)):
        assert asked - 1 <= ends[body] - lives_s <= time.time() + 1
    assert asked - 1 <= ends["no longer than an hour"] - 3600 <= time.time() + 1
    entries = bob.of_type("event", kind="update", chat=group)
    assert [each["message"]["body"] for each in entries] == [
        '{"retention_s":3600}',
        '{"retention_s":0}',
    ]


async def test_expired_messages_do_not_count_as_unread(shallow: Stack, new_name: NewName) -> None:
    """The chat list counts what the user can still read."""
    async with shallow.chat_of(new_name("alice")) as alice, shallow.chat_of(new_name("bob")) as bob:
        chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
        await alice.say(chat, "stays")
        for number in range(3):
            await alice.say(chat, f"goes {number}", expires_s=1)
        await alice.ask("delete", chat=chat, seq=2, ref="d1")

        async def unread() -> int:
            (line,) = [one for one in (await bob.read_list()).values() if one["chat"] == chat]
            return int(line["unread"])

        await eventually(lambda: _equals(unread, 1), what="only the lasting message is unread")


async def _equals(count: Callable[[], Awaitable[int]], expected: int) -> bool:
    return await count() == expected
