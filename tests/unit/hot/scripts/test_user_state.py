"""Scripts of the state of one user: read marks, hidden messages, and the loading of both."""

from __future__ import annotations

from chatserver.domain.ids import ChatId, UserId
from tests.unit.hot.scripts.script_runner import ScriptRunner

CHAT, OTHER = ChatId("c1"), ChatId("c2")
ALICE = UserId("alice")


def list_chat(scripts: ScriptRunner) -> None:
    """Put the chat into Alice's list."""
    scripts.redis.hset(scripts.keys.box(ALICE), f"c:{CHAT}", 0)


def state(scripts: ScriptRunner) -> dict[str, str]:
    """Return Alice's user state."""
    fields: dict[str, str] = scripts.redis.hgetall(scripts.keys.box(ALICE))
    return fields


def backlog(scripts: ScriptRunner) -> list[dict[str, str]]:
    """Return the fields of the backlog entries."""
    return [fields for _, fields in scripts.redis.xrange(scripts.keys.backlog(0))]


def move_marks(
    scripts: ScriptRunner, read: int = 0, received: int = 0, own: int = 0
) -> list[int] | None:
    """Move Alice's marks."""
    marks: list[int] | None = scripts.run(
        "move_read_marks",
        {
            "box": scripts.keys.box(ALICE),
            "backlog": scripts.keys.backlog(0),
            "checkpoint": scripts.keys.checkpoint(0),
        },
        {"chat_id": CHAT, "user": ALICE, "read": read, "received": received, "own": own},
    )
    return marks


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
    reply: int = scripts.run(
        "hide_message",
        {
            "hidden": scripts.keys.hidden(ALICE),
            "backlog": scripts.keys.backlog(0),
            "checkpoint": scripts.keys.checkpoint(0),
        },
        {
            "chat_id": CHAT,
            "user": ALICE,
            "seq": seq,
            "hidden_max": hidden_max,
            "backlog_max": backlog_max,
        },
    )
    return reply


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


def test_move_read_marks_forward_adds_one_backlog_entry(scripts: ScriptRunner) -> None:
    """A moved mark is persisted, and counted as waiting."""
    list_chat(scripts)

    assert move_marks(scripts, read=3, received=5) == [1, 3, 5]
    assert backlog(scripts) == [{"c": CHAT, "u": ALICE, "r": "3", "d": "5"}]
    assert scripts.redis.hget(scripts.keys.checkpoint(0), "waiting") == "1"


def test_move_read_marks_never_back(scripts: ScriptRunner) -> None:
    """Repeats and late calls return the marks and write nothing."""
    list_chat(scripts)
    move_marks(scripts, read=3, received=5)

    assert move_marks(scripts, read=3, received=5) == [0, 3, 5]
    assert move_marks(scripts, read=2, received=4) == [0, 3, 5]
    assert move_marks(scripts, read=2, received=6) == [1, 3, 6]
    assert len(backlog(scripts)) == 2


def test_move_read_marks_read_message_is_received(scripts: ScriptRunner) -> None:
    """The received mark is never below the read mark."""
    list_chat(scripts)
    move_marks(scripts, received=2)

    assert move_marks(scripts, read=7) == [1, 7, 7]


def test_move_read_marks_own_message_counts_as_read(scripts: ScriptRunner) -> None:
    """A read mark below the user's own newest message does not move."""
    list_chat(scripts)
    scripts.redis.hset(scripts.keys.box(ALICE), f"d:{CHAT}", 9)

    assert move_marks(scripts, read=4, own=9) == [0, 9, 9]
    assert backlog(scripts) == []


def test_move_read_marks_of_an_unknown_chat_returns_nothing(scripts: ScriptRunner) -> None:
    """A user has no marks in a chat that is not in the list."""
    assert move_marks(scripts, read=3) is None
    assert state(scripts) == {}
    assert backlog(scripts) == []


def test_load_user_loads_once_per_epoch(scripts: ScriptRunner) -> None:
    """The second load of an epoch changes nothing; the next epoch loads again."""
    assert load_user(scripts, directory_item(read=3, received=4)) == 1
    assert state(scripts) == {f"c:{CHAT}": "0", f"r:{CHAT}": "3", f"d:{CHAT}": "4", "known": "E2"}

    assert load_user(scripts, directory_item(read=8, received=8)) == 0
    assert state(scripts)[f"r:{CHAT}"] == "3"

    assert load_user(scripts, directory_item(read=8), epoch="E3", redis_epoch="E3") == 1
    assert state(scripts)[f"r:{CHAT}"] == "8"


def test_load_user_in_an_epoch_that_has_ended_loads_nothing(scripts: ScriptRunner) -> None:
    """A caller with an outdated epoch does not mark the state as loaded."""
    assert load_user(scripts, directory_item(read=3), epoch="E1") == 3
    assert state(scripts) == {}


def test_load_user_keeps_higher_marks(scripts: ScriptRunner) -> None:
    """Marks that are not persisted yet are newer than the directory; each mark by itself."""
    marks = {f"c:{CHAT}": "77", f"r:{CHAT}": "9", f"d:{CHAT}": "9"}
    scripts.redis.hset(scripts.keys.box(ALICE), mapping=marks)

    load_user(scripts, directory_item(read=5, received=12))

    expected = {f"c:{CHAT}": "77", f"r:{CHAT}": "9", f"d:{CHAT}": "12", "known": "E2"}
    assert state(scripts) == expected


def test_load_user_loads_large_chats(scripts: ScriptRunner) -> None:
    """A large chat gets the start of the directory; other chats have no entry."""
    load_user(scripts, directory_item(since="40"), directory_item(OTHER))

    assert scripts.redis.hgetall(scripts.keys.large(ALICE)) == {CHAT: "0:40"}


def test_load_user_keeps_a_newer_large_chat_transition(scripts: ScriptRunner) -> None:
    """A transition of this epoch is used until the directory has a later version."""
    scripts.redis.hset(scripts.keys.box(ALICE), f"l:{CHAT}", "5 E2")

    load_user(scripts, directory_item(since="40", version=4))
    assert scripts.redis.hgetall(scripts.keys.large(ALICE)) == {}

    scripts.redis.hdel(scripts.keys.box(ALICE), "known")
    load_user(scripts, directory_item(since="40", version=5))
    assert scripts.redis.hgetall(scripts.keys.large(ALICE)) == {CHAT: "0:40"}


def test_load_user_drops_a_large_chat_transition_of_an_earlier_epoch(
    scripts: ScriptRunner,
) -> None:
    """A transition that was lost is recorded again when it is repeated."""
    scripts.redis.hset(scripts.keys.box(ALICE), f"l:{CHAT}", "5 E1")
    scripts.redis.hset(scripts.keys.large(ALICE), CHAT, "3:40")

    load_user(scripts, directory_item())

    assert scripts.redis.hgetall(scripts.keys.large(ALICE)) == {}
    assert state(scripts)[f"l:{CHAT}"] == "0 E2"


def test_hide_message_adds_one_backlog_entry(scripts: ScriptRunner) -> None:
    """A hidden message is persisted once, even if the user deletes it repeatedly."""
    assert hide(scripts, 11) == 1
    assert hide(scripts, 11) == 0
    assert backlog(scripts) == [{"c": CHAT, "u": ALICE, "x": "11"}]
    assert scripts.redis.hget(scripts.keys.checkpoint(0), "waiting") == "1"


def test_hide_message_compares_whole_numbers(scripts: ScriptRunner) -> None:
    """Message 1 is not hidden because message 11 is."""
    hide(scripts, 11)

    assert hide(scripts, 1) == 1
    assert hidden(scripts) == "11,1"


def test_hide_message_reports_when_it_is_persisted(scripts: ScriptRunner) -> None:
    """A repeat waits until the checkpoint has passed the entry of the newest hidden message."""
    hide(scripts, 4)
    hide(scripts, 5)
    first, second = scripts.entry_ids(scripts.keys.backlog(0))

    scripts.redis.hset(scripts.keys.checkpoint(0), "id", first)
    assert hide(scripts, 4) == 0

    scripts.redis.hset(scripts.keys.checkpoint(0), "id", second)
    assert hide(scripts, 4) == 3


def test_hide_message_over_a_limit_hides_nothing(scripts: ScriptRunner) -> None:
    """Neither the list of a user nor the backlog grows without a limit."""
    hide(scripts, 4)
    hide(scripts, 5)

    assert hide(scripts, 6, hidden_max=2) == 2
    assert hide(scripts, 6, backlog_max=2) == 6
    assert hidden(scripts) == "4,5"
    assert len(backlog(scripts)) == 2


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
