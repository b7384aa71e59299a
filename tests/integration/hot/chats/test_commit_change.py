"""commit_change.lua: edits, deletes, reactions and pins, compared with the rules in Python."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatserver.domain.ids import UserId
from chatserver.domain.message_change_types import ChangeOutcome
from chatserver.domain.messages import format_ref_record, reference_key
from chatserver.protocol import codec, frames
from chatserver.protocol.message_change_effects import MESSAGE_CHANGE_KINDS, apply_entry
from tests.integration.hot.support import (
    ALICE,
    BOB,
    CAROL,
    CHAT,
    COMMITTED,
    GATE,
    KNOWN,
    Scripts,
    Sending,
)
from tests.integration.workers.change_support import Chat

FULL = 6  # code of commit_change.lua for a full backlog
DONE = ChangeOutcome.COMMITTED.value


@pytest.fixture
def chat(scripts: Scripts) -> Chat:
    """An open chat."""
    return Chat(scripts)


# committed changes


def test_change_edit_has_a_log_entry_and_an_overlay(chat: Chat) -> None:
    """The log has the edit and the overlay the changed message."""
    target = chat.send(body="one")

    code, seq, ts, _ = chat.commit_change(ALICE, "edit", target, "two")

    assert (code, seq) == (DONE, target + 1)
    assert [row[0] for row in chat.scripts.log()] == [target, seq]
    over = chat.get_overlay(target)
    assert over is not None
    assert (over.body, over.rev, over.edited_ts, over.edited_seq) == ("two", seq, ts, seq)
    assert chat.scripts.head()["seq"] == str(seq)
    assert chat.scripts.head()["ts"] == str(ts)


def test_change_entry_waits_for_fan_out_and_persistence(chat: Chat) -> None:
    """The entry is listed like an undelivered message."""
    target = chat.send()
    before = chat.scripts.count_backlog()

    _, seq, ts, _ = chat.commit_change(BOB, "reaction", target, "👍")

    assert chat.scripts.undelivered() == [CHAT]
    assert chat.scripts.head()["gate"] == f"{GATE}:p"
    assert chat.scripts.count_backlog() == before + 1
    target_ts = chat.scripts.log()[0][1]
    place, blob = chat.backlog()[-1]
    assert place == f"{seq}:{ts}".encode()
    assert blob.startswith(f' {target_ts} 0\n"chat":'.encode())


def test_change_timestamps_are_exact(chat: Chat) -> None:
    """Lua's number format does not round the timestamp."""
    target = chat.send()
    _, first, edited_ts, _ = chat.commit_change(ALICE, "edit", target, "two")
    chat.commit_change(BOB, "reaction", target, "👍")

    over = chat.get_overlay(target)

    log = {seq: ts for seq, ts, _ in chat.scripts.log()}
    assert over is not None
    assert (over.ts, over.edited_ts, log[first]) == (log[target], edited_ts, edited_ts)


@pytest.mark.parametrize(
    "body", ['"quoted" \\ /', "line\nbreak\ttab", "\U0001f600 ünï", "x" * 4000]
)
def test_change_keeps_the_body_unchanged(chat: Chat, body: str) -> None:
    """The script encodes the body again without changes."""
    target = chat.send(body=body)
    chat.commit_change(BOB, "reaction", target, "👍")
    over = chat.get_overlay(target)

    chat.commit_change(ALICE, "edit", target, body + "!")

    edited = chat.get_overlay(target)
    assert over is not None and edited is not None
    assert (over.body, edited.body) == (body, body + "!")


def test_change_after_a_lost_edit_keeps_the_entry_that_has_its_seq(chat: Chat) -> None:
    """After a loss of Redis, another entry may have the seq of a lost edit. Its ts differs."""
    target = chat.send(body="one")
    other = chat.send(BOB, body="other")
    chat.commit_change(ALICE, "edit", target, "two")
    keys, lost_ts = chat.scripts.keys, 77
    stale = json.loads(chat.scripts.redis.hget(keys.over(CHAT), str(target)))
    stale |= {"edited_seq": other, "edited_ts": lost_ts}
    chat.scripts.redis.hset(keys.over(CHAT), str(target), json.dumps(stale))

    assert chat.commit_change(ALICE, "edit", target, "three")[0] == DONE

    assert chat.get_overlay(other) is None
    assert other in [row[0] for row in chat.scripts.log()]
    assert f" {lost_ts}\n".encode() not in chat.backlog()[-1][1]


@pytest.mark.parametrize("kind", ["edit", "reaction", "delete"])
@pytest.mark.parametrize("is_stored", [False, True])
def test_change_of_another_message_at_the_seq_is_refused(
    chat: Chat, kind: str, is_stored: bool
) -> None:
    """Redis may have lost the message that the sender means, and assigned its seq again."""
    target = chat.send()
    base: dict[str, Any] = {}
    if is_stored:
        (_, ts, tail), head = chat.scripts.log()[0], chat.scripts.head()["seq"]
        message = codec.join_message(target, ts, tail.lstrip("\n").encode())
        base = {"base": message, "asked": int(head)}
        chat.scripts.redis.delete(chat.scripts.keys.log(CHAT))

    refused = chat.commit_change(ALICE, kind, target, "x", target_ref="s9", **base)
    code, *_ = chat.commit_change(ALICE, kind, target, "x", target_ref="s1", **base)

    assert (refused, code) == ([ChangeOutcome.NO_MESSAGE.value], DONE)


def test_change_delete_leaves_a_tombstone_without_text(chat: Chat) -> None:
    """Neither log nor overlay has text of a deleted message or its edits."""
    target = chat.send(body="secret one")
    chat.commit_change(ALICE, "edit", target, "secret two")
    edit = chat.commit_change(ALICE, "edit", target, "secret three")[1]
    chat.commit_change(BOB, "reaction", target, "👍")

    seq = chat.commit_change(ALICE, "delete", target)[1]

    over = chat.get_overlay(target)
    assert over is not None
    assert (over.body, over.deleted, over.rev, over.reactions) == ("", True, seq, {})
    assert (over.sender, over.seq, over.kind) == (ALICE, target, "text")
    blanked = chat.get_overlay(edit)
    assert blanked is not None
    assert (blanked.body, blanked.deleted, blanked.kind, blanked.target) == (
        "",
        True,
        "edit",
        target,
    )
    keys = chat.scripts.keys
    left = str(chat.scripts.redis.xrange(keys.log(CHAT))) + str(
        chat.scripts.redis.hgetall(keys.over(CHAT))
    )
    assert "secret" not in left


def test_change_second_edit_removes_the_text_of_the_first(chat: Chat) -> None:
    """Only the newest edit has text. The backlog entry refers to the older one."""
    target = chat.send()
    _, first, first_ts, _ = chat.commit_change(ALICE, "edit", target, "two")

    seq = chat.commit_change(ALICE, "edit", target, "three")[1]

    blanked = chat.get_overlay(first)
    assert blanked is not None
    assert (blanked.deleted, blanked.body, blanked.rev) == (True, "", seq)
    assert chat.backlog()[-1][1].split(b"\n")[0].split() == [
        str(chat.scripts.log()[0][1]).encode(),
        str(first_ts).encode(),
    ]


def test_change_reaction_replaces_the_user_s_earlier_one(chat: Chat) -> None:
    """Each user has one reaction; an empty one removes it."""
    target = chat.send()
    for user, emoji in ((BOB, "👍"), (CAROL, "🎉"), (BOB, "👎"), (CAROL, "")):
        chat.commit_change(user, "reaction", target, emoji)

    over = chat.get_overlay(target)

    assert over is not None
    assert over.reactions == {BOB: "👎"}
    chat.commit_change(BOB, "reaction", target, "")
    assert b"reactions" not in chat.scripts.redis.hget(chat.scripts.keys.over(CHAT), target)


def test_change_pin_adds_an_entry_and_does_not_change_the_message(chat: Chat) -> None:
    """The overlay is not written. A pin entry cannot be pinned itself."""
    target = chat.send()
    chat.commit_change(ALICE, "edit", target, "two")
    over = chat.get_overlay(target)

    code, seq, _, size = chat.commit_change(CAROL, "pin", target)

    assert (code, size) == (DONE, 0)
    assert chat.get_overlay(target) == over
    assert [row[0] for row in chat.scripts.log()][-2:] == [seq - 1, seq]
    assert chat.commit_change(CAROL, "pin", seq) == [ChangeOutcome.NO_MESSAGE.value]


def test_change_edit_of_an_expiring_message_expires_with_it(chat: Chat) -> None:
    """An edit does not keep its text longer than the message."""
    expires_at = int(time.time()) + 100
    target = chat.send(expires_at=expires_at)

    chat.commit_change(ALICE, "edit", target, "two")

    entry = json.loads("{" + chat.scripts.log()[-1][2].partition("\n")[2])
    over = chat.get_overlay(target)
    assert entry["expires_at"] == expires_at
    assert over is not None and over.expires_at == expires_at


# permissions and refused changes


@pytest.mark.parametrize(
    ("sender", "kind", "role", "outcome"),
    [
        (ALICE, "edit", "member", ChangeOutcome.COMMITTED),
        (BOB, "edit", "owner", ChangeOutcome.FORBIDDEN),
        (ALICE, "delete", "member", ChangeOutcome.COMMITTED),
        (BOB, "delete", "member", ChangeOutcome.FORBIDDEN),
        (BOB, "delete", "admin", ChangeOutcome.COMMITTED),
        (BOB, "delete", "owner", ChangeOutcome.COMMITTED),
        (BOB, "reaction", "member", ChangeOutcome.COMMITTED),
        (BOB, "pin", "owner", ChangeOutcome.COMMITTED),
        (BOB, "pin", "admin", ChangeOutcome.COMMITTED),
        (ALICE, "pin", "member", ChangeOutcome.FORBIDDEN),
        (BOB, "unpin", "admin", ChangeOutcome.COMMITTED),
        (ALICE, "unpin", "member", ChangeOutcome.FORBIDDEN),
    ],
)
def test_change_is_allowed_by_role_and_sender(
    chat: Chat, sender: UserId, kind: str, role: str, outcome: ChangeOutcome
) -> None:
    """Edit: the sender. Delete: the sender, owner or admin. Pin: owner or admin. React: members."""
    target = chat.send(ALICE)
    chat.set_role(sender, role, 0)

    assert chat.commit_change(sender, kind, target, "x")[0] == outcome.value


def test_change_that_is_refused_changes_nothing(chat: Chat) -> None:
    """It uses no seq and writes no overlay, ref or backlog entry."""
    target = chat.send(ALICE)
    before = (chat.scripts.head(), chat.scripts.log(), chat.scripts.count_backlog(), chat.backlog())

    assert (
        chat.commit_change(BOB, "edit", target, "two", ref="r")[0] == ChangeOutcome.FORBIDDEN.value
    )

    after = (chat.scripts.head(), chat.scripts.log(), chat.scripts.count_backlog(), chat.backlog())
    assert after == before
    keys = chat.scripts.keys
    assert not chat.scripts.redis.exists(keys.over(CHAT), keys.revs(CHAT))
    assert reference_key(BOB, "r") not in chat.scripts.refs()


def test_change_by_a_non_member_is_refused(chat: Chat) -> None:
    """The script checks membership when it assigns the seq (guarantee P7)."""
    target = chat.send()

    assert chat.commit_change(UserId("dave"), "reaction", target, "x") == [
        ChangeOutcome.NOT_MEMBER.value
    ]


@pytest.mark.parametrize("kind", sorted(MESSAGE_CHANGE_KINDS))
def test_change_of_a_deleted_message_is_refused(chat: Chat, kind: str) -> None:
    """A deleted message cannot be changed; the reply names the change that deleted it."""
    target = chat.send()
    deletion = chat.commit_change(ALICE, "delete", target)[1]

    assert chat.commit_change(ALICE, kind, target, "x") == [ChangeOutcome.DELETED.value, deletion]


def test_change_of_an_expired_message_is_refused(chat: Chat) -> None:
    """An expired message is deleted, even if a tier still has it."""
    target = chat.send(expires_at=int(time.time()) - 1)

    assert chat.commit_change(BOB, "reaction", target, "x") == [ChangeOutcome.DELETED.value, 0]


def test_change_of_an_unknown_seq_or_of_a_change_is_refused(chat: Chat) -> None:
    """Only existing messages can be changed."""
    target = chat.send()
    entry = chat.commit_change(BOB, "reaction", target, "x")[1]

    assert chat.commit_change(ALICE, "delete", entry) == [ChangeOutcome.NO_MESSAGE.value]
    assert chat.commit_change(ALICE, "edit", entry + 1, "x") == [ChangeOutcome.NO_MESSAGE.value]


@pytest.mark.parametrize(
    ("history", "outcome"), [("joined", ChangeOutcome.NO_MESSAGE), ("all", ChangeOutcome.COMMITTED)]
)
def test_change_of_a_message_before_the_join_needs_full_history(
    chat: Chat, history: str, outcome: ChangeOutcome
) -> None:
    """A member cannot react to a message that they may not read."""
    target = chat.send()
    chat.scripts.redis.hset(chat.scripts.keys.chat(CHAT), "history", history)
    chat.set_role(BOB, "member", target + 1)

    assert chat.commit_change(BOB, "reaction", target, "x")[0] == outcome.value


def test_change_reactions_are_bounded(chat: Chat) -> None:
    """One more user is refused, but users with a reaction may change it."""
    target = chat.send()
    for user in (ALICE, BOB):
        chat.commit_change(user, "reaction", target, "1", reactions_max=2)

    assert chat.commit_change(CAROL, "reaction", target, "1", reactions_max=2) == [10]
    assert chat.commit_change(CAROL, "reaction", target, "", reactions_max=2)[0] == DONE
    assert chat.commit_change(BOB, "reaction", target, "2", reactions_max=2)[0] == DONE


def test_change_closed_chat_or_full_backlog_is_refused(chat: Chat) -> None:
    """It is refused like a send."""
    target = chat.send()

    assert chat.commit_change(ALICE, "edit", target, "x", epoch="E2") == [
        ChangeOutcome.CLOSED.value
    ]
    assert chat.commit_change(ALICE, "edit", target, "x", backlog_max=1) == [FULL]


# refs


def test_change_again_with_the_same_ref_returns_the_first_change(chat: Chat) -> None:
    """A retry changes nothing and gets the first result (guarantee P2)."""
    target = chat.send()
    _, seq, ts, _ = chat.commit_change(ALICE, "edit", target, "two", ref="r")
    chat.commit_change(ALICE, "delete", target)

    code, place = chat.commit_change(ALICE, "edit", target, "two", ref="r")

    assert (code, place) == (ChangeOutcome.KNOWN.value, format_ref_record(seq, ts, "M2", "d2"))


def test_change_and_send_share_refs(chat: Chat) -> None:
    """The ref of a message is known to a later change, and vice versa."""
    target = chat.send()  # the ref of the message is s1

    assert chat.commit_change(ALICE, "edit", target, "x", ref="s1")[0] == ChangeOutcome.KNOWN.value
    chat.commit_change(ALICE, "edit", target, "x", ref="taken")
    (answer,) = chat.scripts.accept(Sending(ALICE, "taken", to=()))
    assert answer.code == KNOWN


# messages that are not in Redis


def base_of(seq: int, **changes: Any) -> bytes:
    """Return a message as stored in the warm tier."""
    fields = {"mid": "M", "sender": ALICE, "ref": "r", "kind": "text", "body": "warm", **changes}
    return codec.encode(frames.Message(seq, 1000 + seq, CHAT, **fields))


def test_change_of_an_old_message_requests_it_from_the_warm_tier(chat: Chat) -> None:
    """A message that is no longer in the log is read from the warm tier once."""
    for _ in range(5):
        chat.send()
    chat.trim(5, log_max=2)

    assert chat.commit_change(ALICE, "edit", 1, "two") == [ChangeOutcome.ELSEWHERE.value, 5]
    assert chat.commit_change(ALICE, "edit", 1, "two", base=base_of(1), asked=5)[:2] == [DONE, 6]
    over = chat.get_overlay(1)
    assert over is not None
    assert (over.body, over.ts, over.rev) == ("two", 1001, 6)


def test_change_prefers_the_overlay_to_the_base(chat: Chat) -> None:
    """The message read from the warm tier may be older than the overlay."""
    for _ in range(5):
        chat.send()
    chat.trim(5, log_max=2)
    chat.commit_change(ALICE, "edit", 1, "newer", base=base_of(1), asked=5)

    chat.commit_change(BOB, "reaction", 1, "x", base=base_of(1), asked=5)

    over = chat.get_overlay(1)
    assert over is not None
    assert (over.body, over.reactions) == ("newer", {BOB: "x"})


def test_change_base_that_may_be_outdated_is_requested_again(chat: Chat) -> None:
    """A change that was applied and trimmed between two calls is not lost."""
    for _ in range(5):
        chat.send()
    chat.trim(5, log_max=2)
    stale, asked = base_of(1), 5
    chat.commit_change(ALICE, "edit", 1, "newer", base=stale, asked=asked)
    for _ in range(5):
        chat.send()
    chat.trim(11, log_max=2)
    assert chat.get_overlay(1) is None

    assert chat.commit_change(BOB, "reaction", 1, "x", base=stale, asked=asked) == [7, 11]


def test_change_delete_of_an_old_edit_marks_it_empty(chat: Chat) -> None:
    """The overlay marks the text of an edit in the warm tier as deleted."""
    for _ in range(5):
        chat.send()
    chat.trim(5, log_max=2)
    base = base_of(1, rev=3, edited_seq=3, edited_ts=1003)

    chat.commit_change(ALICE, "delete", 1, base=base, asked=5)

    assert chat.scripts.redis.hget(chat.scripts.keys.over(CHAT), 3) == b"6"
    assert chat.backlog()[-1][1].split(b"\n")[0] == b" 1001 1003"


# trimming of the overlay


def test_change_of_an_edit_that_only_the_warm_tier_has_is_refused(chat: Chat) -> None:
    """The overlay has only the rev of such an edit, but an edit is not a message."""
    target = chat.send()
    _, edit, *_ = chat.commit_change(ALICE, "edit", target, "two")
    chat.scripts.redis.xdel(chat.scripts.keys.log(CHAT), f"{edit}-0")
    chat.commit_change(ALICE, "edit", target, "three")

    answers = [chat.commit_change(ALICE, kind, edit, "x")[0] for kind in MESSAGE_CHANGE_KINDS]

    assert answers == [ChangeOutcome.NO_MESSAGE.value] * len(MESSAGE_CHANGE_KINDS)


def test_overlay_stays_until_its_last_change_is_trimmed_from_the_log(chat: Chat) -> None:
    """It stays after it is persisted: a reader may have read the warm tier before the change."""
    target = chat.send()
    edit = chat.commit_change(ALICE, "edit", target, "two")[1]
    for _ in range(8):
        chat.send()

    chat.trim(10, log_max=9)
    assert chat.get_overlay(target) is not None
    chat.trim(edit - 1, log_max=1)
    assert chat.get_overlay(target) is not None
    chat.trim(10, log_max=8)

    assert chat.get_overlay(target) is None
    assert not chat.scripts.redis.exists(chat.scripts.keys.revs(CHAT))


# comparison with the Python rule


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([ALICE, BOB, CAROL]),
            st.sampled_from(["edit", "reaction", "reaction", "delete"]),
            st.sampled_from(["", "a", "ß", "\U0001f600"]),
        ),
        max_size=8,
    )
)
def test_change_agrees_with_the_rule_in_python(
    chat: Chat, steps: list[tuple[UserId, str, str]]
) -> None:
    """The script and `apply_entry` compute the same message from the same entries."""
    target = chat.send()
    seq, ts, blob = chat.scripts.log()[-1]
    expected = codec.decode_message(codec.join_message(seq, ts, blob.partition("\n")[2].encode()))
    for sender, kind, body in steps:
        code, *rest = chat.commit_change(sender, kind, target, body)
        if code == COMMITTED:
            entry = frames.Message(
                rest[0], rest[1], CHAT, "M2", sender, "r", kind, body, target=target
            )
            expected = apply_entry(expected, entry)
            assert chat.get_overlay(target) == expected
