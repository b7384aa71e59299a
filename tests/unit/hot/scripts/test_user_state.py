"""Scripts of the state of one user: read marks, hidden messages, and the loading of both."""

from __future__ import annotations

from chatserver.domain.ids import ChatId, UserId
from tests.unit.hot.scripts.script_runner import ScriptRunner

CHAT, OTHER = ChatId("c1"), ChatId("c2")
ALICE = UserId("alice")


def state(scripts: ScriptRunner) -> dict[str, str]:
    """Return Alice's user state."""
    fields: dict[str, str] = scripts.redis.hgetall(scripts.keys.box(ALICE))
    return fields


def backlog(scripts: ScriptRunner) -> list[dict[str, str]]:
    """Return the fields of the backlog entries."""
    return [fields for _, fields in scripts.redis.xrange(scripts.keys.backlog(0))]


def load_user(
    scripts: ScriptRunner, *items: dict[str, str | int], epoch: str = "E2", redis_epoch: str = "E2"
) -> int:
    """Load Alice's state from directory items."""
    scripts.redis.hset(scripts.keys.epoch(0), "epoch", redis_epoch)
    loaded: int = scripts.run(
        "load_user",
        {
            "box": scripts.keys.box(ALICE),
            "large": scripts.keys.large(ALICE),
            "epoch": scripts.keys.epoch(0),
        },
        {"epoch": epoch},
        items,
    )
    return loaded


def directory_item(
    chat: ChatId = CHAT,
    *,
    read: int = 0,
    received: int = 0,
    since: str = "",
    version: int = 1,
    chat_epoch: str = "E2",
) -> dict[str, str | int]:
    """Return the directory item of a chat."""
    return {
        "chat_id": chat,
        "read": read,
        "received": received,
        "since": since,
        "version": version,
        "chat_epoch": chat_epoch,
    }


def hide(scripts: ScriptRunner, seq: int, *, hidden_max: int = 100, backlog_max: int = 100) -> int:
    """Hide a message from Alice."""
    reply = scripts.run(
        "hide_message",
        {
            "hidden": scripts.keys.hidden(ALICE),
            "backlog": scripts.keys.backlog(0),
            "checkpoint": scripts.keys.checkpoint(0),
            "where": scripts.keys.where(0),
            "inbox": scripts.keys.inbox(ALICE),
        },
        {
            "chat_id": CHAT,
            "user": ALICE,
            "seq": seq,
            "hidden_max": hidden_max,
            "backlog_max": backlog_max,
            "inbox_max": 10,
            "body": b"",
        },
    )
    return int(reply[0])


def load_hidden(scripts: ScriptRunner, seqs: dict[ChatId, str]) -> int:
    """Merge the hidden messages that the directory has."""
    changed: int = scripts.run(
        "load_hidden",
        {"hidden": scripts.keys.hidden(ALICE)},
        items=[{"chat_id": chat, "seqs": text} for chat, text in seqs.items()],
    )
    return changed


def hidden(scripts: ScriptRunner, chat: ChatId = CHAT) -> str | None:
    """Return the hidden seqs of a chat."""
    seqs: str | None = scripts.redis.hget(scripts.keys.hidden(ALICE), chat)
    return seqs


def test_load_user_keeps_a_newer_large_chat_transition(scripts: ScriptRunner) -> None:
    """A transition of this epoch is used until the directory has a later version."""
    scripts.redis.hset(scripts.keys.box(ALICE), f"l:{CHAT}", "5 E2")

    load_user(scripts, directory_item(since="40", version=4))
    assert scripts.redis.hgetall(scripts.keys.large(ALICE)) == {}

    scripts.redis.hdel(scripts.keys.box(ALICE), "known")
    load_user(scripts, directory_item(since="40", version=5))
    assert scripts.redis.hgetall(scripts.keys.large(ALICE)) == {CHAT: "0:40"}


def test_load_hidden_merges_with_newer_ones(scripts: ScriptRunner) -> None:
    """Newer hidden messages are kept, and no seq is stored twice."""
    hide(scripts, 11)

    assert load_hidden(scripts, {CHAT: "1,11,7", OTHER: "2"}) == 2
    assert (hidden(scripts), hidden(scripts, OTHER)) == ("11,1,7", "2")


def test_load_hidden_up_to_a_seq_keeps_only_later_seqs(scripts: ScriptRunner) -> None:
    """A chat that is cleared repeatedly needs no more space; an older clear changes nothing."""
    load_hidden(scripts, {CHAT: "3,9,12"})

    assert load_hidden(scripts, {CHAT: "-9"}) == 1
    assert hidden(scripts) == "-9,12"
    assert load_hidden(scripts, {CHAT: "-4,5,12"}) == 0
    assert load_hidden(scripts, {CHAT: "-20,21"}) == 1
    assert hidden(scripts) == "-20,21"
    assert hide(scripts, 22) == 1
    assert hidden(scripts) == "-20,21,22"


def test_load_hidden_repeat_changes_nothing(scripts: ScriptRunner) -> None:
    """A repeated load is a no-op."""
    load_hidden(scripts, {CHAT: "1,2"})

    assert load_hidden(scripts, {CHAT: "2,1"}) == 0
    assert hidden(scripts) == "1,2"
