"""The scripts that read or change the head of a chat, except those that commit."""

from __future__ import annotations

from chatserver.domain.ids import ChatId
from tests.unit.hot.scripts.script_runner import ScriptRunner

CHAT, OTHER = ChatId("c1"), ChatId("c2")
IDLE_S = 600


def put_head(scripts: ScriptRunner, chat: ChatId = CHAT, **fields: str | int) -> None:
    """Put fields into the head of a chat."""
    scripts.redis.hset(scripts.keys.chat(chat), mapping=fields)


def head(scripts: ScriptRunner, field: str) -> str | None:
    """Return a field of the head."""
    value: str | None = scripts.redis.hget(scripts.keys.chat(CHAT), field)
    return value


def add_fan_out(scripts: ScriptRunner, *chats: ChatId) -> None:
    """List chats with an unfinished fan-out."""
    scripts.redis.zadd(scripts.keys.undelivered(0), dict.fromkeys(chats, 1))


def fan_outs(scripts: ScriptRunner) -> list[str]:
    """Return the chats with an unfinished fan-out."""
    chats: list[str] = scripts.redis.zrange(scripts.keys.undelivered(0), 0, -1)
    return chats


def finish(scripts: ScriptRunner, upto: dict[ChatId, int]) -> int:
    """Finish fan-outs up to a seq of each chat."""
    removed: int = scripts.run(
        "finish_fan_outs",
        {"undelivered": scripts.keys.undelivered(0)},
        items=[
            {"chat": scripts.keys.chat(chat), "chat_id": chat, "upto": seq}
            for chat, seq in upto.items()
        ],
    )
    return removed


def set_policy(scripts: ScriptRunner, version: int, policy: str, epoch: str = "E1") -> int:
    """Set the write policy of the chat."""
    reply: int = scripts.run(
        "set_write_policy",
        {"chat": scripts.keys.chat(CHAT)},
        {"epoch": epoch, "version": version, "write_policy": policy},
    )
    return reply


def evict(scripts: ScriptRunner) -> int:
    """Evict the chat if it is idle."""
    keys = scripts.keys
    evicted: int = scripts.run(
        "evict_chats",
        {"idle": keys.idle(0), "undelivered": keys.undelivered(0)},
        {"idle_s": IDLE_S},
        [
            {
                "chat": keys.chat(CHAT),
                "members": keys.members(CHAT),
                "log": keys.log(CHAT),
                "over": keys.over(CHAT),
                "revs": keys.revs(CHAT),
                "uncounted": keys.uncounted(CHAT),
                "expiring": keys.expiring(CHAT),
                "turnover": keys.turnover(CHAT),
                "chat_id": CHAT,
            }
        ],
    )
    return evicted


def subscribe(
    scripts: ScriptRunner, gateway: str, user: str = "", *, ttl_ms: int = 5_000, epoch: str = "E1"
) -> list[int]:
    """Subscribe a gateway to the chat."""
    reply: list[int] = scripts.run(
        "subscribe_large_chats",
        args={"epoch": epoch, "gateway": gateway, "ttl_ms": ttl_ms},
        items=[
            {
                "chat": scripts.keys.chat(CHAT),
                "watchers": scripts.keys.watchers(CHAT),
                "members": scripts.keys.members(CHAT),
                "user": user,
            }
        ],
    )
    return reply


def put_idle_chat(scripts: ScriptRunner, idle_s: int = IDLE_S) -> None:
    """Put a persisted chat whose last entry is `idle_s` seconds old."""
    ts = (scripts.clock.now_ms - idle_s * 1000) * 1000
    put_head(scripts, seq=3, stored=3, ts=ts, gate="E1:2")
    scripts.redis.hset(scripts.keys.members(CHAT), "alice", "member:0")
    scripts.redis.zadd(scripts.keys.idle(0), {CHAT: 1})


def test_finish_fan_outs_removes_the_chat_and_its_pending_mark(scripts: ScriptRunner) -> None:
    """After the fan-out, commits write to the inboxes again."""
    put_head(scripts, seq=5, gate="E1:2:p")
    add_fan_out(scripts, CHAT)

    assert finish(scripts, {CHAT: 5}) == 1
    assert fan_outs(scripts) == []
    assert (head(scripts, "gate"), head(scripts, "done")) == ("E1:2", "5")


def test_finish_fan_outs_keeps_a_chat_with_newer_commits(scripts: ScriptRunner) -> None:
    """A message committed during the fan-out still needs one; progress is recorded."""
    put_head(scripts, seq=6, gate="E1:2:p", done=2)
    add_fan_out(scripts, CHAT)

    assert finish(scripts, {CHAT: 5}) == 0
    assert fan_outs(scripts) == [CHAT]
    assert (head(scripts, "gate"), head(scripts, "done")) == ("E1:2:p", "5")


def test_finish_fan_outs_progress_never_moves_back(scripts: ScriptRunner) -> None:
    """A late call does not move the recorded progress."""
    put_head(scripts, seq=6, gate="E1:2:p", done=5)

    finish(scripts, {CHAT: 3})

    assert head(scripts, "done") == "5"


def test_finish_fan_outs_counts_removed_chats(scripts: ScriptRunner) -> None:
    """Each chat of a batch has its own seq; a repeat removes nothing."""
    put_head(scripts, CHAT, seq=5, gate="E1:2")
    put_head(scripts, OTHER, seq=9, gate="E1:2")
    add_fan_out(scripts, CHAT, OTHER)

    assert finish(scripts, {CHAT: 5, OTHER: 8}) == 1
    assert fan_outs(scripts) == [OTHER]
    assert finish(scripts, {CHAT: 5, OTHER: 9}) == 1
    assert finish(scripts, {CHAT: 5, OTHER: 9}) == 0


def test_set_write_policy_keeps_a_pending_fan_out(scripts: ScriptRunner) -> None:
    """The policy replaces version and policy, not the mark of an unfinished fan-out."""
    put_head(scripts, gate="E1:2:s30:p")

    assert set_policy(scripts, 3, ":b") == 1
    assert head(scripts, "gate") == "E1:3:b:p"


def test_set_write_policy_older_version_is_ignored(scripts: ScriptRunner) -> None:
    """A change that arrives late does not undo a later one."""
    put_head(scripts, gate="E1:12:b")

    assert set_policy(scripts, 9, "") == 2
    assert head(scripts, "gate") == "E1:12:b"


def test_set_write_policy_needs_a_chat_loaded_in_this_epoch(scripts: ScriptRunner) -> None:
    """A chat that is missing or of an earlier epoch has to be loaded first."""
    assert set_policy(scripts, 3, ":b") == 0

    put_head(scripts, gate="E1:2")
    assert set_policy(scripts, 3, ":b", epoch="E2") == 0
    assert head(scripts, "gate") == "E1:2"


def test_evict_chats_removes_an_idle_persisted_chat(scripts: ScriptRunner) -> None:
    """Nothing of the chat stays in Redis."""
    put_idle_chat(scripts)

    assert evict(scripts) == 1
    assert scripts.redis.keys("*") == []


def test_evict_chats_keeps_a_chat_that_is_in_use(scripts: ScriptRunner) -> None:
    """A chat with a recent entry is checked again when the entry may be old enough."""
    put_idle_chat(scripts, idle_s=IDLE_S - 1)

    assert evict(scripts) == 0
    now_s = scripts.clock.now_ms // 1000
    assert scripts.redis.zscore(scripts.keys.idle(0), CHAT) == now_s - IDLE_S + 1


def test_evict_chats_keeps_a_chat_with_unfinished_work(scripts: ScriptRunner) -> None:
    """Entries to persist, a fan-out and notices all keep the chat in Redis."""
    put_idle_chat(scripts)

    put_head(scripts, stored=2)
    not_persisted = evict(scripts)
    put_head(scripts, stored=3, gate="E1:2:p")
    pending = evict(scripts)
    put_head(scripts, gate="E1:2")
    add_fan_out(scripts, CHAT)
    undelivered = evict(scripts)
    finish(scripts, {CHAT: 3})
    scripts.redis.hset(scripts.keys.turnover(CHAT), "2:alice", "in:1")
    notices = evict(scripts)
    scripts.redis.delete(scripts.keys.turnover(CHAT))

    assert (not_persisted, pending, undelivered, notices) == (0, 0, 0, 0)
    assert evict(scripts) == 1


def test_subscribe_large_chats_returns_head_and_first_seq(scripts: ScriptRunner) -> None:
    """A subscriber gets the newest seq; only members have a first seq."""
    put_head(scripts, seq=50, gate="E1:2", large=7)
    scripts.redis.hset(scripts.keys.members(CHAT), "alice", "member:12")

    assert subscribe(scripts, "gw1", "alice") == [50, 1, 7, 12]
    assert subscribe(scripts, "gw1", "mallory") == [50, 1, 7, 0]
    assert subscribe(scripts, "gw1", "alice", epoch="E2") == [50, 0, 7, 12]


def test_subscribe_large_chats_lasts_until_its_expiry(scripts: ScriptRunner) -> None:
    """A gateway that does not renew its subscription, or ends it, is removed."""
    subscribe(scripts, "gw1", ttl_ms=1_000)
    subscribe(scripts, "gw2", ttl_ms=5_000)
    scripts.clock.advance_ms(1_000)
    subscribe(scripts, "gw3", ttl_ms=5_000)
    watchers = scripts.keys.watchers(CHAT)

    assert scripts.redis.zrange(watchers, 0, -1) == ["gw2", "gw3"]
    subscribe(scripts, "gw2", ttl_ms=0)
    assert scripts.redis.zrange(watchers, 0, -1) == ["gw3"]
