"""commit_messages.lua, commit_change.lua and set_write_policy.lua: blocks, mutes and slow mode."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import UserId
from chatserver.domain.write_restrictions import WriteRestriction
from tests.integration.hot.support import (
    ALICE,
    BOB,
    CHAT,
    COMMITTED,
    EPOCH,
    KNOWN,
    RESTRICTED,
    UNDELIVERED,
    Answer,
    Scripts,
    Sending,
)
from tests.integration.workers.change_support import Chat

CLOSED, DONE, LATER = 0, 1, 2
FAR_FUTURE_S = 4_000_000_000


def restrict(scripts: Scripts, strict: str, version: int = 1, epoch: str = EPOCH) -> int:
    """Run set_write_policy.lua."""
    reply: int = scripts.run(
        "set_write_policy",
        {"epoch": epoch, "version": version, "write_policy": strict},
    )
    return reply


def set_member(scripts: Scripts, user: UserId, value: str) -> None:
    scripts.redis.hset(scripts.keys.members(CHAT), user, value)


def send(scripts: Scripts, sender: UserId, ref: str, *, is_member: bool = False) -> Answer:
    """Send with the current chat version; unless `is_member`, the script checks the sender."""
    gate = scripts.head()["gate"].removesuffix(":p")
    (answer,) = scripts.accept(Sending(sender, ref, gate=gate, is_member=is_member))
    return answer


# blocked


def test_restrict_invalidates_audiences_of_earlier_versions(scripts: Scripts) -> None:
    """A gateway that does not know about the block cannot commit a message."""
    scripts.open_chat(ALICE, BOB)

    assert restrict(scripts, ":b", version=2) == DONE
    (answer,) = scripts.accept(Sending(ALICE, "r", gate=f"{EPOCH}:1"))

    assert (answer.code, answer.why) == (RESTRICTED, WriteRestriction.BLOCKED.value)
    assert scripts.head()["seq"] == "0"


def test_restrict_with_an_older_version_changes_nothing(scripts: Scripts) -> None:
    """A late repeat of a block does not undo a later change."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, "", version=3)

    assert restrict(scripts, ":b", version=2) == LATER
    assert scripts.head()["gate"] == f"{EPOCH}:3"


@pytest.mark.parametrize(
    ("first", "second", "expected", "gate"),
    [(12, 9, LATER, f"{EPOCH}:12"), (9, 12, DONE, f"{EPOCH}:12:b")],
)
def test_restrict_compares_versions_as_numbers(
    scripts: Scripts, first: int, second: int, expected: int, gate: str
) -> None:
    """Version 9 is older than 12, although its text sorts after that of 12."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, "", version=first)

    assert restrict(scripts, ":b", version=second) == expected
    assert scripts.head()["gate"] == gate


def test_restrict_chat_with_pending_fan_out_stays_pending(scripts: Scripts) -> None:
    """The pending fan-out is not lost."""
    scripts.open_chat(ALICE, BOB)
    scripts.redis.hset(scripts.keys.chat(CHAT), "gate", f"{EPOCH}:1:p")

    assert restrict(scripts, ":s5") == DONE
    assert scripts.head()["gate"] == f"{EPOCH}:1:s5:p"


def test_restrict_chat_of_another_epoch_is_closed(scripts: Scripts) -> None:
    """The chat must be loaded with the state of the directory."""
    scripts.open_chat(ALICE, BOB)

    assert restrict(scripts, ":b", epoch="E2") == CLOSED
    assert scripts.head()["gate"] == f"{EPOCH}:1"


def test_restrict_chat_that_is_not_loaded_writes_nothing(scripts: Scripts) -> None:
    """Nothing is left that could pass for a loaded chat."""
    assert restrict(scripts, ":b") == CLOSED
    assert scripts.redis.keys("*") == []


def test_commit_retry_of_a_message_from_before_the_block_is_known(scripts: Scripts) -> None:
    """A retry of an acked message is not refused."""
    scripts.open_chat(ALICE, BOB)
    assert send(scripts, ALICE, "r1").code == COMMITTED
    restrict(scripts, ":b", version=2)

    assert send(scripts, ALICE, "r1").code == KNOWN
    assert send(scripts, ALICE, "r2").code == RESTRICTED


# muted


@pytest.mark.parametrize("until", [0, FAR_FUTURE_S])
def test_commit_muted_member_is_refused_and_others_are_not(scripts: Scripts, until: int) -> None:
    """The mute is temporary or permanent, and the result has the remaining time."""
    scripts.open_chat(ALICE, BOB)
    set_member(scripts, BOB, f"member:0:{until}m")

    answer = send(scripts, BOB, "r1")

    assert (answer.code, answer.why) == (RESTRICTED, WriteRestriction.MUTED.value)
    assert (answer.wait_ms > 0) == (until > 0)
    assert send(scripts, ALICE, "r2").code == COMMITTED


@pytest.mark.parametrize("value", ["member:0:1m", "admin:0:0m", "owner:0:0m", "member:0"])
def test_commit_member_with_expired_mute_or_moderator_is_committed(
    scripts: Scripts, value: str
) -> None:
    """An expired mute has no effect, and moderators are never muted."""
    scripts.open_chat(ALICE, BOB)
    set_member(scripts, BOB, value)

    assert send(scripts, BOB, "r1").code == COMMITTED


def test_commit_muted_member_with_stale_audience_is_refused(scripts: Scripts) -> None:
    """The chat version differs, so the script checks the mute."""
    scripts.open_chat(ALICE, BOB, version=2)
    set_member(scripts, BOB, "member:0:0m")

    (answer,) = scripts.accept(Sending(BOB, "r1", gate=f"{EPOCH}:1"))

    assert answer.code == RESTRICTED


# slow mode


def test_commit_slow_mode_limits_members_to_one_message_per_interval(scripts: Scripts) -> None:
    """The second message gets the time to wait. Other members and moderators are not affected."""
    scripts.open_chat(ALICE, BOB)
    set_member(scripts, ALICE, "owner:0")
    restrict(scripts, ":s600")

    assert send(scripts, BOB, "r1").code == COMMITTED
    answer = send(scripts, BOB, "r2")

    assert (answer.code, answer.why) == (RESTRICTED, WriteRestriction.TOO_FAST.value)
    assert 590_000 < answer.wait_ms <= 600_000
    assert send(scripts, BOB, "r1").code == KNOWN
    assert send(scripts, ALICE, "r3", is_member=True).code == COMMITTED
    assert send(scripts, ALICE, "r4").code == COMMITTED


def test_commit_slow_mode_counts_messages_within_one_batch(scripts: Scripts) -> None:
    """The second message of one call is refused."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, ":s600")
    gate = scripts.head()["gate"]

    codes = [
        answer.code
        for answer in scripts.accept(
            Sending(BOB, "r1", gate=gate, is_member=False),
            Sending(BOB, "r2", gate=gate, is_member=False),
        )
    ]

    assert codes == [COMMITTED, RESTRICTED]


def test_commit_slow_mode_accepts_the_next_message_after_the_interval(scripts: Scripts) -> None:
    """The interval starts at the timestamp of the previous message."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, ":s600")
    send(scripts, BOB, "r1")
    before = int(scripts.head()["w:bob"]) - 601_000_000
    scripts.redis.hset(scripts.keys.chat(CHAT), "w:bob", before)

    assert send(scripts, BOB, "r2").code == COMMITTED


def test_commit_slow_mode_applies_during_a_pending_fan_out(scripts: Scripts) -> None:
    """The second message is refused then too."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, ":s600")
    scripts.redis.hset(scripts.keys.chat(CHAT), "gate", f"{EPOCH}:1:s600:p")

    assert send(scripts, BOB, "r1").code == UNDELIVERED
    assert send(scripts, BOB, "r2").code == RESTRICTED


# changes of messages


@pytest.mark.parametrize("kind", ["edit", "reaction"])
def test_change_by_a_muted_member_is_refused(scripts: Scripts, kind: str) -> None:
    """Edits and reactions count as writing."""
    chat = Chat(scripts)
    chat.send(BOB)
    set_member(scripts, BOB, "member:0:0m")

    assert chat.commit_change(BOB, kind, 1, "x") == [12, WriteRestriction.MUTED.value]


def test_change_in_a_blocked_chat_allows_only_deletes(scripts: Scripts) -> None:
    """Neither user may edit or react, but both may delete their own messages."""
    chat = Chat(scripts)
    chat.send(BOB)
    restrict(scripts, ":b", version=int(scripts.head()["gate"].split(":")[1]) + 1)

    assert chat.commit_change(BOB, "edit", 1, "x") == [12, WriteRestriction.BLOCKED.value]
    assert chat.commit_change(ALICE, "reaction", 1, "x") == [12, WriteRestriction.BLOCKED.value]
    assert chat.commit_change(BOB, "delete", 1)[0] == 1


# retention


@pytest.mark.parametrize(
    ("known", "now"), [("", ":r60"), (":r60", ""), (":r60", ":r90"), ("", ":r60:s5")]
)
def test_commit_message_with_another_retention_is_returned(
    scripts: Scripts, known: str, now: str
) -> None:
    """A gateway without the change cannot commit a message with another expiry."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, now, version=2)

    answers = scripts.accept(Sending(ALICE, "r", gate=f"{EPOCH}:2{known}"))

    assert [answer.code for answer in answers] == [CLOSED]
    assert scripts.head()["seq"] == "0"


def test_commit_older_version_with_the_same_retention_is_committed(scripts: Scripts) -> None:
    """If only the members changed, the message is left to a fan-out as usual."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, ":r60", version=2)

    (answer,) = scripts.accept(Sending(ALICE, "r", gate=f"{EPOCH}:1:r60"))

    assert answer.code == UNDELIVERED
