"""The scripts that read or change the head of a chat, except those that commit."""

from __future__ import annotations

from chatserver.domain.ids import ChatId
from tests.unit.hot.scripts.script_runner import ScriptRunner

CHAT, OTHER = ChatId("c1"), ChatId("c2")


def put_head(scripts: ScriptRunner, chat: ChatId = CHAT, **fields: str | int) -> None:
    """Put fields into the head of a chat."""
    scripts.redis.hset(scripts.keys.chat(chat), mapping=fields)


def head(scripts: ScriptRunner, field: str) -> str | None:
    """Return a field of the head."""
    value: str | None = scripts.redis.hget(scripts.keys.chat(CHAT), field)
    return value


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


def test_finish_fan_outs_progress_never_moves_back(scripts: ScriptRunner) -> None:
    """A late call does not move the recorded progress."""
    put_head(scripts, seq=6, gate="E1:2:p", done=5)

    finish(scripts, {CHAT: 3})

    assert head(scripts, "done") == "5"


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
