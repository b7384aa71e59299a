"""change_members.lua: members, chat version and entries change together and once."""

from __future__ import annotations

from collections.abc import Sequence

from chatserver.domain.ids import UserId
from chatserver.domain.messages import format_name, reference_key
from tests.integration.hot.support import (
    ALICE,
    BOB,
    CAROL,
    CHAT,
    EPOCH,
    GATE,
    NOT_MEMBER,
    UNDELIVERED,
    Scripts,
    Sending,
)

CLOSED, MADE, OVERTAKEN = 0, 1, 2
DAVE = UserId("dave")
Entry = tuple[str, str, bool]  # user, role, whether the member is new


def change(
    scripts: Scripts,
    *entries: Entry,
    version: int = 2,
    epoch: str = EPOCH,
    name: str = "",
    history: str = "joined",
    sender: UserId = ALICE,
    ref: str = "change-1",
    mid: str = "M-change",
    large: int = 0,
    turn: str = "",
) -> list[int]:
    """Make a change like the worker; return the script's reply."""
    reply: list[int] = scripts.run(
        "change_members",
        {
            "epoch": epoch,
            "chat_id": CHAT,
            "version": version,
            "title": name,
            "history": history,
            "ref": reference_key(sender, ref),
            "name": format_name(mid, "d1"),
            "large": large,
            "transition": turn,
            "repeat_lost": "",
            "picture": "",
        },
        [
            {"user": user, "role": role, "is_new": "1" if is_new else "", "tail": f"<{user}>"}
            for user, role, is_new in entries
        ],
    )
    return reply


def members(scripts: Scripts) -> dict[str, str]:
    """Return the members in Redis."""
    return scripts.hash(scripts.keys.members(CHAT))


def list_pending(scripts: Scripts) -> dict[str, str]:
    """Return the pending notifications."""
    return scripts.hash(scripts.keys.turnover(CHAT))


def send(scripts: Scripts, sender: UserId, ref: str, gate: str = GATE) -> int:
    """Send a message with an audience of `gate`; return the result code."""
    (answer,) = scripts.accept(Sending(sender, ref, gate=gate))
    return answer.code


def test_change_members_removed_user_cannot_send_with_any_version(scripts: Scripts) -> None:
    """Neither the previous audience nor the current one allows it (guarantee P7)."""
    scripts.open_chat(ALICE, BOB)

    assert change(scripts, (BOB, "", False)) == [MADE, 1, 1]

    assert send(scripts, BOB, "b1") == NOT_MEMBER
    assert send(scripts, BOB, "b2", gate=f"{EPOCH}:2") == NOT_MEMBER
    assert send(scripts, ALICE, "a1") == UNDELIVERED
    assert members(scripts) == {"alice": "member:0"}


def test_change_members_new_member_joins_at_the_seq_of_their_entry(scripts: Scripts) -> None:
    """Each new member has an entry. A member with a new role keeps the seq of the join."""
    scripts.open_chat(ALICE, BOB, seq=7, ts=700)

    reply = change(
        scripts, (CAROL, "member", True), (DAVE, "admin", True), (BOB, "admin", False), version=2
    )

    assert reply == [MADE, 8, 10]
    assert members(scripts) == {
        "alice": "member:0",
        "bob": "admin:0",
        "carol": "member:8",
        "dave": "admin:9",
    }
    assert list_pending(scripts) == {"2:carol": "in:8", "2:dave": "in:9"}


def test_change_members_entries_are_in_log_and_backlog_like_messages(scripts: Scripts) -> None:
    """Each has a seq and an increasing timestamp, is counted, and is pending until delivered."""
    scripts.open_chat(ALICE, BOB, seq=7, ts=2**52)

    change(scripts, (CAROL, "member", True), (DAVE, "member", True))

    assert [(seq, blob) for seq, _, blob in scripts.log()] == [(8, "\n<carol>"), (9, "\n<dave>")]
    times = [ts for _, ts, _ in scripts.log()]
    assert times == [2**52 + 1, 2**52 + 2]
    ((_, fields),) = scripts.redis.xrange(scripts.keys.backlog(0))
    assert list(fields.items()) == [
        (b"g", b"-"),
        (f"8:{times[0]}".encode(), b"\n<carol>"),
        (f"9:{times[1]}".encode(), b"\n<dave>"),
    ]
    assert scripts.undelivered() == [CHAT]
    head = scripts.head()
    assert (head["seq"], head["ts"], head["gate"]) == ("9", str(times[1]), f"{EPOCH}:2:p")


def test_change_members_repeated_changes_nothing(scripts: Scripts) -> None:
    """The reply is that of the first call, whatever was committed since."""
    scripts.open_chat(ALICE, BOB)
    first = change(scripts, (BOB, "", False))
    send(scripts, ALICE, "a1")
    before = (scripts.log(), scripts.head(), members(scripts))

    again = change(scripts, (BOB, "", False))

    assert again == first
    assert (scripts.log(), scripts.head(), members(scripts)) == before


def test_change_members_with_an_older_version_changes_nothing(scripts: Scripts) -> None:
    """A delayed worker cannot undo a later change."""
    scripts.open_chat(ALICE, BOB)
    change(scripts, (CAROL, "member", True), version=2)
    change(scripts, (CAROL, "", False), version=3, ref="change-2", mid="M-2")

    late = change(scripts, (CAROL, "member", True), version=2)

    assert late == [OVERTAKEN]
    assert "carol" not in members(scripts)
    assert len(scripts.log()) == 2


def test_change_members_of_a_chat_of_another_epoch_is_closed(scripts: Scripts) -> None:
    """The chat must be loaded, because its state may be from before a loss."""
    scripts.open_chat(ALICE, BOB, epoch="E0")

    assert change(scripts, (BOB, "", False)) == [CLOSED]
    assert change(scripts, (BOB, "", False), epoch="E0") == [MADE, 1, 1]


def test_change_members_loaded_from_the_directory_gets_its_entries(scripts: Scripts) -> None:
    """The directory already has the change, so only the entries are missing."""
    scripts.open_chat(ALICE, CAROL, version=2)

    reply = change(scripts, (CAROL, "member", True), (BOB, "", False))

    assert reply == [MADE, 1, 2]
    assert members(scripts) == {"alice": "member:0", "carol": "member:1"}
    assert list_pending(scripts) == {"2:carol": "in:1", "2:bob": "out:2:0"}


def test_change_members_loaded_with_its_entries_gets_no_new_ones(scripts: Scripts) -> None:
    """The loader provides the seqs."""
    scripts.open_chat(ALICE, CAROL, version=2, seq=9, changed="2:5,1:3")

    reply = change(scripts, (CAROL, "member", True))

    assert reply == [MADE, 5, 5]
    assert scripts.log() == []
    assert members(scripts)["carol"] == "member:5"
    assert scripts.head()["gate"] == f"{EPOCH}:2"


def test_change_members_with_the_ref_of_a_message_succeeds(scripts: Scripts) -> None:
    """A message with the same ref does not keep the change out of the log."""
    scripts.open_chat(ALICE, BOB)
    send(scripts, ALICE, "change-1")

    assert change(scripts, (BOB, "", False)) == [MADE, 2, 2]
    assert len(scripts.log()) == 2


def test_change_members_of_settings_only_changes_the_version(scripts: Scripts) -> None:
    """Name and history change, earlier audiences become outdated, and members stay the same."""
    scripts.open_chat(ALICE, BOB, name="Old")

    change(scripts, ("", "", False), name="New", history="all")

    head = scripts.head()
    assert (head["name"], head["history"], head["gate"]) == ("New", "all", f"{EPOCH}:2:p")
    assert members(scripts) == {"alice": "member:0", "bob": "member:0"}
    assert send(scripts, BOB, "b1") == UNDELIVERED


def test_change_members_user_who_left_gets_pending_entries(scripts: Scripts) -> None:
    """The entries are from the last delivered one to the entry of the leave."""
    scripts.open_chat(ALICE, BOB, seq=4)
    change(scripts, (CAROL, "member", True), version=2)
    change(scripts, (CAROL, "", False), (BOB, "", False), version=3, ref="r2", mid="M2")

    pending = list_pending(scripts)
    assert pending == {"2:carol": "in:5", "3:carol": "out:6:4", "3:bob": "out:7:4"}


def test_open_chat_with_an_older_version_is_refused(scripts: Scripts) -> None:
    """A load that began before a removal cannot undo it, in any epoch."""
    scripts.open_chat(ALICE, BOB, epoch="E0")
    change(scripts, (BOB, "", False), epoch="E0")

    assert scripts.open_chat(ALICE, BOB, version=1) == 2
    assert scripts.open_chat(ALICE, version=2) == 1
    assert send(scripts, BOB, "b1") == NOT_MEMBER


def test_open_chat_of_10_000_members_has_them_all(scripts: Scripts) -> None:
    """One call loads them."""
    users: Sequence[UserId] = [UserId(f"user-{n:05}") for n in range(10_000)]

    assert scripts.open_chat(*users) == 1

    assert scripts.redis.hlen(scripts.keys.members(CHAT)) == 10_000


# large chats


def test_change_that_makes_a_chat_large_records_its_seq(scripts: Scripts) -> None:
    """The entries of the change are still delivered to inboxes, and members must be notified."""
    scripts.open_chat(ALICE, BOB, seq=7)

    assert change(scripts, ("carol", "member", True), large=2, turn="up") == [MADE, 8, 8]

    assert (scripts.head()["large"], scripts.head()["turns"]) == ("2", "+8")
    assert list_pending(scripts) == {"2:carol": "in:8", "2:+": "up:8"}


def test_change_of_a_large_chat_records_that_it_is_large_for_notifications(
    scripts: Scripts,
) -> None:
    """Notifications of joins and leaves depend on the size of the chat at that time."""
    scripts.open_chat(ALICE, BOB, large=1)

    change(scripts, ("bob", "", False), ("carol", "member", True), large=1)

    assert scripts.head()["large"] == "1"
    assert list_pending(scripts) == {"2:bob": "out:1:0:1", "2:carol": "in:2:0:1"}


def test_change_that_makes_a_chat_small_keeps_unfinished_transitions(scripts: Scripts) -> None:
    """Transitions remain until all entries before them are delivered."""
    scripts.open_chat(ALICE, BOB, CAROL)
    change(scripts, ("dave", "member", True), large=2, turn="up")

    change(scripts, ("dave", "", False), version=3, ref="change-2", mid="M2", turn="down")
    assert (scripts.head()["large"], scripts.head()["turns"]) == ("0", "+1,-2")
    assert list_pending(scripts)["3:+"] == "down:2"
    assert list_pending(scripts)["3:dave"] == "out:2:0:1"

    scripts.finish_fan_outs((CHAT, 2))
    change(scripts, ("dave", "member", True), version=4, ref="c3", mid="M3", large=4, turn="up")
    assert scripts.head()["turns"] == "+3"


def test_change_without_entries_makes_a_new_chat_large(scripts: Scripts) -> None:
    """Its members are notified when it is created, and no entry is committed for this."""
    scripts.open_chat(ALICE, BOB, large=1)

    assert change(scripts, version=1, large=1, turn="up") == [MADE, 1, 0]
    assert change(scripts, version=1, large=1, turn="up") == [MADE, 1, 0]

    assert list_pending(scripts) == {"1:+": "up:0"}
    assert (scripts.head()["gate"], scripts.head()["turns"]) == (GATE, "")
    assert (scripts.log(), scripts.count_backlog()) == ([], 0)
