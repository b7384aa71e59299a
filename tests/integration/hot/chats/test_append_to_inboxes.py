"""append_to_inboxes.lua: missing entries of a chat are appended to inboxes once."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import ChatId
from tests.integration.hot.support import ALICE, BOB, CHAT, Scripts, Sending

OTHER = ChatId("c2")


def test_append_to_inboxes_appends_all_entries_since_the_last_delivery(scripts: Scripts) -> None:
    """An inbox that missed several messages gets all of them, in order."""
    first = scripts.deliver(ALICE, 2)

    second = scripts.deliver(ALICE, 5)

    assert (first, second) == ((2, 2, ""), (3, 5, ""))
    assert scripts.inbox(ALICE) == [(n, CHAT, str(n)) for n in range(1, 6)]
    assert scripts.box(ALICE)[f"t:{CHAT}"] == "5 E1"
    assert scripts.seqs() == {ALICE: 5}


def test_append_to_inboxes_repeat_appends_nothing(scripts: Scripts) -> None:
    """A delivery with an unknown outcome can be repeated."""
    scripts.deliver(ALICE, 3)
    before = scripts.box(ALICE)

    assert scripts.deliver(ALICE, 3) == (0, 3, "")
    assert scripts.deliver(ALICE, 1) == (0, 3, "")
    assert scripts.box(ALICE) == before
    assert scripts.seqs() == {ALICE: 3}


def test_append_to_inboxes_continues_after_the_delivery_of_the_commit(scripts: Scripts) -> None:
    """Entries that the commit delivered are not appended again."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r1"), Sending(BOB, "r2"))

    assert scripts.deliver(BOB, 4, after=2) == (2, 4, "")
    assert [cs for _, _, cs in scripts.inbox(BOB)] == ["1", "2", "3", "4"]


def test_append_to_inboxes_skips_entries_up_to_the_floor(scripts: Scripts) -> None:
    """A new member gets nothing from before the join."""
    assert scripts.deliver(ALICE, 7, after=5) == (2, 2, "")
    assert [cs for _, _, cs in scripts.inbox(ALICE)] == ["6", "7"]


def test_append_to_inboxes_floor_beyond_the_chat_appends_nothing(scripts: Scripts) -> None:
    """A user who joins with the next message gets nothing yet."""
    assert scripts.deliver(ALICE, 7, after=7) == (0, 0, "")
    assert scripts.inbox(ALICE) == []


def test_append_to_inboxes_after_a_later_commit_appends_nothing(scripts: Scripts) -> None:
    """A late delivery, after another fan-out and a later commit, changes nothing."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r1", to=()))
    scripts.deliver(ALICE, 1)
    scripts.deliver(BOB, 1)
    scripts.finish_fan_outs((CHAT, 1))
    scripts.accept(Sending(ALICE, "r2"))

    assert scripts.deliver(BOB, 1, after=0) == (0, 2, "")
    assert [cs for _, _, cs in scripts.inbox(BOB)] == ["1", "2"]


def test_append_to_inboxes_adds_a_missing_chat_to_the_list(scripts: Scripts) -> None:
    """The creator may have failed before listing the chat. A listed chat keeps its time."""
    scripts.redis.hset(scripts.keys.box(BOB), f"c:{CHAT}", "77")

    scripts.deliver(ALICE, 1)
    scripts.deliver(BOB, 1)

    assert scripts.box(ALICE) == {f"t:{CHAT}": "1 E1", f"c:{CHAT}": "0"}
    assert scripts.box(BOB) == {f"t:{CHAT}": "1 E1", f"c:{CHAT}": "77"}


def test_append_to_inboxes_numbers_an_inbox_over_all_chats(scripts: Scripts) -> None:
    """Entries of all chats share the seqs of the inbox."""
    scripts.deliver(ALICE, 2)
    scripts.deliver(ALICE, 1, chat=OTHER)
    scripts.deliver(ALICE, 3)

    assert scripts.inbox(ALICE) == [
        (1, CHAT, "1"),
        (2, CHAT, "2"),
        (3, OTHER, "1"),
        (4, CHAT, "3"),
    ]


def test_append_to_inboxes_returns_the_gateways_of_the_user(scripts: Scripts) -> None:
    """The caller notifies these gateways."""
    scripts.place(ALICE, "gw1,gw2")

    assert scripts.deliver(ALICE, 1) == (1, 1, "gw1,gw2")


def test_append_to_inboxes_trims_the_inbox_to_its_limit(scripts: Scripts) -> None:
    """The newest events stay, plus the other messages of the oldest entry."""
    assert scripts.deliver(ALICE, 50, inbox_max=20) == (50, 50, "")
    assert [seq for seq, _, _ in scripts.inbox(ALICE)] == list(range(18, 51))


def test_append_to_inboxes_divides_a_long_run_into_entries(scripts: Scripts) -> None:
    """Trimming removes whole entries, so an entry has at most 16 messages."""
    scripts.deliver(ALICE, 3, chat=OTHER)

    scripts.deliver(ALICE, 40, after=5)

    entries = scripts.redis.xrange(scripts.keys.inbox(ALICE))
    assert [(name, *fields.values()) for name, fields in entries] == [
        (b"0-1", b"1"), (b"0-3", b"2-3"),
        (b"0-4", b"6"), (b"0-20", b"7-22"), (b"0-36", b"23-38"), (b"0-38", b"39-40"),
    ]  # fmt: skip
    assert scripts.inbox(ALICE)[3:] == [(4 + n, CHAT, str(6 + n)) for n in range(35)]


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 18, 33, 34])
def test_append_to_inboxes_of_any_number_appends_each_once(scripts: Scripts, count: int) -> None:
    """The last entry may have one message; its value is then not a range."""
    assert scripts.deliver(ALICE, 7 + count, after=7) == (count, count, "")

    assert scripts.inbox(ALICE) == [(n, CHAT, str(7 + n)) for n in range(1, count + 1)]
    for _, fields in scripts.redis.xrange(scripts.keys.inbox(ALICE)):
        first, *last = fields[CHAT.encode()].split(b"-")
        assert last != [first]
    assert scripts.deliver(ALICE, 8 + count, after=7) == (1, count + 1, "")


def test_append_to_inboxes_to_several_inboxes_in_one_call_returns_each_result(
    scripts: Scripts,
) -> None:
    """One call delivers to many inboxes, including twice to one of them."""

    def item(user: str, upto: int) -> dict[str, str | int]:
        return {"user": user, "chat_id": CHAT, "after": 0, "upto": upto, "epoch": "E1"}

    reply = scripts.run(
        "append_to_inboxes",
        {"inbox_max": 1000},
        [item("alice", 1), item("bob", 1), item("alice", 2), item("bob", 2)],
    )

    assert reply == [1, 1, b"", 1, 1, b"", 1, 2, b"", 1, 2, b""]
    assert scripts.seqs() == {ALICE: 2, BOB: 2}


def test_append_to_inboxes_in_a_new_epoch_of_the_chat_delivers_its_seqs_again(
    scripts: Scripts,
) -> None:
    """A chat that lost its end reuses seqs. Deliveries of the old epoch must not hide them."""
    scripts.open_chat(ALICE, BOB)
    for number in range(3):
        scripts.accept(Sending(ALICE, f"r{number}", to=()))
    assert scripts.deliver(BOB, 3)[0] == 3

    assert scripts.deliver(BOB, 2, epoch="E2")[0] == 2
    assert scripts.deliver(BOB, 2, epoch="E2")[0] == 0
    delivered = scripts.box(BOB)
    assert scripts.deliver(BOB, 3)[0] == 0  # a late delivery of the old epoch
    assert scripts.box(BOB) == delivered
    assert scripts.deliver(BOB, 2, epoch="E2")[0] == 0
