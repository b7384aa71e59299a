"""Scripts that append to inboxes: each event is in an inbox once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chatserver.domain.ids import ChatId, UserId
from chatserver.hot.redis.scripts import Value
from tests.unit.hot.scripts.script_runner import ScriptRunner

CHAT = ChatId("c1")
ALICE, BOB = UserId("alice"), UserId("bob")


def shared_keys(scripts: ScriptRunner) -> dict[str, Value]:
    """Return the keys that all inboxes of a partition share."""
    return {"seqs": scripts.keys.seqs(0), "where": scripts.keys.where(0)}


def inbox_keys(scripts: ScriptRunner, user: UserId) -> dict[str, Value]:
    """Return the keys of one user."""
    return {"box": scripts.keys.box(user), "inbox": scripts.keys.inbox(user), "user": user}


def deliver(
    scripts: ScriptRunner,
    upto: int,
    *users: UserId,
    after: int = 0,
    epoch: str = "E1",
    chat: ChatId = CHAT,
    inbox_max: int = 1000,
) -> list[Any]:
    """Deliver a chat to the inboxes of users; Alice if none is given."""
    item: dict[str, Value] = {"chat_id": chat, "after": after, "upto": upto, "epoch": epoch}
    reply: list[Any] = scripts.run(
        "append_to_inboxes",
        shared_keys(scripts),
        {"inbox_max": inbox_max},
        [inbox_keys(scripts, user) | item for user in users or (ALICE,)],
    )
    return reply


def append(
    scripts: ScriptRunner,
    body: str,
    *users: UserId,
    is_listed: str = "",
    mark: str = "",
    level: int = 0,
    inbox_max: int = 1000,
) -> list[Any]:
    """Append an event to the inboxes of users; Alice if none is given."""
    reply: list[Any] = scripts.run(
        "append_event",
        shared_keys(scripts),
        {
            "inbox_max": inbox_max,
            "chat_id": CHAT,
            "body": body,
            "is_listed": is_listed,
            "mark": mark,
            "level": level,
        },
        [inbox_keys(scripts, user) for user in users or (ALICE,)],
    )
    return reply


def notify(
    scripts: ScriptRunner, version: int, *, since: int = 0, is_large: bool = True, epoch: str = "E1"
) -> list[Any]:
    """Notify Alice of a large-chat transition."""
    reply: list[Any] = scripts.run(
        "notify_large_chat_transition",
        shared_keys(scripts),
        {
            "inbox_max": 1000,
            "chat_id": CHAT,
            "version": version,
            "is_large": "1" if is_large else "",
            "epoch": epoch,
        },
        [
            inbox_keys(scripts, ALICE)
            | {"large": scripts.keys.large(ALICE), "since": since, "field": "!", "value": "{}"}
        ],
    )
    return reply


def chat_seqs(inbox: Sequence[tuple[int, str, str]]) -> list[int]:
    """Return the chat seqs of inbox entries."""
    return [int(value) for _, _, value in inbox]


def test_append_to_inboxes_continues_after_the_last_delivery(scripts: ScriptRunner) -> None:
    """An inbox gets each message that it missed, in order, and none twice."""
    first = deliver(scripts, 2)
    second = deliver(scripts, 5)

    assert (first, second) == ([2, 2, ""], [3, 5, ""])
    assert scripts.inbox(ALICE) == [(n, CHAT, str(n)) for n in range(1, 6)]
    assert scripts.redis.hgetall(scripts.keys.seqs(0)) == {ALICE: "5"}


def test_append_to_inboxes_repeat_appends_nothing(scripts: ScriptRunner) -> None:
    """A delivery is idempotent, and so is an older one that arrives late."""
    deliver(scripts, 3)
    state = scripts.redis.hgetall(scripts.keys.box(ALICE))

    assert deliver(scripts, 3) == [0, 3, ""]
    assert deliver(scripts, 1) == [0, 3, ""]
    assert chat_seqs(scripts.inbox(ALICE)) == [1, 2, 3]
    assert scripts.redis.hgetall(scripts.keys.box(ALICE)) == state


def test_append_to_inboxes_starts_after_the_given_seq(scripts: ScriptRunner) -> None:
    """A member who joined at a seq gets nothing up to it."""
    assert deliver(scripts, 7, after=5) == [2, 2, ""]
    assert chat_seqs(scripts.inbox(ALICE)) == [6, 7]


def test_append_to_inboxes_after_an_earlier_seq_does_not_move_back(scripts: ScriptRunner) -> None:
    """A last delivery above the given seq takes precedence."""
    deliver(scripts, 4)

    assert deliver(scripts, 5, after=2) == [1, 5, ""]


def test_append_to_inboxes_outdated_epoch_delivers_nothing(scripts: ScriptRunner) -> None:
    """A caller of an earlier epoch may hold seqs that the chat assigned again."""
    deliver(scripts, 2, epoch="E2")
    state = scripts.redis.hgetall(scripts.keys.box(ALICE))

    assert deliver(scripts, 9, epoch="E1") == [0, 2, ""]
    assert scripts.redis.hgetall(scripts.keys.box(ALICE)) == state


def test_append_to_inboxes_new_epoch_delivers_the_same_seqs_again(scripts: ScriptRunner) -> None:
    """After a data loss the chat assigns the same seqs to other messages."""
    deliver(scripts, 3, epoch="E1")

    assert deliver(scripts, 2, epoch="E2") == [2, 5, ""]
    assert deliver(scripts, 2, epoch="E2") == [0, 5, ""]
    assert chat_seqs(scripts.inbox(ALICE)) == [1, 2, 3, 1, 2]


def test_append_to_inboxes_counts_inbox_seqs_over_all_chats(scripts: ScriptRunner) -> None:
    """An inbox has one counter, and each chat its own last delivery."""
    deliver(scripts, 2)
    deliver(scripts, 1, chat=ChatId("c2"))
    deliver(scripts, 3)

    entries = [(1, CHAT, "1"), (2, CHAT, "2"), (3, "c2", "1"), (4, CHAT, "3")]
    assert scripts.inbox(ALICE) == entries


def test_append_to_inboxes_trims_the_inbox_to_its_limit(scripts: ScriptRunner) -> None:
    """The newest events stay, with the rest of the oldest entry."""
    deliver(scripts, 50, inbox_max=20)

    assert [seq for seq, _, _ in scripts.inbox(ALICE)] == list(range(17, 51))


def test_append_to_inboxes_lists_the_chat_and_returns_gateways(scripts: ScriptRunner) -> None:
    """A user who was not notified of a new chat still gets it in the list."""
    scripts.redis.hset(scripts.keys.box(BOB), f"c:{CHAT}", "77")
    scripts.redis.hset(scripts.keys.where(0), BOB, "gw1,gw2")

    assert deliver(scripts, 1, ALICE, BOB) == [1, 1, "", 1, 1, "gw1,gw2"]
    assert scripts.redis.hget(scripts.keys.box(ALICE), f"c:{CHAT}") == "0"
    assert scripts.redis.hget(scripts.keys.box(BOB), f"c:{CHAT}") == "77"


def test_append_event_is_the_next_entry_of_each_inbox(scripts: ScriptRunner) -> None:
    """Every user gets the event after the existing entries of the inbox."""
    deliver(scripts, 2, BOB)

    assert append(scripts, "body", ALICE, BOB) == [1, 1, "", 1, 3, ""]
    assert scripts.inbox(ALICE) == [(1, "!", "body")]
    assert scripts.inbox(BOB)[-1] == (3, "!", "body")


def test_append_event_of_a_listed_chat_appends_nothing(scripts: ScriptRunner) -> None:
    """A user is notified of a new chat once; the time of the first event stays."""
    append(scripts, "new chat", is_listed="1")
    listed_us = scripts.redis.hget(scripts.keys.box(ALICE), f"c:{CHAT}")
    scripts.clock.advance_ms(10)

    assert append(scripts, "new chat", ALICE, BOB, is_listed="1") == [0, 1, "", 1, 1, ""]
    assert listed_us == str((scripts.clock.now_ms - 10) * 1000)
    assert scripts.redis.hget(scripts.keys.box(ALICE), f"c:{CHAT}") == listed_us


def test_append_event_with_a_known_mark_appends_nothing(scripts: ScriptRunner) -> None:
    """Users receive only marks that are higher than the last one."""
    mark = f"m:{CHAT}:{BOB}"
    replies = [append(scripts, "read", mark=mark, level=level) for level in (5, 5, 3, 10)]

    assert [appended for appended, _, _ in replies] == [1, 0, 0, 1]
    assert scripts.redis.hget(scripts.keys.box(ALICE), mark) == "10"
    assert len(scripts.inbox(ALICE)) == 2


def test_append_event_trims_the_inbox_to_its_limit(scripts: ScriptRunner) -> None:
    """The newest events stay."""
    for number in range(5):
        append(scripts, f"e{number}", inbox_max=3)

    assert [body for _, _, body in scripts.inbox(ALICE)] == ["e2", "e3", "e4"]


def test_notify_large_chat_transition_repeat_or_older_version_appends_nothing(
    scripts: ScriptRunner,
) -> None:
    """Every transition is one inbox entry, and late ones are ignored."""
    assert notify(scripts, 4, since=10) == [1, 1, ""]
    assert notify(scripts, 4, since=10) == [0, 1, ""]
    assert notify(scripts, 3, since=8, is_large=False) == [0, 1, ""]
    assert scripts.redis.hget(scripts.keys.large(ALICE), CHAT) == "1:10"


def test_notify_large_chat_transition_records_the_period_in_which_the_chat_was_large(
    scripts: ScriptRunner,
) -> None:
    """The end is added to the open period; the next period is stored before it."""
    notify(scripts, 4, since=10)
    notify(scripts, 5, since=30, is_large=False)
    notify(scripts, 6, since=40)

    assert scripts.redis.hget(scripts.keys.large(ALICE), CHAT) == "3:40;2:10:30"


def test_notify_large_chat_transition_new_epoch_ignores_recorded_transitions(
    scripts: ScriptRunner,
) -> None:
    """A new epoch may have the same transition at another seq; an outdated epoch has none."""
    notify(scripts, 4, since=10, epoch="E1")

    assert notify(scripts, 2, since=7, epoch="E2") == [1, 2, ""]
    assert notify(scripts, 9, since=99, epoch="E1") == [0, 2, ""]
    assert scripts.redis.hget(scripts.keys.large(ALICE), CHAT) == "2:7"
