"""evict_chats.lua: idle chats are removed from Redis with all their keys, or not at all."""

from __future__ import annotations

import time

import pytest

from chatserver.domain.messages import REF_TTL_S, reference_key
from chatserver.hot.redis.scripts import load_script
from tests.integration.hot.support import (
    ALICE,
    BOB,
    CHAT,
    CLOSED,
    COMMITTED,
    Scripts,
    Sending,
    packed,
)
from tests.support.servers.processes import eventually

LONG_S = 3600


def evict(scripts: Scripts, idle_s: int = 0, ref_ttl_s: int = REF_TTL_S) -> int:
    """Try to evict the chat; return the number of evicted chats."""
    args = {"idle_s": idle_s, "ref_ttl_s": ref_ttl_s}
    evicted: int = scripts.run("evict_chats", args, [{"chat_id": CHAT}])
    return evicted


def add_refs(scripts: Scripts, count: int, ts: int) -> list[bytes]:
    """Add refs of messages that were committed at `ts` (µs); return their fields."""
    fields = [reference_key(ALICE, f"{ts}-{n}") for n in range(count)]
    mapping = {field: packed(f"1:{ts}:M{n}:d1") for n, field in enumerate(fields)}
    scripts.redis.hset(scripts.keys.chat(CHAT), mapping=mapping)
    return fields


def get_age_us(scripts: Scripts, age_s: float) -> int:
    """Return the timestamp of an entry that is `age_s` old."""
    seconds, micros = scripts.redis.time()
    return int(seconds * 1_000_000 + micros - age_s * 1_000_000)


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
    """Only the young refs, which expire, and user states remain."""
    idle.redis.hset(idle.keys.over(CHAT), "1", "{}")
    for make in (idle.keys.revs, idle.keys.uncounted, idle.keys.expiring):
        idle.redis.zadd(make(CHAT), {"1": 1})
    labels = set(load_script("evict_chats").item_keys) - {"turnover"}
    for label, key in idle.find_keys(labels, {}).items():
        assert idle.redis.exists(key), label

    assert evict(idle) == 1

    left = [key.decode() for key in idle.redis.keys("*") if CHAT in key.decode()]
    assert left == [idle.keys.chat(CHAT)]
    assert (idle.head(), len(idle.refs())) == ({}, 2)
    assert REF_TTL_S - 60 < idle.redis.ttl(idle.keys.chat(CHAT)) <= REF_TTL_S
    assert listed(idle) == {}
    assert len(idle.inbox(ALICE)) == 2


def test_evict_keeps_exactly_the_refs_that_are_younger_than_their_ttl(idle: Scripts) -> None:
    """A retry is recognized for at least a day, whatever the memory that Redis has left."""
    young = add_refs(idle, 20, get_age_us(idle, REF_TTL_S - 60))
    add_refs(idle, 20, get_age_us(idle, REF_TTL_S + 1))

    assert evict(idle) == 1

    own = {reference_key(ALICE, "r1"), reference_key(BOB, "r2")}
    assert set(idle.refs()) == {*young, *own}
    assert idle.head() == {}


def test_evict_of_a_chat_whose_refs_are_old_removes_them(idle: Scripts) -> None:
    """Neither they nor an empty hash use memory."""
    add_refs(idle, 5_000, get_age_us(idle, REF_TTL_S + 1))
    old = get_age_us(idle, REF_TTL_S + 1)
    idle.redis.hset(idle.keys.chat(CHAT), "ts", old)

    assert evict(idle) == 1

    assert [key for key in idle.redis.keys("*") if CHAT.encode() in key] == []


def test_evict_removes_the_hash_if_only_old_refs_are_left(scripts: Scripts) -> None:
    """The newest entry may be young and have no ref, such as a read chat after a load."""
    now = get_age_us(scripts, 0)
    scripts.open_chat(ALICE, BOB, seq=1, ts=now)
    add_refs(scripts, 3, get_age_us(scripts, REF_TTL_S + 1))

    assert evict(scripts) == 1

    assert not scripts.redis.exists(scripts.keys.chat(CHAT))


def test_evict_again_keeps_the_refs_and_their_expiry(idle: Scripts) -> None:
    """A chat may be listed as idle although it was evicted. Its refs still expire in time."""
    evict(idle)
    idle.redis.expire(idle.keys.chat(CHAT), 100)
    idle.redis.zadd(idle.keys.idle(0), {CHAT: 1})

    assert evict(idle) == 1

    assert len(idle.refs()) == 2
    assert 0 < idle.redis.ttl(idle.keys.chat(CHAT)) <= 100
    assert listed(idle) == {}


async def test_evicted_chat_expires_with_its_refs(idle: Scripts) -> None:
    """After their TTL, a ref may be used for another message."""
    evict(idle, ref_ttl_s=60)
    idle.redis.pexpire(idle.keys.chat(CHAT), 1)

    await eventually(lambda: not idle.redis.exists(idle.keys.chat(CHAT)))
    idle.open_chat(ALICE, BOB, seq=2, ts=get_age_us(idle, 60))

    (answer,) = idle.accept(Sending(ALICE, "r1"))
    assert (answer.code, answer.seq) == (COMMITTED, 3)


@pytest.mark.parametrize("count", [990, 4_000])
def test_evict_of_many_refs_keeps_them_all(idle: Scripts, count: int) -> None:
    """Above a thousand fields, one call does not read them; the newest seqs of senders stay."""
    young = add_refs(idle, count - idle.redis.hlen(idle.keys.chat(CHAT)), get_age_us(idle, 60))
    idle.redis.hset(idle.keys.chat(CHAT), mapping={f"s:user{n}": "1" for n in range(5)})

    assert evict(idle) == 1

    assert set(young) <= set(idle.refs())
    assert {name[:2] for name in idle.head()} <= {"s:"}
    assert 0 < idle.redis.ttl(idle.keys.chat(CHAT)) <= REF_TTL_S


def test_evicted_chat_is_closed_and_continues_after_a_load(idle: Scripts) -> None:
    """The next commit is refused. After a load, seq and ts continue and retries are recognized."""
    ts = int(idle.head()["ts"])
    evict(idle)

    (refused,) = idle.accept(Sending(ALICE, "r1"))
    idle.open_chat(ALICE, BOB, seq=2, ts=ts)
    again, new = idle.accept(Sending(ALICE, "r1"), Sending(ALICE, "r3"))

    assert refused.code == CLOSED
    assert again.place.startswith("1:")
    assert (new.code, new.seq) == (COMMITTED, 3)
    assert new.ts > ts
    assert idle.head()["base"] == "2"
    assert idle.redis.ttl(idle.keys.chat(CHAT)) == -1
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

    assert ("seq" in idle.head()) == (not evicted)
    assert idle.redis.exists(idle.keys.log(CHAT)) == 1 - evicted


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


def test_evict_removes_keys_that_a_late_worker_wrote(idle: Scripts) -> None:
    """Entries written after the eviction are an incomplete chat, which is removed."""
    evict(idle)
    idle.redis.xadd(idle.keys.log(CHAT), {"1": "m"})
    idle.redis.hset(idle.keys.over(CHAT), "1", "{}")
    idle.redis.hset(idle.keys.members(CHAT), ALICE, "member:0")

    assert evict(idle, LONG_S) == 1

    left = [key for key in idle.redis.keys("*") if CHAT.encode() in key]
    assert left == [idle.keys.chat(CHAT).encode()]
    assert (idle.head(), len(idle.refs())) == ({}, 2)


def test_evict_removes_a_chat_without_messages(scripts: Scripts) -> None:
    """A chat may be loaded only for reading."""
    scripts.open_chat(ALICE, BOB)

    assert evict(scripts, LONG_S) == 1
