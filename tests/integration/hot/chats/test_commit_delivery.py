"""commit_messages.lua: inboxes, gateways to notify, and deliveries left to a later fan-out."""

from __future__ import annotations

import dataclasses
import time

import pytest

from chatserver.domain.ids import ChatId, UserId
from tests.integration.hot.support import (
    ALICE,
    BOB,
    CAROL,
    CHAT,
    COMMITTED,
    EPOCH,
    GATE,
    GATEWAY,
    KNOWN,
    NOT_MEMBER,
    UNDELIVERED,
    Inboxed,
    Scripts,
    Sending,
    sends,
)

OTHER = ChatId("c2")


def raw_inbox(scripts: Scripts, user: UserId) -> list[tuple[str, str]]:
    """Return the ids and values of the entries of an inbox."""
    return [
        (name.decode(), value.decode())
        for name, fields in scripts.redis.xrange(scripts.keys.inbox(user))
        for value in fields.values()
    ]


# inboxes


def test_commit_puts_reference_into_every_inbox(scripts: Scripts) -> None:
    """Each inbox has its own seqs; an entry refers to the chat and its seq."""
    scripts.open_chat(ALICE, BOB)
    scripts.open_chat(BOB, chat=OTHER)
    scripts.accept(Sending(BOB, "alone", chat=OTHER, to=(BOB,)))

    (answer,) = scripts.accept(Sending(ALICE, "r"))

    assert answer.inboxes == (Inboxed(1, ""), Inboxed(2, ""))
    assert scripts.inbox(ALICE) == [(1, CHAT, "1")]
    assert scripts.inbox(BOB) == [(1, OTHER, "1"), (2, CHAT, "1")]
    assert scripts.seqs() == {ALICE: 1, BOB: 2}
    assert scripts.undelivered() == []


def test_commit_records_the_last_seq_of_each_sender(scripts: Scripts) -> None:
    """Sending moves the sender's read mark. User states do not change."""
    scripts.open_chat(ALICE, BOB)

    scripts.accept(*sends(2), Sending(BOB, "r"))

    head = scripts.head()
    assert (head["seq"], head["gate"]) == ("3", GATE)
    assert "done" not in head  # only valid while a fan-out is pending
    assert (head[f"s:{ALICE}"], head[f"s:{BOB}"]) == ("2", "3")
    assert scripts.box(ALICE) == scripts.box(BOB) == {}


def test_commit_left_undelivered_records_the_sender_and_no_delivery(
    scripts: Scripts,
) -> None:
    """`done` is the seq before the fan-out, but the sender's own message is read at once."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r1"))

    scripts.accept(Sending(BOB, "r2", to=()), Sending(BOB, "r3", to=()))
    scripts.accept(Sending(BOB, "r4"))

    head = scripts.head()
    assert (head["seq"], head["done"], head[f"s:{BOB}"]) == ("4", "1", "4")
    assert head["gate"] == f"{GATE}:p"


def test_commit_alternating_chats_reach_inboxes_chat_by_chat(scripts: Scripts) -> None:
    """Chats that alternate within a batch keep their order and state."""
    scripts.open_chat(ALICE, BOB)
    scripts.open_chat(ALICE, BOB, chat=OTHER)
    batch = [
        Sending(sender, f"r{n}", chat=chat)
        for n, (sender, chat) in enumerate(
            [(ALICE, CHAT), (ALICE, OTHER), (BOB, CHAT), (ALICE, CHAT), (BOB, OTHER), (BOB, CHAT)]
        )
    ]

    answers = scripts.accept(*batch)

    assert [answer.seq for answer in answers] == [1, 1, 2, 3, 2, 4]
    assert [answer.inboxes[0].seq for answer in answers] == [1, 5, 2, 3, 6, 4]
    assert scripts.seqs() == {ALICE: 6, BOB: 6}
    assert (scripts.head()[f"s:{ALICE}"], scripts.head(OTHER)[f"s:{ALICE}"]) == ("3", "1")
    assert scripts.inbox(ALICE) == scripts.inbox(BOB)
    assert [f"{chat} {cs}" for _, chat, cs in scripts.inbox(BOB)] == [
        f"{CHAT} 1",
        f"{CHAT} 2",
        f"{CHAT} 3",
        f"{CHAT} 4",
        f"{OTHER} 1",
        f"{OTHER} 2",
    ]


def test_commit_chats_that_share_some_recipients_reach_all_inboxes(scripts: Scripts) -> None:
    """Retries and non-members in the batch do not shift a seq; other inboxes do not change."""
    scripts.open_chat(ALICE, BOB)
    scripts.open_chat(BOB, CAROL, chat=OTHER)
    scripts.accept(Sending(BOB, "early", chat=OTHER, to=(BOB, CAROL)))
    scripts.place(CAROL, "gw-far")

    def to_other(sender: UserId, ref: str) -> Sending:
        return Sending(sender, ref, chat=OTHER, to=(BOB, CAROL), is_member=sender != ALICE)

    answers = scripts.accept(
        Sending(ALICE, "a1"),
        to_other(CAROL, "o1"),
        Sending(BOB, "a2"),
        Sending(ALICE, "a1"),
        to_other(BOB, "early"),
        to_other(ALICE, "o2"),
        to_other(BOB, "o3"),
        Sending(BOB, "a3"),
    )

    assert [answer.code for answer in answers] == [
        COMMITTED, COMMITTED, COMMITTED, KNOWN, KNOWN, NOT_MEMBER, COMMITTED, COMMITTED,
    ]  # fmt: skip
    assert [answer.seq for answer in answers if answer.code == COMMITTED] == [1, 2, 2, 3, 3]
    assert answers[3].place.startswith(f"1:{answers[0].ts}:")
    assert [answer.inboxes for answer in answers if answer.code == COMMITTED] == [
        (Inboxed(1, ""), Inboxed(2, "")),
        (Inboxed(5, ""), Inboxed(2, "gw-far")),
        (Inboxed(2, ""), Inboxed(3, "")),
        (Inboxed(6, ""), Inboxed(3, "gw-far")),
        (Inboxed(3, ""), Inboxed(4, "")),
    ]
    assert scripts.inbox(ALICE) == [(n, CHAT, str(n)) for n in (1, 2, 3)]
    assert scripts.inbox(BOB) == [
        (1, OTHER, "1"),
        *((n + 1, CHAT, str(n)) for n in (1, 2, 3)),
        *((n + 3, OTHER, str(n)) for n in (2, 3)),
    ]
    assert scripts.inbox(CAROL) == [(n, OTHER, str(n)) for n in (1, 2, 3)]
    assert scripts.seqs() == {ALICE: 3, BOB: 6, CAROL: 3}
    assert scripts.undelivered() == [OTHER]


@pytest.mark.parametrize(
    ("count", "others"),
    [(1, []), (2, [("0-4", "9")]), (3, [("0-5", "9-10")]), (128, [("0-130", "9-135")])],
)
def test_commit_run_of_a_chat_is_at_most_two_entries(
    scripts: Scripts, count: int, others: list[tuple[str, str]]
) -> None:
    """The first message has its own entry, which Redis numbers; the others share the second one."""
    scripts.open_chat(ALICE, BOB, seq=7)
    scripts.open_chat(BOB, chat=OTHER)
    scripts.accept(*[Sending(BOB, ref, chat=OTHER, to=(BOB,)) for ref in ("o1", "o2")])
    before = [("0-1", "1"), ("0-2", "2")]

    answers = scripts.accept(*sends(count))

    assert raw_inbox(scripts, BOB) == [*before, ("0-3", "8"), *others]
    assert [answer.inboxes[1].seq for answer in answers] == list(range(3, 3 + count))
    assert scripts.inbox(BOB)[2:] == [(3 + n, CHAT, str(8 + n)) for n in range(count)]
    assert scripts.seqs()[BOB] == 2 + count


def test_commit_after_a_run_continues_the_numbers(scripts: Scripts) -> None:
    """Redis numbers the next entry from the last one of the run."""
    scripts.open_chat(ALICE, BOB)
    for size in (3, 1, 2, 1):
        scripts.accept(*sends(size, stem=f"{scripts.head()['seq']}-"))

    assert raw_inbox(scripts, ALICE) == [
        ("0-1", "1"), ("0-3", "2-3"), ("0-4", "4"), ("0-5", "5"), ("0-6", "6"), ("0-7", "7"),
    ]  # fmt: skip


def test_commit_numbers_an_inbox_that_lost_its_entries_from_its_last_seq(scripts: Scripts) -> None:
    """An empty stream keeps its newest id."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(*sends(3))
    for name, _ in raw_inbox(scripts, BOB):
        scripts.redis.xdel(scripts.keys.inbox(BOB), name)

    (answer,) = scripts.accept(*sends(1, BOB))

    assert answer.inboxes == (Inboxed(4, ""), Inboxed(4, ""))
    assert raw_inbox(scripts, BOB) == [("0-4", "4")]


def test_commit_more_recipients_than_lua_unpacks_at_once_reaches_each(scripts: Scripts) -> None:
    """A call with many chats may have more recipients than one HMGET allows (8,000)."""
    users = [UserId(f"u{n}") for n in range(9_000)]
    chats = {ChatId(f"chat{n}"): tuple(users[n * 300 : n * 300 + 350]) for n in range(30)}
    for chat, members in chats.items():
        scripts.open_chat(*members, chat=chat)
    scripts.place(users[4_100], "gw-far")

    batch = [
        Sending(members[0], ref, chat=chat, to=members)
        for ref in ("r1", "r2")
        for chat, members in chats.items()
    ]
    answers = scripts.accept(*batch)

    assert {answer.code for answer in answers} == {COMMITTED}
    # The last 50 members of a chat are the first 50 of the next one.
    expected: dict[UserId, list[tuple[str, str]]] = {user: [] for user in users}
    for chat, members in chats.items():
        for user in members:
            expected[user] += [(chat, "1"), (chat, "2")]
    assert scripts.seqs() == {user: len(entries) for user, entries in expected.items()}
    for user in users[::37]:
        assert [entry[1:] for entry in scripts.inbox(user)] == expected[user]
    for sending, answer in zip(batch, answers, strict=True):
        places = {user: place.seq for user, place in zip(sending.to, answer.inboxes, strict=True)}
        for user, place in places.items():
            assert expected[user][place - 1] == (sending.chat, str(answer.seq))
    far = [answer.inboxes[200].far for answer in answers if answer.inboxes[200].far]
    assert far == ["gw-far", "gw-far"]
    assert scripts.undelivered() == ["chat13"]


def test_commit_trims_the_inbox_to_its_limit(scripts: Scripts) -> None:
    """An inbox holds its newest events and never fewer than its limit.

    It has at most nine more, plus the other messages of the oldest entry.
    """
    scripts.open_chat(ALICE, BOB)

    top = 0
    for call, size in enumerate((10, 1, 2, 3, 1, 1, 1, 128, 1, 1, 5) + (1,) * 30 + (128, 1, 2)):
        scripts.accept(*sends(size, stem=f"r{call}-"), inbox_max=20)
        entries, held = raw_inbox(scripts, BOB), [seq for seq, _, _ in scripts.inbox(BOB)]
        top += size
        assert held == list(range(top - len(held) + 1, top + 1))
        assert min(20, top) <= len(held)
        newer = len(held) - (int(entries[0][0].split("-")[1]) - held[0])
        assert newer <= 20 + 9
    assert len(held) < 20 + 127


def test_commit_names_other_gateways_and_lists_the_chat_as_undelivered(scripts: Scripts) -> None:
    """The chat stays listed until users on other gateways are notified."""
    scripts.open_chat(ALICE, BOB)
    scripts.place(ALICE, GATEWAY)
    scripts.place(BOB, f"{GATEWAY},gw-far")

    (answer,) = scripts.accept(Sending(ALICE, "r"))

    assert answer.inboxes == (Inboxed(1, ""), Inboxed(1, f"{GATEWAY},gw-far"))
    assert scripts.undelivered() == [CHAT]
    assert scripts.head()["gate"] == GATE


def test_commit_with_all_recipients_here_or_offline_does_not_list_the_chat(
    scripts: Scripts,
) -> None:
    """The caller notifies its own sessions, and no other gateway needs a notification."""
    scripts.open_chat(ALICE, BOB)
    scripts.place(ALICE, GATEWAY)

    scripts.accept(Sending(ALICE, "r"))

    assert scripts.undelivered() == []


def test_commit_pending_fan_out_blocks_delivery_until_settled(scripts: Scripts) -> None:
    """No inbox may get a message before an earlier undelivered one."""
    scripts.open_chat(ALICE, BOB, version=2)
    fresh = f"{EPOCH}:2"
    scripts.accept(Sending(ALICE, "r1", gate=f"{EPOCH}:1"))

    (blocked,) = scripts.accept(Sending(ALICE, "r2", gate=fresh))
    assert scripts.head()["gate"] == f"{fresh}:p"
    for user in (ALICE, BOB):
        scripts.deliver(user, 2)
    scripts.finish_fan_outs((CHAT, 2))
    (delivered,) = scripts.accept(Sending(ALICE, "r3", gate=fresh))

    assert (blocked.code, delivered.code) == (UNDELIVERED, COMMITTED)
    assert [cs for _, _, cs in scripts.inbox(BOB)] == ["1", "2", "3"]


def test_commit_pending_fan_out_blocks_all_of_a_later_batch(scripts: Scripts) -> None:
    """The chat is marked as pending once, for any number of messages. Other chats continue."""
    scripts.open_chat(ALICE, BOB)
    scripts.open_chat(ALICE, BOB, chat=OTHER)
    scripts.accept(*[dataclasses.replace(each, to=()) for each in sends(2)])

    answers = scripts.accept(*sends(2, BOB), Sending(BOB, "o", chat=OTHER))

    assert [answer.code for answer in answers] == [UNDELIVERED, UNDELIVERED, COMMITTED]
    assert scripts.inbox(ALICE) == [(1, OTHER, "1")]
    assert scripts.head()["gate"] == f"{GATE}:p"
    assert scripts.head(OTHER)["gate"] == GATE


def test_commit_pending_fan_out_delivers_later_messages_too(scripts: Scripts) -> None:
    """A late delivery appends all missing entries and none that the commit delivered."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r1"))
    scripts.accept(Sending(ALICE, "r2", to=()))
    scripts.accept(Sending(BOB, "r3"))

    done = int(scripts.head()["done"])
    assert done == 1
    delivered = [scripts.deliver(user, 3, after=done) for user in (ALICE, BOB)]

    assert delivered == [(2, 3, ""), (2, 3, "")]
    assert [cs for _, _, cs in scripts.inbox(BOB)] == ["1", "2", "3"]


def test_commit_chat_that_is_listed_as_undelivered_keeps_its_time(scripts: Scripts) -> None:
    """The list has the time of the oldest unfinished fan-out."""
    scripts.open_chat(ALICE, BOB)
    scripts.redis.zadd(scripts.keys.undelivered(0), {CHAT: 5})

    scripts.accept(Sending(ALICE, "r", to=()))

    assert scripts.redis.zscore(scripts.keys.undelivered(0), CHAT) == 5


def test_commit_batch_of_the_largest_size_is_committed(scripts: Scripts) -> None:
    """A call may have 1,024 messages, the maximum of the setting."""
    scripts.open_chat(ALICE, BOB)
    scripts.open_chat(ALICE, BOB, chat=OTHER)
    batch = [Sending(ALICE, f"r{n}", chat=(CHAT, OTHER)[n % 2]) for n in range(1024)]

    answers = scripts.accept(*batch, backlog_max=10_000)

    assert {answer.code for answer in answers} == {COMMITTED}
    assert [answer.inboxes[1].seq for answer in answers[:2] + answers[-2:]] == [1, 513, 512, 1024]
    assert scripts.inbox(BOB)[-1] == (1024, OTHER, "512")
    assert scripts.seqs()[BOB] == 1024


# large chats


def test_commit_in_large_chat_reaches_no_inbox_and_names_subscribed_gateways(
    scripts: Scripts,
) -> None:
    """Members read the chat's log. The chat is listed until other gateways are notified."""
    scripts.open_chat(ALICE, BOB)
    scripts.open_chat(ALICE, BOB, chat=OTHER)
    later, before = time.time() * 1000 + 60_000, time.time() * 1000 - 1
    watchers = {GATEWAY: later, "gw-far": later, "gw-dead": before}
    scripts.redis.zadd(scripts.keys.watchers(CHAT), watchers)

    answers = scripts.accept(
        Sending(ALICE, "r1", is_large=True),
        Sending(BOB, "o1", chat=OTHER),
        Sending(BOB, "r2", is_large=True),
    )

    assert [(answer.code, answer.seq) for answer in answers] == [(1, 1), (1, 1), (1, 2)]
    assert [answer.watching for answer in answers] == ["gw-far", "", "gw-far"]
    assert scripts.inbox(ALICE) == scripts.inbox(BOB) == [(1, OTHER, "1")]
    assert [seq for seq, _, _ in scripts.log()] == [1, 2]
    assert scripts.undelivered() == [CHAT]
    assert scripts.head()["gate"] == GATE


def test_commit_in_large_chat_without_other_subscriptions_does_not_list_it(
    scripts: Scripts,
) -> None:
    """The caller notifies its own sessions."""
    scripts.open_chat(ALICE, BOB)
    scripts.redis.zadd(scripts.keys.watchers(CHAT), {GATEWAY: time.time() * 1000 + 60_000})

    (answer,) = scripts.accept(Sending(ALICE, "r1", is_large=True))

    assert (answer.code, answer.watching) == (COMMITTED, "")
    assert scripts.undelivered() == []
