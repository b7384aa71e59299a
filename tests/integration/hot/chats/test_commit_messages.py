"""commit_messages.lua: seqs and timestamps, refs, and refused messages."""

from __future__ import annotations

import time

import pytest

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.messages import reference_key
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
    packed,
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


# refs


def test_commit_same_ref_in_later_batch_returns_the_first_message(scripts: Scripts) -> None:
    """A retry gets seq, timestamp, mid and digest of the first message, and changes nothing."""
    scripts.open_chat(ALICE, BOB)
    (first,) = scripts.accept(Sending(ALICE, "r", mid="M1", digest="abcd"))

    (again,) = scripts.accept(Sending(ALICE, "r", mid="M2", digest="abcd"))

    assert again == Answer(KNOWN, place=f"1:{first.ts}:M1:abcd")
    assert len(scripts.log()) == len(scripts.inbox(BOB)) == scripts.count_backlog() == 1
    assert list(scripts.refs().values()) == [f"1:{first.ts}:M1:abcd"]


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


def test_commit_known_refs_among_new_ones_keep_the_codes_in_order(scripts: Scripts) -> None:
    """A batch may have refs from before, refs of its own messages, and new ones, in any order."""
    scripts.open_chat(ALICE, BOB)
    old = scripts.accept(*sends(3, stem="old"))
    batch = ["new1", "old2", "new1", "new2", "old1", "new2", "old3", "new3"]

    answers = scripts.accept(*[Sending(ALICE, ref, mid=f"M-{ref}") for ref in batch])

    new = [answers[0], answers[3], answers[7]]
    assert [(answer.code, answer.seq) for answer in new] == [(COMMITTED, n) for n in (4, 5, 6)]
    assert [answer.place for answer in answers if answer.code == KNOWN] == [
        f"2:{old[1].ts}:M2:d1",
        f"4:{new[0].ts}:M-new1:d1",
        f"1:{old[0].ts}:M1:d1",
        f"5:{new[1].ts}:M-new2:d1",
        f"3:{old[2].ts}:M3:d1",
    ]
    assert [answer.inboxes[1].seq for answer in new] == [4, 5, 6]
    assert len(scripts.refs()) == 6


def test_commit_in_an_evicted_chat_with_refs_is_closed(scripts: Scripts) -> None:
    """Only a load knows the chat's seq; the refs alone do not."""
    scripts.redis.hset(scripts.keys.chat(CHAT), reference_key(ALICE, "old"), packed("1:5:M0:d0"))

    assert scripts.accept(Sending(ALICE, "old")) == [Answer(CLOSED)]


# refusals


def test_commit_chat_that_is_not_open_is_closed(scripts: Scripts) -> None:
    """The chat must be loaded first; nothing is written for it."""
    answers = scripts.accept(*sends(2))

    assert answers == [Answer(CLOSED), Answer(CLOSED)]
    assert scripts.redis.keys() == []


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
    assert scripts.refs() == {}
    assert scripts.count_backlog() == 0


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


def test_commit_full_backlog_refuses_until_there_is_space(scripts: Scripts) -> None:
    """The limit counts calls, not messages. A refused message changes nothing."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(*sends(3), backlog_max=2)
    scripts.accept(*sends(1, BOB), backlog_max=2)
    before = scripts.redis.hgetall(scripts.keys.chat(CHAT))

    refused = scripts.accept(*sends(3, CAROL), *sends(2, BOB, "x"), backlog_max=2)
    unchanged = scripts.redis.hgetall(scripts.keys.chat(CHAT))
    scripts.redis.xtrim(scripts.keys.backlog(0), maxlen=1, approximate=False)
    accepted = scripts.accept(*sends(2, BOB, "x"), backlog_max=2)

    assert refused == [Answer(FULL)] * 5
    assert unchanged == before
    assert [(answer.code, answer.seq) for answer in accepted] == [(COMMITTED, 5), (COMMITTED, 6)]
    assert scripts.count_backlog() == 2


def test_commit_with_a_full_backlog_still_acks_known_refs(scripts: Scripts) -> None:
    """The message is in Redis, and refusing its retry would deny it (P2)."""
    scripts.open_chat(ALICE, BOB)
    (first,) = scripts.accept(Sending(ALICE, "r"))

    again, other = scripts.accept(Sending(ALICE, "r"), Sending(ALICE, "r2"), backlog_max=1)

    assert again == Answer(KNOWN, place=f"1:{first.ts}:M1:d1")
    assert other == Answer(FULL)


def test_commit_without_a_limit_does_not_check_the_backlog(scripts: Scripts) -> None:
    """The caller leaves the check out of most calls."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(*sends(1), backlog_max=1)

    (answer,) = scripts.accept(*sends(1, BOB), backlog_max=None)

    assert (answer.code, scripts.count_backlog()) == (COMMITTED, 2)


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


def test_commit_mixed_batch_adds_only_committed_messages(scripts: Scripts) -> None:
    """Retries, non-members and closed chats add nothing to the backlog."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r"))

    answers = scripts.accept(
        Sending(ALICE, "r"),
        Sending(CAROL, "x"),
        Sending(ALICE, "y", chat=OTHER),
        Sending(ALICE, "r2"),
    )

    assert [answer.code for answer in answers] == [KNOWN, NOT_MEMBER, CLOSED, COMMITTED]
    _, (_, last) = scripts.redis.xrange(scripts.keys.backlog(0))
    assert list(last) == [b"g", b"2:%d" % answers[3].ts]


def test_commit_without_a_new_message_adds_no_backlog_entry(scripts: Scripts) -> None:
    """A call may have only retries, non-members and closed chats."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r"))

    scripts.accept(Sending(ALICE, "r"), Sending(CAROL, "x"), Sending(ALICE, "y", chat=OTHER))

    assert scripts.count_backlog() == 1
