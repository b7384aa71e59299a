"""finish_fan_outs.lua: a chat is removed from the list when all its messages are delivered."""

from __future__ import annotations

from chatserver.domain.ids import ChatId
from tests.integration.hot.support import ALICE, BOB, CHAT, EPOCH, GATE, NEVER, Scripts, Sending

OTHER = ChatId("c2")
STALE = f"{EPOCH}:0"


def test_finish_fan_outs_removes_a_delivered_chat_from_the_list(scripts: Scripts) -> None:
    """After that, commits deliver directly again."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r", gate=STALE))

    assert scripts.finish_fan_outs((CHAT, 1)) == 1
    assert scripts.undelivered() == []
    assert scripts.head()["gate"] == GATE


def test_finish_fan_outs_keeps_a_chat_with_a_later_message_listed(scripts: Scripts) -> None:
    """Only the later message must still be delivered."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(*[Sending(ALICE, f"r{n}", gate=STALE) for n in range(3)])

    assert scripts.finish_fan_outs((CHAT, 2)) == 0
    assert scripts.finish_fan_outs((CHAT, 1)) == 0
    assert scripts.undelivered() == [CHAT]
    assert (scripts.head()["gate"], scripts.head()["done"]) == (f"{GATE}:p", "2")


def test_finish_fan_outs_of_a_chat_without_one_changes_nothing(scripts: Scripts) -> None:
    """`done` has no meaning while nothing is pending, and a later fan-out sets it again."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r1"), Sending(ALICE, "r2"))
    before = scripts.head()

    assert scripts.finish_fan_outs((CHAT, 1)) == 0
    assert scripts.head() == before


def test_finish_fan_outs_before_another_fan_out_does_not_move_its_done(scripts: Scripts) -> None:
    """A later fan-out begins at the seq before its first message, whatever `done` was before."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r1", gate=STALE), Sending(ALICE, "r2", gate=STALE))
    scripts.finish_fan_outs((CHAT, 1))
    scripts.finish_fan_outs((CHAT, 2))
    scripts.accept(*[Sending(ALICE, f"r{n}") for n in range(3, 6)])

    scripts.accept(Sending(ALICE, "r6", gate=STALE))

    assert (scripts.head()["gate"], scripts.head()["done"]) == (f"{GATE}:p", "5")


def test_finish_fan_outs_repeated_changes_nothing(scripts: Scripts) -> None:
    """Gateway and repair may both finish the same fan-out."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r", gate=STALE))
    scripts.finish_fan_outs((CHAT, 1))
    before = scripts.head()

    assert scripts.finish_fan_outs((CHAT, 1)) == 0
    assert scripts.head() == before


def test_finish_fan_outs_of_several_chats_returns_the_number_removed(scripts: Scripts) -> None:
    """Each chat is checked separately."""
    for chat in (CHAT, OTHER):
        scripts.open_chat(ALICE, BOB, chat=chat)
        scripts.accept(
            Sending(ALICE, "r1", gate=STALE, chat=chat), Sending(ALICE, "r2", gate=STALE, chat=chat)
        )

    assert scripts.finish_fan_outs((CHAT, 1), (OTHER, 2)) == 1
    assert scripts.undelivered() == [CHAT]


def test_finish_fan_outs_removes_a_missing_chat_from_the_list(scripts: Scripts) -> None:
    """A chat in no tier has nothing to deliver and gets no head."""
    scripts.redis.zadd(scripts.keys.undelivered(0), {CHAT: 1})

    assert scripts.finish_fan_outs((CHAT, NEVER)) == 1
    assert scripts.undelivered() == []
    assert scripts.head() == {}
