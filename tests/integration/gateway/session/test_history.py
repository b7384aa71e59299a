"""chat.v1: `history` and `sync`, across the hot and the warm tier."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis import Redis

from chatserver import config
from chatserver.hot.chats.eviction import Eviction
from chatserver.hot.redis.factory import open_hot
from tests.support.history.checker import check
from tests.support.history.events import Stored
from tests.support.history.violation import report
from tests.support.rawchat import RawChat
from tests.support.recorder import Recorder
from tests.support.servers.processes import eventually, eventually_equal
from tests.support.stack import NewName, Stack

LENGTH = 90  # length of the long chat; the small hot tier keeps about 20 messages


def seqs_of(page: dict[str, Any]) -> list[int]:
    """Return the seqs of the messages on a page."""
    return [message["seq"] for message in page["messages"]]


@pytest.fixture
async def long_chat(
    small_hot_stack: Stack, new_name: NewName
) -> AsyncIterator[tuple[RawChat, str]]:
    """A device and its chat of `LENGTH` messages, most of them only in the warm tier."""
    bob = await small_hot_stack.chat_of(new_name("bob")).start()
    await bob.stop()
    async with small_hot_stack.chat_of(new_name("alice")) as alice:
        chat = await alice.open_direct(bob.user)
        for number in range(1, LENGTH):
            await alice.send(chat, f"m{number}")
        await alice.send(chat, f"m{LENGTH}", durability="stored")
        yield alice, chat


# ── one tier ──────────────────────────────────────────────────────────────────────────────────────


async def test_history_returns_the_same_messages_as_pushes(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A message is the same object in an event and on a page."""
    await alice.send(pair, "one", kind="markdown")
    await bob.send(pair, "two", reply_to=1)
    await alice.expect(lambda me: len(me.messages(pair)) == 2)

    page = await bob.request("history", chat=pair)

    assert page["messages"] == alice.messages(pair)


async def test_newest_page_has_stored_position_and_read_marks(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A client that opens a chat needs no further request for them."""
    await bob.send(pair, "one")
    ack = await bob.send(pair, "two", durability="stored")
    await alice.request("mark", chat=pair, read=1, received=2)

    newest = await bob.request("history", chat=pair)
    older = await bob.request("history", chat=pair, before=2)

    assert newest["stored"] == older["stored"] == ack["seq"]
    assert {marks["user"]: marks for marks in newest["marks"]} == {
        alice.user: {"user": alice.user, "read": 1, "received": 2},
        bob.user: {"user": bob.user, "read": 2, "received": 2},
    }
    assert older["marks"] == []


# ── across the tiers ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [1, 7, 50, 200])
@pytest.mark.parametrize("hint", [True, False])
async def test_history_paging_backward_returns_each_message_once_across_tiers(
    long_chat: tuple[RawChat, str], limit: int, hint: bool
) -> None:
    """From the newest page to the first, no message is missing or repeated."""
    alice, chat = long_chat
    seen: list[dict[str, Any]] = []
    tiers: list[str] = []
    window: dict[str, int] = {}
    while True:
        page = await alice.request("history", chat=chat, limit=limit, **window)
        seen = page["messages"] + seen
        tiers.append(page["tier"])
        if not page["more"]:
            break
        window = {"before": seen[0]["seq"]} | ({"ts": seen[0]["ts"]} if hint else {})

    assert [message["body"] for message in seen] == [f"m{n}" for n in range(1, LENGTH + 1)]
    assert tiers == sorted(tiers)  # there is no hot page after a warm one
    assert "warm" in tiers


async def test_history_read_during_sends_and_trimming_is_contiguous(
    small_hot_stack: Stack, new_name: NewName
) -> None:
    """Messages that move from Redis to DynamoDB during a read are neither lost nor repeated."""
    recorder = Recorder()
    bob = await small_hot_stack.chat_of(new_name("bob"), recorder=recorder).start()
    alice = await small_hot_stack.chat_of(new_name("alice"), recorder=recorder).start()
    chat = await alice.open_direct(bob.user)
    recorder.history.chats[chat] = [alice.user, bob.user]
    for number in range(150):
        await alice.send_nowait(chat, f"m{number}")
        if number % 5 == 4:
            await bob.read_page(chat, limit=30)
            await bob.read_page(chat, after=max(0, number - 60), limit=50)
            await bob.read_page(chat, before=max(0, number - 10), limit=50)
    await alice.expect(lambda me: not me.pending)

    await eventually_equal(lambda: small_hot_stack.read_warm(chat), 150, of=len)
    await bob.expect(lambda me: len(me.messages(chat)) == 150)
    for side in (alice, bob):
        await side.read_final(chat)
        await side.read_list()
        await side.stop()
    recorder.add(Stored(chat, await small_hot_stack.read_warm(chat)))

    violations = check(recorder.history)

    assert not violations, report(violations)


# ── sync ──────────────────────────────────────────────────────────────────────────────────────────


async def test_sync_pages_through_missed_events(alice: RawChat, bob: RawChat, pair: str) -> None:
    """Pages return the events of the inbox in order."""
    for number in range(25):
        await alice.send(pair, f"m{number}")
    await bob.expect(lambda me: len(me.messages(pair)) == 25)
    cursor: dict[str, Any] = {"epoch": bob.welcome["epoch"], "seq": 0}
    events: list[dict[str, Any]] = []
    sizes: list[int] = []
    while True:
        page = await bob.request("sync", cursor=cursor, limit=10)
        events += page["events"]
        sizes.append(len(page["events"]))
        cursor = page["cursor"]
        if not page["more"]:
            break

    assert sizes == [10, 10, 6]
    assert events == bob.of_type("event")
    assert cursor["seq"] == 26


@pytest.mark.parametrize("fault", ["epoch", "ahead"])
async def test_sync_from_an_invalid_cursor_is_reset(bob: RawChat, pair: str, fault: str) -> None:
    """A cursor of another epoch, or ahead of the server, gets a snapshot."""
    epoch = bob.welcome["epoch"]
    cursor = {"epoch": "other", "seq": 0} if fault == "epoch" else {"epoch": epoch, "seq": 99}

    answer = await bob.request("sync", cursor=cursor)

    assert answer["type"] == "reset"
    assert answer["cursor"] == {"epoch": epoch, "seq": 1}
    assert [line["chat"] for line in answer["chats"]] == [pair]


async def test_sync_before_the_start_of_the_inbox_gets_a_snapshot(
    long_chat: tuple[RawChat, str],
) -> None:
    """The client is notified that events were trimmed from the inbox."""
    alice, chat = long_chat

    answer = await alice.request("sync", cursor={"epoch": alice.welcome["epoch"], "seq": 1})

    assert answer["type"] == "too_long"
    assert answer["cursor"]["seq"] == LENGTH + 1  # the first event is the new chat
    assert [(line["chat"], line["top"]) for line in answer["chats"]] == [(chat, LENGTH)]


# ── idle chats ────────────────────────────────────────────────────────────────────────────────────


async def evict_all(stack: Stack) -> int:
    """Evict every chat that was idle for a second; return their number."""
    settings = config.Redis(url=stack.redis_url, chat_idle_s=1)
    async with open_hot(settings) as hot:
        return await Eviction(hot).evict_idle(0, time.time())


async def wait_until_evicted(stack: Stack, chat: str) -> None:
    """Evict idle chats until this one is not in Redis."""
    redis = Redis.from_url(stack.redis_url, socket_timeout=60)

    async def is_evicted() -> bool:
        await evict_all(stack)
        return not redis.hexists(f"{{p0}}:chat:{chat}", "gate")

    await eventually(is_evicted)  # type: ignore[arg-type]  # mypy loses the type variable


async def test_mark_in_an_evicted_chat_is_kept(small_hot_stack: Stack, new_name: NewName) -> None:
    """Redis has no newest seq of the chat, which limits marks, until it is loaded again."""
    names = new_name("alice"), new_name("bob")
    async with small_hot_stack.chat_of(names[0]) as alice, small_hot_stack.chat_of(names[1]) as bob:
        chat = await alice.open_direct(bob.user)
        await alice.send(chat, "m1")
        await alice.send(chat, "m2", durability="stored")
        await wait_until_evicted(small_hot_stack, chat)
        await bob.request("mark", chat=chat, read=2)

        assert (await bob.read_list())[chat]["read"] == 2


async def test_own_message_in_an_evicted_chat_counts_as_read(
    small_hot_stack: Stack, new_name: NewName
) -> None:
    """Redis gets the seq of the sender's newest message when the chat is loaded again."""
    names = new_name("alice"), new_name("bob")
    async with small_hot_stack.chat_of(names[0]) as alice, small_hot_stack.chat_of(names[1]) as bob:
        chat = await alice.open_direct(bob.user)
        await alice.send(chat, "m1")
        await alice.send(chat, "m2", durability="stored")
        await wait_until_evicted(small_hot_stack, chat)
        own = (await alice.read_list())[chat]
        await wait_until_evicted(small_hot_stack, chat)
        peer = (await bob.read_list())[chat]["peer"]

        assert (own["read"], own.get("unread", 0)) == (2, 0)
        assert peer == {"user": alice.user, "read": 2, "received": 2}


async def test_evicted_chat_is_loaded_again_unchanged(
    small_hot_stack: Stack, new_name: NewName
) -> None:
    """A device resumes by cursor, history is complete, and the next message has the next seq."""
    async with small_hot_stack.chat_of(new_name("alice")) as alice:
        bob = await small_hot_stack.chat_of(new_name("bob")).start()
        chat = await alice.open_direct(bob.user)
        await alice.send(chat, "m1")
        await bob.expect_bodies(chat, ["m1"])
        await bob.abort()
        for number in (2, 3):
            await alice.send(chat, f"m{number}", durability="stored")
        await wait_until_evicted(small_hot_stack, chat)
        await bob.start()
        await bob.expect_bodies(chat, ["m1", "m2", "m3"])
        ack = await alice.send(chat, "m4")
        await bob.expect_bodies(chat, ["m1", "m2", "m3", "m4"])
        page = await bob.request("history", chat=chat)
        await bob.stop()

    assert ack["seq"] == 4
    assert page["messages"] == bob.messages(chat)
    assert bob.of_type("too_long") == bob.of_type("reset") == []
