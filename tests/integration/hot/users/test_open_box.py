"""load_user.lua: a user's state is loaded once per epoch, and never moves back."""

from __future__ import annotations

import pytest

from tests.integration.hot.support import ALICE, CHAT, EPOCH, Scripts

pytest_plugins = ["tests.integration.hot.fixtures"]


def open_box(scripts: Scripts, *chats: tuple[str, int, int], epoch: str = EPOCH) -> int:
    """Load alice's state with (chat, read, received)."""
    scripts.begin(epoch)
    return fill(scripts, *chats, epoch=epoch)


def fill(
    scripts: Scripts,
    *chats: tuple[str, int, int],
    epoch: str = EPOCH,
    since: str = "",
    chat_epoch: str = EPOCH,
) -> int:
    """Fill it, whatever epoch Redis is in."""
    filled: int = scripts.run(
        "load_user",
        {
            "box": scripts.keys.box(ALICE),
            "large": scripts.keys.large(ALICE),
            "epoch": scripts.keys.epoch(0),
        },
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
    return filled


def test_open_box_lists_chats_with_their_marks(scripts: Scripts) -> None:
    """The user state contains what the directory has."""
    assert open_box(scripts, ("c1", 3, 5), ("c2", 0, 0)) == 1
    assert scripts.box(ALICE) == {
        "known": EPOCH,
        "c:c1": "0",
        "r:c1": "3",
        "d:c1": "5",
        "c:c2": "0",
    }


def test_open_box_again_in_the_same_epoch_does_nothing(scripts: Scripts) -> None:
    """A call that is late, or made twice, changes nothing."""
    open_box(scripts, ("c1", 3, 5))
    before = scripts.box(ALICE)

    assert open_box(scripts, ("c1", 9, 9), ("c2", 1, 1)) == 0
    assert scripts.box(ALICE) == before


def test_open_box_keeps_what_the_hot_tier_knows_better(scripts: Scripts) -> None:
    """A mark that is not persisted yet is kept; a lower one is raised."""
    scripts.deliver(ALICE, 9)
    scripts.redis.hset(scripts.keys.box(ALICE), mapping={f"r:{CHAT}": 8, f"d:{CHAT}": 2})

    open_box(scripts, (CHAT, 3, 7))

    box = scripts.box(ALICE)
    assert (box[f"r:{CHAT}"], box[f"d:{CHAT}"]) == ("8", "7")
    assert box[f"t:{CHAT}"] == "9 E1"


def test_open_box_keeps_since_when_a_chat_is_listed(scripts: Scripts) -> None:
    """The directory does not know; the list would be in another order."""
    scripts.redis.hset(scripts.keys.box(ALICE), f"c:{CHAT}", 77)

    open_box(scripts, (CHAT, 0, 0))

    assert scripts.box(ALICE)[f"c:{CHAT}"] == "77"


def test_open_box_in_next_epoch_adds_what_is_new(scripts: Scripts) -> None:
    """A chat that the user was added to meanwhile appears."""
    open_box(scripts, ("c1", 3, 5))

    assert open_box(scripts, ("c1", 4, 5), ("c2", 1, 1), epoch="E2") == 1
    assert scripts.box(ALICE)["r:c1"] == "4"
    assert scripts.box(ALICE)["c:c2"] == "0"
    assert scripts.box(ALICE)["known"] == "E2"


def test_open_box_without_chats_is_known_all_the_same(scripts: Scripts) -> None:
    """A user without chats need not be looked up again."""
    assert open_box(scripts) == 1
    assert open_box(scripts) == 0


def test_open_box_with_as_many_chats_as_are_loaded(scripts: Scripts) -> None:
    """2,000 chats, the most that are loaded, fit into one call."""
    open_box(scripts, *((f"c{n}", n, n) for n in range(2000)))

    assert len([name for name in scripts.box(ALICE) if name.startswith("c:")]) == 2000


def test_open_box_in_an_epoch_that_is_over_is_refused(scripts: Scripts) -> None:
    """Redis was emptied, or is in another epoch: nothing begins in the one of the caller."""
    assert fill(scripts, ("c1", 3, 5)) == 3
    scripts.begin("E2")
    assert fill(scripts, ("c1", 3, 5)) == 3
    assert scripts.box(ALICE) == {}


def test_open_box_knows_large_chats_unless_something_newer_was_told(scripts: Scripts) -> None:
    """The directory was read before; later transitions are kept."""
    scripts.begin(EPOCH)
    large = scripts.keys.large(ALICE)
    scripts.redis.hset(scripts.keys.box(ALICE), "l:c2", f"2 {EPOCH}")

    assert fill(scripts, ("c1", 0, 0), ("c2", 0, 0), since="4") == 1
    assert scripts.hash(large) == {"c1": "0:4"}


@pytest.mark.parametrize(
    ("told", "since", "expected"),
    [
        ("7:3", "", None),
        ("9:3:5;7:1:2", "", None),
        ("7:3", "4", "7:3"),
        ("9:3:5", "4", "0:4"),
        (None, "4", "0:4"),
    ],
)
def test_open_box_believes_the_directory_where_an_earlier_life_of_a_chat_told_otherwise(
    scripts: Scripts, told: str | None, since: str, expected: str | None
) -> None:
    """Redis lost the chat during a transition: it happens again, with a notification."""
    scripts.begin("E2")
    scripts.redis.hset(scripts.keys.box(ALICE), "l:c1", f"5 {EPOCH}")
    large = scripts.keys.large(ALICE)
    if told is not None:
        scripts.redis.hset(large, "c1", told)

    assert fill(scripts, ("c1", 0, 0), epoch="E2", chat_epoch="E2", since=since) == 1

    assert scripts.hash(large) == ({} if expected is None else {"c1": expected})
    assert scripts.box(ALICE)["l:c1"] == "0 E2"


def test_open_box_keeps_what_this_life_of_a_chat_told_before_the_box_was_filled(
    scripts: Scripts,
) -> None:
    """The directory was read earlier, when the chat had not turned yet."""
    scripts.begin("E2")
    scripts.redis.hset(scripts.keys.box(ALICE), "l:c1", "5 E2")
    scripts.redis.hset(scripts.keys.large(ALICE), "c1", "7:3")

    fill(scripts, ("c1", 0, 0), epoch="E2", chat_epoch="E2")

    assert scripts.hash(scripts.keys.large(ALICE)) == {"c1": "7:3"}
    assert scripts.box(ALICE)["l:c1"] == "5 E2"
