"""commit_messages.lua: seqs and timestamps, refs, and refused messages."""

from __future__ import annotations

import time

import pytest

from chatserver.domain.ids import ChatId, UserId
from tests.integration.hot.support import (
    ALICE,
    BOB,
    CAROL,
    CHAT,
    CHAT_FULL,
    CLOSED,
    COMMITTED,
    EPOCH,
    FULL,
    GATE,
    GATEWAY,
    KNOWN,
    NOT_MEMBER,
    UNDELIVERED,
    Answer,
    Scripts,
    Sending,
    sends,
)

OTHER = ChatId("c2")


# seqs and timestamps


def test_commit_first_messages_number_from_one_without_gap(scripts: Scripts) -> None:
    """A chat's seqs are 1, 2, 3 in batches of any size."""
    scripts.open_chat(ALICE, BOB)

    answers = scripts.accept(*sends(3)) + scripts.accept(*sends(2, BOB))

    assert [answer.seq for answer in answers] == [1, 2, 3, 4, 5]
    assert {answer.code for answer in answers} == {COMMITTED}
    assert [seq for seq, _, _ in scripts.log()] == [1, 2, 3, 4, 5]
    assert scripts.head()["seq"] == "5"


def test_commit_batch_of_two_chats_numbers_each_separately(scripts: Scripts) -> None:
    """Chats in one batch have independent seqs."""
    scripts.open_chat(ALICE, BOB)
    scripts.open_chat(ALICE, BOB, chat=OTHER, seq=41)

    answers = scripts.accept(
        Sending(ALICE, "a"),
        Sending(ALICE, "a", chat=OTHER),
        Sending(BOB, "b"),
        Sending(BOB, "b", chat=OTHER),
    )

    assert [answer.seq for answer in answers] == [1, 42, 2, 43]
    assert (scripts.head()["seq"], scripts.head(OTHER)["seq"]) == ("2", "43")
    assert (scripts.head()["done"], scripts.head(OTHER)["done"]) == ("2", "43")


def test_commit_timestamps_rise_and_follow_the_clock(scripts: Scripts) -> None:
    """Messages of one batch have different timestamps, in microseconds."""
    scripts.open_chat(ALICE, BOB)
    before = time.time()

    answers = scripts.accept(*sends(20))

    stamps = [answer.ts for answer in answers]
    assert stamps == sorted(set(stamps))
    assert before - 1 < stamps[0] / 1e6 < time.time() + 1
    assert [ts for _, ts, _ in scripts.log()] == stamps
    assert scripts.head()["ts"] == str(stamps[-1])


def test_commit_clock_behind_the_chat_still_gives_rising_timestamps(scripts: Scripts) -> None:
    """Timestamps then continue one microsecond above the last one."""
    ahead = int((time.time() + 86_400) * 1e6)
    scripts.open_chat(ALICE, BOB, ts=ahead)

    answers = scripts.accept(*sends(2)) + scripts.accept(*sends(1, BOB))

    assert [answer.ts for answer in answers] == [ahead + 1, ahead + 2, ahead + 3]


def test_commit_keeps_blob_under_seq_and_timestamp(scripts: Scripts) -> None:
    """The log contains the message byte for byte."""
    scripts.open_chat(ALICE, BOB)

    (answer,) = scripts.accept(Sending(ALICE, "r", receiver="bob", tail='"body":"näive 🙂\\n"}'))

    assert scripts.log() == [(1, answer.ts, 'bob\n"body":"näive 🙂\\n"}')]


def test_commit_batch_adds_one_backlog_entry_of_its_committed_messages(scripts: Scripts) -> None:
    """The entry has the new messages in order and the gateway, but no retries."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r1", tail="one"))

    answers = scripts.accept(
        Sending(ALICE, "r2", tail="two"), Sending(ALICE, "r1"), Sending(BOB, "r3", tail="three")
    )

    entries = scripts.redis.xrange(scripts.keys.backlog(0))
    assert len(entries) == 2
    assert list(entries[1][1].items()) == [
        (b"g", GATEWAY.encode()),
        (b"2:%d" % answers[0].ts, b"\ntwo"),
        (b"3:%d" % answers[2].ts, b"\nthree"),
    ]
    assert scripts.waiting() == 3


# refs


def test_commit_same_ref_in_later_batch_returns_the_first_message(scripts: Scripts) -> None:
    """A retry gets seq, timestamp, mid and digest of the first message, and changes nothing."""
    scripts.open_chat(ALICE, BOB)
    (first,) = scripts.accept(Sending(ALICE, "r", mid="M1", digest="abcd"))

    (again,) = scripts.accept(Sending(ALICE, "r", mid="M2", digest="abcd"))

    assert again == Answer(KNOWN, place=f"1:{first.ts}:M1:abcd")
    assert len(scripts.log()) == len(scripts.inbox(BOB)) == 1
    assert scripts.waiting() == 1


def test_commit_same_ref_twice_in_one_batch_commits_once(scripts: Scripts) -> None:
    """A client that sends a message twice at once has one message."""
    scripts.open_chat(ALICE, BOB)

    first, again, later = scripts.accept(
        Sending(ALICE, "r"), Sending(ALICE, "r", mid="M2"), Sending(ALICE, "r2")
    )

    assert (first.code, again.code, later.code) == (COMMITTED, KNOWN, COMMITTED)
    assert again.place == f"1:{first.ts}:M1:d1"
    assert later.seq == 2


def test_commit_same_ref_with_another_body_returns_the_digest_of_the_first(
    scripts: Scripts,
) -> None:
    """The caller detects a conflict by the digest."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r", digest="f1"))

    (again,) = scripts.accept(Sending(ALICE, "r", digest="f2"))

    assert again.place.endswith(":f1")


def test_commit_same_ref_of_other_sender_or_chat_is_another_message(scripts: Scripts) -> None:
    """A ref is unique per sender and chat."""
    scripts.open_chat(ALICE, BOB)
    scripts.open_chat(ALICE, BOB, chat=OTHER)
    scripts.accept(Sending(ALICE, "r"))

    answers = scripts.accept(Sending(BOB, "r"), Sending(ALICE, "r", chat=OTHER))

    assert [answer.code for answer in answers] == [COMMITTED, COMMITTED]


def test_commit_ref_of_the_previous_generation_is_known(scripts: Scripts) -> None:
    """A retry is recognized in the next generation of refs too."""
    scripts.open_chat(ALICE, BOB)
    (first,) = scripts.accept(Sending(ALICE, "r"))
    (refs,) = [key.decode() for key in scripts.redis.keys("{p0}:refs-*:c1")]
    other = {scripts.keys.refs_even(CHAT), scripts.keys.refs_odd(CHAT)} - {refs}

    scripts.redis.rename(refs, other.pop())

    (again,) = scripts.accept(Sending(ALICE, "r", mid="M2"))
    assert again == Answer(KNOWN, place=f"1:{first.ts}:M1:d1")


def test_commit_ref_expires_after_its_time(scripts: Scripts) -> None:
    """Refs expire together, after at least their TTL and at most twice that."""
    scripts.open_chat(ALICE, BOB)

    scripts.accept(Sending(ALICE, "r"), ref_ttl_s=500)

    ttls = [scripts.redis.ttl(key) for key in scripts.redis.keys("{p0}:refs-*:c1")]
    assert all(500 < ttl <= 1000 for ttl in ttls), ttls
    assert len(ttls) == 1


# refusals


def test_commit_chat_that_is_not_open_is_closed(scripts: Scripts) -> None:
    """The chat must be loaded first; nothing is written for it."""
    answers = scripts.accept(*sends(2))

    assert answers == [Answer(CLOSED), Answer(CLOSED)]
    assert scripts.waiting() == 0
    assert set(scripts.redis.keys()) == {scripts.keys.checkpoint(0).encode()}


@pytest.mark.parametrize("gate", [GATE, "E2:1"])
def test_commit_chat_of_another_epoch_is_closed(scripts: Scripts, gate: str) -> None:
    """A chat must be loaded again in each epoch, whatever version the sender has."""
    scripts.open_chat(ALICE, BOB, epoch=EPOCH)

    answers = scripts.accept(Sending(ALICE, "r", gate=gate), epoch="E2")

    assert answers == [Answer(CLOSED)]
    assert scripts.log() == []


def test_commit_epoch_with_the_same_prefix_is_closed(scripts: Scripts) -> None:
    """E1 and E10 are different epochs."""
    scripts.open_chat(ALICE, BOB, epoch="E10")

    assert scripts.accept(Sending(ALICE, "r"), epoch="E1") == [Answer(CLOSED)]


def test_commit_member_with_stale_audience_is_committed_and_left_undelivered(
    scripts: Scripts,
) -> None:
    """With outdated recipients nothing is delivered; the chat is listed as undelivered."""
    scripts.open_chat(ALICE, BOB, version=2)
    before_ms = time.time() * 1000

    (answer,) = scripts.accept(Sending(ALICE, "r", gate=f"{EPOCH}:1"))

    assert (answer.code, answer.seq) == (UNDELIVERED, 1)
    assert scripts.inbox(ALICE) == scripts.inbox(BOB) == []
    ((name, score),) = scripts.redis.zrange(scripts.keys.undelivered(0), 0, -1, withscores=True)
    assert name == CHAT.encode()
    assert before_ms - 1000 < score < time.time() * 1000 + 1000


@pytest.mark.parametrize("to", [(), (ALICE, BOB)])
def test_commit_non_member_with_stale_audience_is_refused(
    scripts: Scripts, to: tuple[UserId, ...]
) -> None:
    """A user who left after the audience was read is refused (guarantee P7)."""
    scripts.open_chat(BOB, CAROL, version=2)

    (answer,) = scripts.accept(Sending(ALICE, "r", gate=f"{EPOCH}:1", to=to))

    assert answer == Answer(NOT_MEMBER)
    assert scripts.log() == []
    assert scripts.waiting() == 0


def test_commit_sender_outside_the_audience_is_checked(scripts: Scripts) -> None:
    """A matching chat version does not replace membership."""
    scripts.open_chat(ALICE, BOB)

    (answer,) = scripts.accept(Sending(CAROL, "r", to=(ALICE, BOB)))

    assert answer == Answer(NOT_MEMBER)
    assert scripts.inbox(ALICE) == []


def test_commit_retry_of_a_former_member_finds_the_committed_message(scripts: Scripts) -> None:
    """The ack was lost before the sender left. Refusing the retry would deny the message (P2)."""
    scripts.open_chat(ALICE, BOB)
    (first,) = scripts.accept(Sending(ALICE, "r"))
    scripts.redis.hdel(scripts.keys.members(CHAT), ALICE)
    scripts.redis.hset(scripts.keys.chat(CHAT), "gate", f"{EPOCH}:2")

    again, other = scripts.accept(Sending(ALICE, "r"), Sending(ALICE, "r2"))

    assert (again.code, again.place) == (KNOWN, f"1:{first.ts}:M1:d1")
    assert other == Answer(NOT_MEMBER)
    assert len(scripts.log()) == 1


def test_commit_full_backlog_refuses_and_counts_correctly_afterwards(scripts: Scripts) -> None:
    """Refused messages are not counted; sends continue when there is space."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(*sends(3), backlog_max=5)

    refused = scripts.accept(*sends(3, BOB), backlog_max=5)
    accepted = scripts.accept(*sends(2, BOB), backlog_max=5)

    assert refused == [Answer(FULL)] * 3
    assert [answer.code for answer in accepted] == [COMMITTED, COMMITTED]
    assert [answer.seq for answer in accepted] == [4, 5]
    assert scripts.waiting() == 5


def test_commit_full_chat_refuses_its_messages_only(scripts: Scripts) -> None:
    """One chat cannot fill the backlog. Its sends continue when some messages are stored."""
    scripts.open_chat(ALICE, BOB)
    scripts.open_chat(ALICE, BOB, chat=OTHER)

    first = scripts.accept(*sends(5), chat_backlog_max=3)
    other = scripts.accept(Sending(ALICE, "x", chat=OTHER), chat_backlog_max=3)
    scripts.redis.hset(scripts.keys.chat(CHAT), "stored", 1)
    later = scripts.accept(*sends(2, BOB), chat_backlog_max=3)

    assert [answer.code for answer in first] == [COMMITTED] * 3 + [CHAT_FULL] * 2
    assert [answer.code for answer in other] == [COMMITTED]
    assert [answer.code for answer in later] == [COMMITTED, CHAT_FULL]
    assert [answer.seq for answer in later[:1]] == [4]
    assert scripts.waiting() == 5


def test_commit_mixed_batch_counts_only_committed_messages(scripts: Scripts) -> None:
    """Retries, non-members and closed chats do not change the count of the backlog."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r"))

    answers = scripts.accept(
        Sending(ALICE, "r"),
        Sending(CAROL, "x"),
        Sending(ALICE, "y", chat=OTHER),
        Sending(ALICE, "r2"),
    )

    assert [answer.code for answer in answers] == [KNOWN, NOT_MEMBER, CLOSED, COMMITTED]
    assert scripts.waiting() == 2
