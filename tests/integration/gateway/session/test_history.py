"""chat.v1: `history` and `sync`, across the hot and the warm tier."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis import Redis

from chatserver import config
from chatserver.hot.chats.eviction import Eviction
from chatserver.hot.redis.factory import open_hot
from tests.support.checker import check, report
from tests.support.observations import WarmRows
from tests.support.rawchat import Failed, RawChat
from tests.support.recorder import Recorder
from tests.support.servers.processes import eventually
from tests.support.stack import Stack

pytest_plugins = ["tests.support.stack_fixtures"]

NewName = Callable[[str], str]
LENGTH = 90  # of the long chat, of which the shallow hot tier holds about 20


def seqs_of(page: dict[str, Any]) -> list[int]:
    """Return the seqs on a page of messages."""
    return [message["seq"] for message in page["messages"]]


@pytest.fixture
async def deep(shallow: Stack, new_name: NewName) -> AsyncIterator[tuple[RawChat, str]]:
    """A device and its chat of `LENGTH` messages, most of them in the warm tier only."""
    bob = await shallow.chat_of(new_name("bob")).start()
    await bob.stop()
    async with shallow.chat_of(new_name("alice")) as alice:
        chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
        for number in range(1, LENGTH):
            await alice.say(chat, f"m{number}")
        await alice.say(chat, f"m{LENGTH}", durability="stored")
        yield alice, chat


# ── one tier ────────────────────────────────────────────────────────────────────────────────────


async def test_history_of_a_new_chat_is_empty(alice: RawChat, pair: str) -> None:
    """No messages, no more, no error."""
    for window in ({}, {"before": 1}, {"before": 10}, {"after": 0}, {"after": 5}):
        page = await alice.ask("history", chat=pair, **window)

        assert (page["messages"], page["more"], page["chat"]) == ([], False, pair)


@pytest.mark.parametrize(
    ("window", "seqs", "more"),
    [
        ({}, [1, 2, 3, 4, 5], False),
        ({"limit": 2}, [4, 5], True),
        ({"limit": 5}, [1, 2, 3, 4, 5], False),
        ({"before": 4, "limit": 2}, [2, 3], True),
        ({"before": 3, "limit": 2}, [1, 2], False),
        ({"before": 1}, [], False),
        ({"before": 0}, [], False),
        ({"before": 100, "limit": 1}, [5], True),
        ({"after": 0, "limit": 2}, [1, 2], True),
        ({"after": 3}, [4, 5], False),
        ({"after": 3, "limit": 1}, [4], True),
        ({"after": 5}, [], False),
        ({"after": 100}, [], False),
    ],
    ids=str,
)
async def test_history_window_is_exact(
    alice: RawChat, pair: str, window: dict[str, int], seqs: list[int], more: bool
) -> None:
    """`before` returns the newest below, `after` the oldest above; `more` reports others."""
    for number in range(1, 6):
        await alice.say(pair, f"m{number}")

    page = await alice.ask("history", chat=pair, **window)

    assert (seqs_of(page), page["more"], page["tier"]) == (seqs, more, "hot")


async def test_history_shows_messages_as_they_were_pushed(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A message is the same object in an event and on a page."""
    await alice.say(pair, "one", kind="markdown")
    await bob.say(pair, "two", reply_to=1)
    await alice.expect(lambda me: len(me.messages(pair)) == 2)

    page = await bob.ask("history", chat=pair)

    assert page["messages"] == alice.messages(pair)


async def test_newest_page_tells_a_new_window_what_is_stored_and_read(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The first page of a chat has its stored position and the read marks."""
    await bob.say(pair, "one")
    ack = await bob.say(pair, "two", durability="stored")
    await alice.ask("mark", chat=pair, read=1, received=2)

    newest = await bob.ask("history", chat=pair)
    older = await bob.ask("history", chat=pair, before=2)

    assert newest["stored"] == older["stored"] == ack["seq"]
    assert {marks["user"]: marks for marks in newest["marks"]} == {
        alice.user: {"user": alice.user, "read": 1, "received": 2},
        bob.user: {"user": bob.user, "read": 2, "received": 2},
    }
    assert older["marks"] == []


async def test_history_with_before_and_after_is_refused(alice: RawChat, pair: str) -> None:
    """A window has one open side."""
    with pytest.raises(Failed) as caught:
        await alice.ask("history", chat=pair, before=5, after=1)

    assert caught.value.code == "bad_request"
    assert caught.value.message.startswith("before, after:")


async def test_history_page_of_wide_messages_is_bounded_in_bytes(alice: RawChat, pair: str) -> None:
    """A page holds at most about 256 KB, and the walk over the pages loses nothing."""
    wide = "\U0001f600" * 4000
    for _ in range(40):
        await alice.say(pair, wide)

    first = await alice.ask("history", chat=pair, after=0, limit=200)
    rows = await alice.read_final(pair)

    assert 10 <= len(first["messages"]) < 40
    assert first["more"]
    assert [row.seq for row in rows] == list(range(1, 41))


# ── across the tiers ────────────────────────────────────────────────────────────────────────────


async def test_history_tells_the_tier_it_came_from(deep: tuple[RawChat, str]) -> None:
    """The newest page is hot; a page that needs DynamoDB names it."""
    alice, chat = deep

    newest = await alice.ask("history", chat=chat, limit=10)
    oldest = await alice.ask("history", chat=chat, after=0, limit=10)

    assert (seqs_of(newest), newest["tier"]) == (list(range(LENGTH - 9, LENGTH + 1)), "hot")
    assert (seqs_of(oldest), oldest["tier"]) == (list(range(1, 11)), "warm")


@pytest.mark.parametrize("limit", [1, 7, 50, 200])
@pytest.mark.parametrize("hint", [True, False])
async def test_history_walk_down_crosses_tiers_without_hole_or_repeat(
    deep: tuple[RawChat, str], limit: int, hint: bool
) -> None:
    """Page by page from the newest to the first, every message comes exactly once."""
    alice, chat = deep
    seen: list[dict[str, Any]] = []
    tiers: list[str] = []
    window: dict[str, int] = {}
    while True:
        page = await alice.ask("history", chat=chat, limit=limit, **window)
        seen = page["messages"] + seen
        tiers.append(page["tier"])
        if not page["more"]:
            break
        window = {"before": seen[0]["seq"]} | ({"ts": seen[0]["ts"]} if hint else {})

    assert [message["body"] for message in seen] == [f"m{n}" for n in range(1, LENGTH + 1)]
    assert tiers == sorted(tiers)  # once warm, never hot again
    assert "warm" in tiers


@pytest.mark.parametrize("limit", [1, 7, 50, 200])
async def test_history_walk_up_crosses_tiers_without_hole_or_repeat(
    deep: tuple[RawChat, str], limit: int
) -> None:
    """Page by page from the first to the newest, every message comes exactly once."""
    alice, chat = deep

    rows = await alice.read_final(chat, limit=limit)

    assert [row.seq for row in rows] == list(range(1, LENGTH + 1))
    assert [row.body for row in rows] == [f"m{n}" for n in range(1, LENGTH + 1)]


async def test_history_from_any_place_is_contiguous(deep: tuple[RawChat, str]) -> None:
    """Wherever a page begins, also at the border between the tiers, it is whole."""
    alice, chat = deep
    for place in range(0, LENGTH + 2):
        below = await alice.ask("history", chat=chat, before=place, limit=5)
        above = await alice.ask("history", chat=chat, after=place, limit=5)

        top = min(place - 1, LENGTH)
        assert seqs_of(below) == [seq for seq in range(top - 4, top + 1) if seq >= 1]
        assert seqs_of(above) == [s for s in range(place + 1, place + 6) if s <= LENGTH]


@pytest.mark.parametrize("ts", [0, 1, 2**53 - 1])
async def test_history_with_a_wrong_hint_is_right_all_the_same(
    deep: tuple[RawChat, str], ts: int
) -> None:
    """`ts` saves a search and decides nothing."""
    alice, chat = deep

    page = await alice.ask("history", chat=chat, before=40, limit=10, ts=ts)

    assert seqs_of(page) == list(range(30, 40))


async def test_history_read_while_rows_move_never_loses_any(
    shallow: Stack, new_name: NewName
) -> None:
    """While messages are sent, stored and trimmed, every page is contiguous and monotonic."""
    recorder = Recorder()
    bob = await shallow.chat_of(new_name("bob"), recorder=recorder).start()
    alice = await shallow.chat_of(new_name("alice"), recorder=recorder).start()
    chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
    recorder.run.members[chat] = {alice.user, bob.user}
    for number in range(150):
        await alice.post(chat, f"m{number}")
        if number % 5 == 4:
            await bob.read_page(chat, limit=30)
            await bob.read_page(chat, after=max(0, number - 60), limit=50)
            await bob.read_page(chat, before=max(0, number - 10), limit=50)
    await alice.expect(lambda me: not me.pending)

    async def is_stored() -> bool:
        return len(await shallow.read_warm(chat)) == 150

    await eventually(is_stored)
    await bob.expect(lambda me: len(me.messages(chat)) == 150)
    for side in (alice, bob):
        await side.read_final(chat)
        await side.read_list()
        await side.stop()
    recorder.add(WarmRows(recorder.now(), chat, await shallow.read_warm(chat)))

    violations = check(recorder.run)

    assert not violations, report(violations)


# ── sync ────────────────────────────────────────────────────────────────────────────────────────


async def test_sync_pages_through_what_was_missed(alice: RawChat, bob: RawChat, pair: str) -> None:
    """Page by page, the events of the inbox come in order, each with its own place."""
    for number in range(25):
        await alice.say(pair, f"m{number}")
    await bob.expect(lambda me: len(me.messages(pair)) == 25)
    cursor: dict[str, Any] = {"epoch": bob.welcome["epoch"], "seq": 0}
    events: list[dict[str, Any]] = []
    sizes: list[int] = []
    while True:
        page = await bob.ask("sync", cursor=cursor, limit=10)
        events += page["events"]
        sizes.append(len(page["events"]))
        cursor = page["cursor"]
        if not page["more"]:
            break

    assert sizes == [10, 10, 6]
    assert events == bob.of_type("event")
    assert cursor["seq"] == 26


async def test_sync_at_the_head_is_empty(bob: RawChat, pair: str) -> None:
    """Nothing was missed: an empty page at the same place."""
    cursor = {"epoch": bob.welcome["epoch"], "seq": 1}

    page = await bob.ask("sync", cursor=cursor)

    assert (page["events"], page["cursor"], page["more"]) == ([], cursor, False)


@pytest.mark.parametrize("fault", ["epoch", "ahead"])
async def test_sync_from_nowhere_is_reset(bob: RawChat, pair: str, fault: str) -> None:
    """A cursor that means nothing is answered with a snapshot and the request's id."""
    epoch = bob.welcome["epoch"]
    cursor = {"epoch": "other", "seq": 0} if fault == "epoch" else {"epoch": epoch, "seq": 99}

    answer = await bob.ask("sync", cursor=cursor)

    assert answer["type"] == "reset"
    assert answer["cursor"] == {"epoch": epoch, "seq": 1}
    assert [line["chat"] for line in answer["chats"]] == [pair]


async def test_sync_from_too_long_ago_gets_a_snapshot(deep: tuple[RawChat, str]) -> None:
    """Events that left the inbox are not skipped silently."""
    alice, chat = deep

    answer = await alice.ask("sync", cursor={"epoch": alice.welcome["epoch"], "seq": 1})

    assert answer["type"] == "too_long"
    assert answer["cursor"]["seq"] == LENGTH + 1  # the chat's own event came first
    assert [(line["chat"], line["top"]) for line in answer["chats"]] == [(chat, LENGTH)]


# ── chats that were idle ────────────────────────────────────────────────────────────────────────


async def evict_all(stack: Stack) -> int:
    """Let every chat go that was not used for a second; return how many went."""
    settings = config.Redis(url=stack.redis_url, chat_idle_s=1)
    async with open_hot(settings) as hot:
        return await Eviction(hot).evict_idle(0, time.time())


async def test_chat_that_left_the_hot_tier_comes_back_as_it_was(
    shallow: Stack, new_name: NewName
) -> None:
    """A device resumes by its cursor, history is whole, and the next message has the next place."""
    async with shallow.chat_of(new_name("alice")) as alice:
        bob = await shallow.chat_of(new_name("bob")).start()
        chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
        await alice.say(chat, "m1")
        await bob.expect_bodies(chat, ["m1"])
        await bob.abort()
        for number in (2, 3):
            await alice.say(chat, f"m{number}", durability="stored")
        redis = Redis.from_url(shallow.redis_url, socket_timeout=60)

        async def has_left() -> bool:
            await evict_all(shallow)
            return not redis.exists(f"{{p0}}:chat:{chat}")

        await eventually(has_left)  # type: ignore[arg-type]  # mypy loses the type variable
        await bob.start()
        await bob.expect_bodies(chat, ["m1", "m2", "m3"])
        ack = await alice.say(chat, "m4")
        await bob.expect_bodies(chat, ["m1", "m2", "m3", "m4"])
        page = await bob.ask("history", chat=chat)
        await bob.stop()

    assert ack["seq"] == 4
    assert page["messages"] == bob.messages(chat)
    assert bob.of_type("too_long") == bob.of_type("reset") == []
