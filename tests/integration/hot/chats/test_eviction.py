"""evict_chats.lua: idle chats are removed from Redis with all their keys, or not at all."""

from __future__ import annotations

import time

import pytest

from chatserver.hot.redis.scripts import load_script
from tests.integration.hot.support import ALICE, BOB, CHAT, CLOSED, COMMITTED, Scripts, Sending

LONG_S = 3600


def evict(scripts: Scripts, idle_s: int = 0) -> int:
    """Try to evict the chat; return the number of evicted chats."""
    evicted: int = scripts.run("evict_chats", {"idle_s": idle_s}, [{"chat_id": CHAT}])
    return evicted


def persist(scripts: Scripts, upto: int) -> None:
    """Record the seq up to which the chat is persisted."""
    scripts.redis.hset(scripts.keys.chat(CHAT), "stored", upto)


def listed(scripts: Scripts) -> dict[str, float]:
    """Return the chats that may be idle, and since when they are idle."""
    found = scripts.redis.zrange(scripts.keys.idle(0), 0, -1, withscores=True)
    return {name.decode(): since for name, since in found}


@pytest.fixture
def idle(scripts: Scripts) -> Scripts:
    """A chat with two persisted messages that has been idle for a long time."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r1"), Sending(BOB, "r2"))
    persist(scripts, 2)
    scripts.redis.zadd(scripts.keys.idle(0), {CHAT: 1})
    return scripts


def test_evict_removes_an_idle_chat_with_all_its_keys(idle: Scripts) -> None:
    """Only refs, which expire, and user states remain."""
    idle.redis.hset(idle.keys.over(CHAT), "1", "{}")
    for make in (idle.keys.revs, idle.keys.uncounted, idle.keys.expiring):
        idle.redis.zadd(make(CHAT), {"1": 1})
    labels = set(load_script("evict_chats").item_keys) - {"turnover"}
    for label, key in idle.find_keys(labels, {}).items():
        assert idle.redis.exists(key), label

    assert evict(idle) == 1

    left = [key.decode() for key in idle.redis.keys("*") if CHAT in key.decode()]
    assert all(":refs-" in key for key in left)
    assert listed(idle) == {}
    assert len(idle.inbox(ALICE)) == 2


def test_evicted_chat_is_closed_and_continues_after_a_load(idle: Scripts) -> None:
    """The next commit is refused. After a load, seq and ts continue and retries are recognized."""
    ts = int(idle.head()["ts"])
    evict(idle)

    (refused,) = idle.accept(Sending(ALICE, "r3"))
    idle.open_chat(ALICE, BOB, seq=2, ts=ts)
    again, new = idle.accept(Sending(ALICE, "r1"), Sending(ALICE, "r3"))

    assert refused.code == CLOSED
    assert again.place.startswith("1:")
    assert (new.code, new.seq) == (COMMITTED, 3)
    assert new.ts > ts
    assert idle.head()["base"] == "2"
    assert [value for _, _, value in idle.inbox(BOB)] == ["1", "2", "3"]


def test_evict_keeps_a_chat_that_is_not_completely_persisted(idle: Scripts) -> None:
    """Data that the warm tier does not have exists only in Redis (P1).

    It is checked again later.
    """
    persist(idle, 1)
    before = time.time()

    assert evict(idle) == 0

    assert len(idle.log()) == 2
    assert before - 1 <= listed(idle)[CHAT] <= time.time() + 1


def test_evict_keeps_a_chat_that_was_used_since(idle: Scripts) -> None:
    """A commit between the check and the script counts, and updates the time in the list."""
    assert evict(idle, LONG_S) == 0

    assert listed(idle)[CHAT] == int(idle.head()["ts"]) // 1_000_000


@pytest.mark.parametrize(("age_s", "evicted"), [(590, 0), (600, 1)])
def test_evict_compares_the_age_with_idle_s(idle: Scripts, age_s: int, evicted: int) -> None:
    """The chat is kept until its newest entry is `idle_s` old."""
    now_s, _ = idle.redis.time()
    idle.redis.hset(idle.keys.chat(CHAT), "ts", (now_s - age_s) * 1_000_000)

    assert evict(idle, idle_s=600) == evicted

    assert idle.redis.exists(idle.keys.chat(CHAT)) == 1 - evicted


@pytest.mark.parametrize("what", ["undelivered", "gate", "turnover"])
def test_evict_keeps_a_chat_with_unfinished_work(idle: Scripts, what: str) -> None:
    """Fan-outs and membership changes need the log and the members, so they finish first."""
    match what:
        case "undelivered":
            idle.redis.zadd(idle.keys.undelivered(0), {CHAT: 1})
        case "gate":
            idle.redis.hset(idle.keys.chat(CHAT), "gate", "E1:1:p")
        case _:
            idle.redis.hset(idle.keys.turnover(CHAT), "2:carol", "in:2")

    assert evict(idle) == 0

    assert idle.redis.exists(idle.keys.chat(CHAT))


def test_evict_removes_keys_that_a_late_worker_wrote(scripts: Scripts) -> None:
    """A position written after the eviction is an incomplete chat, which is removed."""
    persist(scripts, 2)

    assert evict(scripts, LONG_S) == 1

    assert scripts.redis.keys("*") == []


def test_evict_removes_a_chat_without_messages(scripts: Scripts) -> None:
    """A chat may be loaded only for reading."""
    scripts.open_chat(ALICE, BOB)

    assert evict(scripts, LONG_S) == 1
