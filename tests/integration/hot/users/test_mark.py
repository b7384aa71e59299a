"""move_read_marks.lua: marks move forward, never behind own messages, and are persisted."""

from __future__ import annotations

import pytest

from tests.integration.hot.support import ALICE, CHAT, NEVER, Scripts


def mark(scripts: Scripts, read: int = 0, received: int = 0, own: int = 0) -> list[int] | None:
    """Move alice's marks; `own` is her last message. Return (read, received)."""
    reply: list[int] | None = scripts.run(
        "move_read_marks",
        {"chat_id": CHAT, "user": ALICE, "read": read, "received": received, "own": own},
    )
    return reply


@pytest.fixture(autouse=True)
def listed(scripts: Scripts) -> None:
    """Add the chat to alice's list."""
    scripts.list_chat(ALICE)


def test_mark_forward_moves_and_is_in_the_backlog(scripts: Scripts) -> None:
    """A moved mark is persisted with the messages."""
    assert mark(scripts, read=4, received=6) == [4, 6]
    assert scripts.box(ALICE)[f"r:{CHAT}"] == "4"
    assert scripts.box(ALICE)[f"d:{CHAT}"] == "6"
    ((_, fields),) = scripts.redis.xrange(scripts.keys.backlog(0))
    assert list(fields.items()) == [(b"c", b"c1"), (b"u", b"alice"), (b"r", b"4"), (b"d", b"6")]
    assert scripts.count_backlog() == 1


@pytest.mark.parametrize(("read", "received"), [(4, 6), (3, 0), (0, 6), (0, 0), (0, 5)])
def test_mark_at_or_below_the_position_moves_nothing(
    scripts: Scripts, read: int, received: int
) -> None:
    """A repeated or late call changes nothing and adds no backlog entry."""
    mark(scripts, read=4, received=6)
    before = scripts.box(ALICE)

    assert mark(scripts, read=read, received=received) == [4, 6]
    assert scripts.box(ALICE) == before
    assert scripts.count_backlog() == 1


def test_mark_behind_an_own_message_returns_its_seq(scripts: Scripts) -> None:
    """Sending moves the sender's read mark, so no older position is sent afterward."""
    assert mark(scripts, read=4, received=9, own=6) == [6, 9]
    assert scripts.box(ALICE)[f"r:{CHAT}"] == "6"


def test_mark_that_only_follows_an_own_message_moves_nothing(scripts: Scripts) -> None:
    """The message itself reports it. A repeat adds nothing to the backlog."""
    mark(scripts, read=4, received=9, own=4)

    assert mark(scripts, read=5, received=9, own=6) == [4, 9]
    assert scripts.count_backlog() == 1


def test_mark_is_written_with_all_digits(scripts: Scripts) -> None:
    """Large seqs are written without an exponent."""
    assert mark(scripts, read=NEVER - 1) == [NEVER - 1, NEVER - 1]
    assert scripts.box(ALICE)[f"r:{CHAT}"] == str(NEVER - 1)


def test_mark_read_also_marks_as_received(scripts: Scripts) -> None:
    """A read message is also received."""
    assert mark(scripts, read=7, received=2) == [7, 7]


def test_mark_of_one_kind_does_not_change_the_other(scripts: Scripts) -> None:
    """Read and received marks move independently."""
    mark(scripts, received=6)

    assert mark(scripts, read=3) == [3, 6]
    assert mark(scripts, received=9) == [3, 9]


def test_mark_in_chat_that_the_user_does_not_have_is_refused(scripts: Scripts) -> None:
    """The user state is not changed."""
    scripts.redis.delete(scripts.keys.box(ALICE))

    assert mark(scripts, read=1) is None
    assert scripts.box(ALICE) == {}
    assert scripts.count_backlog() == 0
