"""accept.lua, amend.lua and set_write_policy.lua: who may not write, or not yet."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import UserId
from chatserver.domain.moderation import Restraint
from tests.integration.hot.support import (
    ALICE,
    BOB,
    CHAT,
    COMMITTED,
    EPOCH,
    KNOWN,
    RESTRAINED,
    UNDELIVERED,
    Answer,
    Scripts,
    Sending,
)
from tests.integration.workers.amend_support import Chat

pytest_plugins = ["tests.integration.hot.fixtures"]

CLOSED, DONE, LATER = 0, 1, 2
FAR_AWAY_S = 4_000_000_000


def restrict(scripts: Scripts, strict: str, version: int = 1, epoch: str = EPOCH) -> int:
    """Run set_write_policy.lua."""
    reply: int = scripts.run(
        "set_write_policy",
        {"chat": scripts.keys.chat(CHAT)},
        {"epoch": epoch, "version": version, "strict": strict},
    )
    return reply


def set_standing(scripts: Scripts, user: UserId, value: str) -> None:
    scripts.redis.hset(scripts.keys.members(CHAT), user, value)


def say(scripts: Scripts, sender: UserId, ref: str, *, is_listed: bool = False) -> Answer:
    """Send as a gateway does that knows the gate, and has the sender looked up."""
    gate = scripts.head()["gate"].removesuffix(":p")
    (answer,) = scripts.accept(Sending(sender, ref, gate=gate, is_member=is_listed))
    return answer


# blocked


def test_restrict_gate_makes_an_older_list_of_members_worthless(scripts: Scripts) -> None:
    """A gateway that does not know of the block cannot commit a message."""
    scripts.open_chat(ALICE, BOB)

    assert restrict(scripts, ":b", version=2) == DONE
    (answer,) = scripts.accept(Sending(ALICE, "r", gate=f"{EPOCH}:1"))

    assert (answer.code, answer.why) == (RESTRAINED, Restraint.BLOCKED.value)
    assert scripts.head()["seq"] == "0"


def test_restrict_older_version_changes_nothing(scripts: Scripts) -> None:
    """A late repeat of a block does not undo what came after it."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, "", version=3)

    assert restrict(scripts, ":b", version=2) == LATER
    assert scripts.head()["gate"] == f"{EPOCH}:3"


def test_restrict_pending_gate_stays_pending(scripts: Scripts) -> None:
    """Pending deliveries are kept."""
    scripts.open_chat(ALICE, BOB)
    scripts.redis.hset(scripts.keys.chat(CHAT), "gate", f"{EPOCH}:1:p")

    assert restrict(scripts, ":s5") == DONE
    assert scripts.head()["gate"] == f"{EPOCH}:1:s5:p"


def test_restrict_chat_of_another_epoch_is_closed(scripts: Scripts) -> None:
    """It must be loaded, with the state of the directory."""
    scripts.open_chat(ALICE, BOB)

    assert restrict(scripts, ":b", epoch="E2") == CLOSED


def test_accept_retry_of_what_was_committed_before_the_block_is_known(scripts: Scripts) -> None:
    """A message that was acked stays so: its retry is not refused (invariant I11)."""
    scripts.open_chat(ALICE, BOB)
    assert say(scripts, ALICE, "r1").code == COMMITTED
    restrict(scripts, ":b", version=2)

    assert say(scripts, ALICE, "r1").code == KNOWN
    assert say(scripts, ALICE, "r2").code == RESTRAINED


# muted


@pytest.mark.parametrize("until", [0, FAR_AWAY_S])
def test_accept_muted_member_is_refused_and_the_others_are_not(
    scripts: Scripts, until: int
) -> None:
    """For a time or permanently; the error has the duration, too."""
    scripts.open_chat(ALICE, BOB)
    set_standing(scripts, BOB, f"member:0:{until}m")

    answer = say(scripts, BOB, "r1")

    assert (answer.code, answer.why) == (RESTRAINED, Restraint.MUTED.value)
    assert (answer.wait_ms > 0) == (until > 0)
    assert say(scripts, ALICE, "r2").code == COMMITTED


@pytest.mark.parametrize("value", ["member:0:1m", "admin:0:0m", "owner:0:0m", "member:0"])
def test_accept_member_whose_mute_is_over_or_who_moderates_is_taken(
    scripts: Scripts, value: str
) -> None:
    """An expired mute has no effect, and moderators are never muted."""
    scripts.open_chat(ALICE, BOB)
    set_standing(scripts, BOB, value)

    assert say(scripts, BOB, "r1").code == COMMITTED


def test_accept_stale_gate_muted_member_is_refused(scripts: Scripts) -> None:
    """A gateway with an outdated list is refused: the chat version differs."""
    scripts.open_chat(ALICE, BOB, version=2)
    set_standing(scripts, BOB, "member:0:0m")

    (answer,) = scripts.accept(Sending(BOB, "r1", gate=f"{EPOCH}:1"))

    assert answer.code == RESTRAINED


# slow mode


def test_accept_slow_chat_takes_one_message_at_a_time(scripts: Scripts) -> None:
    """The second message gets the time to wait; other members and moderators are not affected."""
    scripts.open_chat(ALICE, BOB)
    set_standing(scripts, ALICE, "owner:0")
    restrict(scripts, ":s600")

    assert say(scripts, BOB, "r1").code == COMMITTED
    answer = say(scripts, BOB, "r2")

    assert (answer.code, answer.why) == (RESTRAINED, Restraint.TOO_FAST.value)
    assert 590_000 < answer.wait_ms <= 600_000
    assert say(scripts, BOB, "r1").code == KNOWN
    assert say(scripts, ALICE, "r3", is_listed=True).code == COMMITTED
    assert say(scripts, ALICE, "r4").code == COMMITTED


def test_accept_slow_chat_counts_within_one_batch(scripts: Scripts) -> None:
    """Two messages of one call are two messages."""
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

    assert codes == [COMMITTED, RESTRAINED]


def test_accept_slow_chat_takes_the_next_one_when_the_time_is_over(scripts: Scripts) -> None:
    """The time counts from the message's own timestamp."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, ":s600")
    say(scripts, BOB, "r1")
    before = int(scripts.head()["w:bob"]) - 601_000_000
    scripts.redis.hset(scripts.keys.chat(CHAT), "w:bob", before)

    assert say(scripts, BOB, "r2").code == COMMITTED


def test_accept_pending_slow_chat_keeps_its_order(scripts: Scripts) -> None:
    """While a fan-out is pending, slow mode holds all the same."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, ":s600")
    scripts.redis.hset(scripts.keys.chat(CHAT), "gate", f"{EPOCH}:1:s600:p")

    assert say(scripts, BOB, "r1").code == UNDELIVERED
    assert say(scripts, BOB, "r2").code == RESTRAINED


# changes of messages


@pytest.mark.parametrize("kind", ["edit", "reaction"])
def test_amend_of_one_who_may_not_write_is_refused(scripts: Scripts, kind: str) -> None:
    """An edit or a reaction would be a way to write."""
    chat = Chat(scripts)
    chat.say(BOB)
    set_standing(scripts, BOB, "member:0:0m")

    assert chat.amend(BOB, kind, 1, "x") == [12, Restraint.MUTED.value]


def test_amend_in_a_blocked_chat_lets_only_take_back(scripts: Scripts) -> None:
    """Neither may edit or react; both may still delete what they wrote."""
    chat = Chat(scripts)
    chat.say(BOB)
    restrict(scripts, ":b", version=int(scripts.head()["gate"].split(":")[1]) + 1)

    assert chat.amend(BOB, "edit", 1, "x") == [12, Restraint.BLOCKED.value]
    assert chat.amend(ALICE, "reaction", 1, "x") == [12, Restraint.BLOCKED.value]
    assert chat.amend(BOB, "delete", 1)[0] == 1


# retention


@pytest.mark.parametrize(
    ("known", "now"), [("", ":r60"), (":r60", ""), (":r60", ":r90"), ("", ":r60:s5")]
)
def test_accept_message_made_for_another_retention_has_to_be_made_again(
    scripts: Scripts, known: str, now: str
) -> None:
    """A gateway that does not know of the change cannot commit a message that lives too long."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, now, version=2)

    answers = scripts.accept(Sending(ALICE, "r", gate=f"{EPOCH}:2{known}"))

    assert [answer.code for answer in answers] == [CLOSED]
    assert scripts.head()["seq"] == "0"


def test_accept_older_gate_of_the_same_retention_is_taken(scripts: Scripts) -> None:
    """Only who is in the chat has changed: as ever, somebody else delivers it."""
    scripts.open_chat(ALICE, BOB)
    restrict(scripts, ":r60", version=2)

    (answer,) = scripts.accept(Sending(ALICE, "r", gate=f"{EPOCH}:1:r60"))

    assert answer.code == UNDELIVERED
