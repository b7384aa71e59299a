"""load_user.lua: a user's state is loaded once per epoch, and marks never move back."""

from __future__ import annotations

import pytest

from tests.integration.hot.support import ALICE, CHAT, EPOCH, Scripts


def open_user_state(scripts: Scripts, *chats: tuple[str, int, int], epoch: str = EPOCH) -> int:
    """Set the epoch of Redis, and load alice's state of (chat, read, received)."""
    scripts.set_epoch(epoch)
    return load(scripts, *chats, epoch=epoch)


def load(
    scripts: Scripts,
    *chats: tuple[str, int, int],
    epoch: str = EPOCH,
    since: str = "",
    chat_epoch: str = EPOCH,
) -> int:
    """Load alice's state without setting the epoch of Redis."""
    loaded: int = scripts.run(
        "load_user",
        {"epoch": epoch},
        [
            {
                "chat_id": chat,
                "read": read,
                "received": received,
                "since": since,
                "version": 1,
                "chat_epoch": chat_epoch,
            }
            for chat, read, received in chats
        ],
    )
    return loaded


def test_open_user_state_lists_chats_with_their_marks(scripts: Scripts) -> None:
    """The user state has the chats and marks of the directory."""
    assert open_user_state(scripts, ("c1", 3, 5), ("c2", 0, 0)) == 1
    assert scripts.box(ALICE) == {
        "known": EPOCH,
        "c:c1": "0",
        "r:c1": "3",
        "d:c1": "5",
        "c:c2": "0",
    }


def test_open_user_state_again_in_the_same_epoch_changes_nothing(scripts: Scripts) -> None:
    """A late or repeated call has no effect."""
    open_user_state(scripts, ("c1", 3, 5))
    before = scripts.box(ALICE)

    assert open_user_state(scripts, ("c1", 9, 9), ("c2", 1, 1)) == 0
    assert scripts.box(ALICE) == before


def test_open_user_state_keeps_marks_that_are_ahead_of_the_directory(scripts: Scripts) -> None:
    """An unpersisted mark is kept; a lower one is raised."""
    scripts.deliver(ALICE, 9)
    scripts.redis.hset(scripts.keys.box(ALICE), mapping={f"r:{CHAT}": 8, f"d:{CHAT}": 2})

    open_user_state(scripts, (CHAT, 3, 7))

    box = scripts.box(ALICE)
    assert (box[f"r:{CHAT}"], box[f"d:{CHAT}"]) == ("8", "7")
    assert box[f"t:{CHAT}"] == "9 E1"


def test_open_user_state_keeps_the_time_of_a_listed_chat(scripts: Scripts) -> None:
    """The directory does not have the time, which orders the list."""
    scripts.redis.hset(scripts.keys.box(ALICE), f"c:{CHAT}", 77)

    open_user_state(scripts, (CHAT, 0, 0))

    assert scripts.box(ALICE)[f"c:{CHAT}"] == "77"


def test_open_user_state_in_next_epoch_adds_new_chats(scripts: Scripts) -> None:
    """The user has joined a chat since the last load."""
    open_user_state(scripts, ("c1", 3, 5))

    assert open_user_state(scripts, ("c1", 4, 5), ("c2", 1, 1), epoch="E2") == 1
    assert scripts.box(ALICE)["r:c1"] == "4"
    assert scripts.box(ALICE)["c:c2"] == "0"
    assert scripts.box(ALICE)["known"] == "E2"


def test_open_user_state_without_chats_is_recorded_as_loaded(scripts: Scripts) -> None:
    """A user without chats is not loaded again."""
    assert open_user_state(scripts) == 1
    assert open_user_state(scripts) == 0


def test_open_user_state_with_the_largest_number_of_chats_succeeds(scripts: Scripts) -> None:
    """2,000 chats, the maximum, fit into one call."""
    open_user_state(scripts, *((f"c{n}", n, n) for n in range(2000)))

    assert len([name for name in scripts.box(ALICE) if name.startswith("c:")]) == 2000


def test_open_user_state_in_an_epoch_that_ended_is_refused(scripts: Scripts) -> None:
    """Redis is empty or in another epoch, so nothing is loaded in the caller's epoch."""
    assert load(scripts, ("c1", 3, 5)) == 3
    scripts.set_epoch("E2")
    assert load(scripts, ("c1", 3, 5)) == 3
    assert scripts.box(ALICE) == {}


def test_open_user_state_adds_large_chats_unless_a_newer_transition_was_recorded(
    scripts: Scripts,
) -> None:
    """The directory was read earlier, so later transitions are kept."""
    scripts.set_epoch(EPOCH)
    large = scripts.keys.large(ALICE)
    scripts.redis.hset(scripts.keys.box(ALICE), "l:c2", f"2 {EPOCH}")

    assert load(scripts, ("c1", 0, 0), ("c2", 0, 0), since="4") == 1
    assert scripts.hash(large) == {"c1": "0:4"}


@pytest.mark.parametrize(
    ("recorded", "since", "expected"),
    [
        ("7:3", "", None),
        ("9:3:5;7:1:2", "", None),
        ("7:3", "4", "7:3"),
        ("9:3:5", "4", "0:4"),
        (None, "4", "0:4"),
    ],
)
def test_open_user_state_replaces_transitions_of_an_earlier_epoch_of_the_chat(
    scripts: Scripts, recorded: str | None, since: str, expected: str | None
) -> None:
    """Redis lost the chat during a transition, so the transition is notified again."""
    scripts.set_epoch("E2")
    scripts.redis.hset(scripts.keys.box(ALICE), "l:c1", f"5 {EPOCH}")
    large = scripts.keys.large(ALICE)
    if recorded is not None:
        scripts.redis.hset(large, "c1", recorded)

    assert load(scripts, ("c1", 0, 0), epoch="E2", chat_epoch="E2", since=since) == 1

    assert scripts.hash(large) == ({} if expected is None else {"c1": expected})
    assert scripts.box(ALICE)["l:c1"] == "0 E2"


def test_open_user_state_keeps_transitions_of_the_current_epoch_of_the_chat(
    scripts: Scripts,
) -> None:
    """The directory was read before the chat became large."""
    scripts.set_epoch("E2")
    scripts.redis.hset(scripts.keys.box(ALICE), "l:c1", "5 E2")
    scripts.redis.hset(scripts.keys.large(ALICE), "c1", "7:3")

    load(scripts, ("c1", 0, 0), epoch="E2", chat_epoch="E2")

    assert scripts.hash(scripts.keys.large(ALICE)) == {"c1": "7:3"}
    assert scripts.box(ALICE)["l:c1"] == "5 E2"
