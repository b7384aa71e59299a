"""evict_chats.lua: idle chats leave Redis, whole or not at all."""

from __future__ import annotations

import time

import pytest

from tests.integration.hot.support import ALICE, BOB, CHAT, CLOSED, COMMITTED, Scripts, Sending

pytest_plugins = ["tests.integration.hot.fixtures"]

LONG_S = 3600


def evict(scripts: Scripts, idle_s: int = 0) -> int:
    """Look at the chat; return how many left."""
    keys = scripts.keys
    gone: int = scripts.run(
        "evict_chats",
        {"idle": keys.idle(0), "undelivered": keys.undelivered(0)},
        {"idle_s": idle_s},
        [
            {
                "chat": keys.chat(CHAT),
                "members": keys.members(CHAT),
                "log": keys.log(CHAT),
                "over": keys.over(CHAT),
                "revs": keys.revs(CHAT),
                "asides": keys.asides(CHAT),
                "expiring": keys.expiring(CHAT),
                "turnover": keys.turnover(CHAT),
                "chat_id": CHAT,
            }
        ],
    )
    return gone


def persist(scripts: Scripts, upto: int) -> None:
    """Note how far the chat is persisted."""
    scripts.redis.hset(scripts.keys.chat(CHAT), "stored", upto)


def listed(scripts: Scripts) -> dict[str, float]:
    """Return the chats that are to be looked at, and since when they may be idle."""
    found = scripts.redis.zrange(scripts.keys.idle(0), 0, -1, withscores=True)
    return {name.decode(): since for name, since in found}


@pytest.fixture
def quiet(scripts: Scripts) -> Scripts:
    """A chat of two messages, both persisted, listed for long."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r1"), Sending(BOB, "r2"))
    persist(scripts, 2)
    scripts.redis.zadd(scripts.keys.idle(0), {CHAT: 1})
    return scripts


def test_evict_takes_an_idle_chat_with_all_its_keys(quiet: Scripts) -> None:
    """Only references are left, which expire, and what users have of it."""
    quiet.redis.hset(quiet.keys.over(CHAT), "1", "{}")
    quiet.redis.zadd(quiet.keys.revs(CHAT), {"1": 2})

    assert evict(quiet) == 1

    left = [key.decode() for key in quiet.redis.keys("*") if CHAT in key.decode()]
    assert all(":refs-" in key for key in left)
    assert listed(quiet) == {}
    assert len(quiet.inbox(ALICE)) == 2


def test_evicted_chat_is_closed_and_comes_back_where_it_was(quiet: Scripts) -> None:
    """The next commit finds it closed; loaded again, seq and ts go on and retries are known."""
    ts = int(quiet.head()["ts"])
    evict(quiet)

    (refused,) = quiet.accept(Sending(ALICE, "r3"))
    quiet.open_chat(ALICE, BOB, seq=2, ts=ts)
    again, new = quiet.accept(Sending(ALICE, "r1"), Sending(ALICE, "r3"))

    assert refused.code == CLOSED
    assert again.place.startswith("1:")
    assert (new.code, new.seq) == (COMMITTED, 3)
    assert new.ts > ts
    assert quiet.head()["base"] == "2"
    assert [value for _, _, value in quiet.inbox(BOB)] == ["1", "2", "3"]


def test_evict_leaves_a_chat_that_is_not_wholly_persisted(quiet: Scripts) -> None:
    """Data that the warm tier lacks exists nowhere else (promise P1); it is checked later."""
    persist(quiet, 1)
    before = time.time()

    assert evict(quiet) == 0

    assert len(quiet.log()) == 2
    assert before - 1 <= listed(quiet)[CHAT] <= time.time() + 1


def test_evict_leaves_a_chat_that_was_used_since(quiet: Scripts) -> None:
    """A commit between the check and the script wins; the list gets its time."""
    assert evict(quiet, LONG_S) == 0

    assert listed(quiet)[CHAT] == int(quiet.head()["ts"]) // 1_000_000


@pytest.mark.parametrize("what", ["undelivered", "gate", "turnover"])
def test_evict_leaves_a_chat_with_something_on_its_way(quiet: Scripts, what: str) -> None:
    """Fan-outs and turnovers are finished first: they need the log and the members."""
    match what:
        case "undelivered":
            quiet.redis.zadd(quiet.keys.undelivered(0), {CHAT: 1})
        case "gate":
            quiet.redis.hset(quiet.keys.chat(CHAT), "gate", "E1:1:p")
        case _:
            quiet.redis.hset(quiet.keys.turnover(CHAT), "2:carol", "in:2")

    assert evict(quiet) == 0

    assert quiet.redis.exists(quiet.keys.chat(CHAT))


def test_evict_takes_what_a_late_worker_left(scripts: Scripts) -> None:
    """A note about a chat that has left makes half a head: no chat, and nothing to keep."""
    persist(scripts, 2)

    assert evict(scripts, LONG_S) == 1

    assert scripts.redis.keys("*") == []


def test_evict_takes_a_chat_that_nobody_wrote_in(scripts: Scripts) -> None:
    """Opened, read, and left alone."""
    scripts.open_chat(ALICE, BOB)

    assert evict(scripts, LONG_S) == 1
