"""The lines of one direct chat: each message once, marks that rise, nothing composed is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.client.calls import HistoryPage
from chatserver.client.model import parse_entry
from chatserver.client.outbox import OutboxEntry
from chatserver.client.state import ClientState
from chatserver.client.terminal.conversation import Conversation, Mark

NOW = 0.0


class Talk:
    """Alice's chat with Bob, connected for the first time, as the terminal keeps it."""

    def __init__(self) -> None:
        self.state = ClientState("phone")
        self.view = Conversation("bob")
        self.connection = self.state.connected(welcome("e1", 10), NOW)
        self.view.opened("alice", self.state.chat("c1"), lambda: list(self.state.outbox))

    def take(self, **frame: Any) -> None:
        """Take a frame of the server."""
        self.state.received(self.connection, frame, NOW)
        for event in self.state.take_events():
            self.view.take(event)

    def compose(self, ref: str, body: str) -> None:
        """Send a text."""
        fields = {"type": "send", "chat": "c1", "ref": ref, "body": body}
        self.state.do(OutboxEntry(ref, "c1", fields), NOW)
        self.view.composed(ref, body)

    def ack(self, ref: str, seq: int, durability: str = "hot") -> None:
        """Take the place of a text."""
        place = {"seq": seq, "ts": seq * 1000, "mid": f"m{seq}"}
        self.take(type="ack", id=0, ref=ref, dup=False, durability=durability, **place)

    def arrive(self, inbox_seq: int, seq: int, chat: str = "c1", **fields: Any) -> None:
        """Take a message event."""
        entry = message(seq, **fields)
        self.event(inbox_seq, kind="message", cs=seq, chat=chat, message={**entry, "chat": chat})

    def event(self, inbox_seq: int, chat: str = "c1", **fields: Any) -> None:
        """Take an event."""
        self.take(type="event", epoch="e1", seq=inbox_seq, chat=chat, **fields)

    def page(self, *messages: dict[str, Any], tier: str = "hot", more: bool = False) -> None:
        """Take a page of history."""
        page = {"chat": "c1", "messages": list(messages), "tier": tier, "more": more}
        self.state.take_history(page, is_newest=False)
        self.view.take_page(HistoryPage([parse_entry(one) for one in messages], tier, more))

    def shown(self) -> list[tuple[str, Mark | None]]:
        """Return bodies and marks of the lines."""
        return [(line.body, line.mark) for line in self.view.lines()]

    def offered(self) -> list[str]:
        """Return the refs that go out now."""
        return [frame["ref"] for frame in self.state.take_frames() if frame["type"] == "send"]


def welcome(epoch: str, seq: int) -> dict[str, Any]:
    return {"type": "welcome", "user": "alice", "epoch": epoch, "seq": seq, "limits": {}}


def message(seq: int, sender: str = "bob", ref: str = "x", body: str = "") -> dict[str, Any]:
    body = body or f"text {seq}"
    return {"seq": seq, "ts": seq * 1000, "chat": "c1", "mid": f"m{seq}", "sender": sender,
            "ref": ref, "kind": "text", "body": body}  # fmt: skip


@pytest.fixture
def talk() -> Talk:
    return Talk()


def test_composed_message_is_sending_until_acked(talk: Talk) -> None:
    """It stands last without a time, then at its place with one."""
    talk.compose("r1", "hello")
    assert talk.shown() == [("hello", Mark.SENDING)]
    assert talk.view.lines()[0].ts is None
    assert not talk.view.is_answered

    talk.ack("r1", 1)

    assert talk.shown() == [("hello", Mark.SENT)]
    assert talk.view.lines()[0].ts == 1000
    assert talk.view.is_answered


def test_draft_before_the_chat_is_there_is_shown_and_sent_when_it_is() -> None:
    """Text typed while the chat is being opened is not lost."""
    state, view = ClientState("phone"), Conversation("bob")
    view.draft("hello")
    assert [line.body for line in view.lines()] == ["hello"]

    assert view.opened("alice", state.chat("c1"), list) == ["hello"]
    assert view.lines() == []


def test_own_message_that_comes_as_event_before_its_ack_is_shown_once(talk: Talk) -> None:
    """The event and the ack of one message are one line, whichever is first."""
    talk.compose("r1", "hello")

    talk.arrive(11, 1, sender="alice", ref="r1", body="hello")
    talk.ack("r1", 1)

    assert talk.shown() == [("hello", Mark.SENT)]


def test_marks_rise_from_sent_to_stored_to_read(talk: Talk) -> None:
    """A watermark covers all before it; what is read stays read."""
    for seq in (1, 2, 3):
        talk.compose(f"r{seq}", f"text {seq}")
        talk.arrive(10 + seq, seq, sender="alice", ref=f"r{seq}")
        talk.ack(f"r{seq}", seq)

    talk.take(type="stored", chat="c1", upto=2)
    assert [mark for _, mark in talk.shown()] == [Mark.STORED, Mark.STORED, Mark.SENT]

    talk.event(14, kind="read", read={"user": "bob", "read": 1})
    talk.take(type="stored", chat="c1", upto=1)
    assert [mark for _, mark in talk.shown()] == [Mark.READ, Mark.STORED, Mark.SENT]


def test_own_read_mark_says_nothing_of_the_peer(talk: Talk) -> None:
    """Another device of mine that read is not the other person."""
    talk.compose("r1", "hello")
    talk.ack("r1", 1)

    talk.event(11, kind="read", read={"user": "alice", "read": 1})

    assert talk.shown() == [("hello", Mark.SENT)]


def test_event_of_another_chat_is_not_shown(talk: Talk) -> None:
    """The cursor moves on, the lines do not."""
    talk.arrive(11, 1, chat="c2")

    assert talk.view.lines() == []
    assert talk.state.cursor is not None
    assert talk.state.cursor.seq == 11


def test_refused_message_is_failed_with_its_reason_and_not_offered_again(talk: Talk) -> None:
    """The user sees what was not accepted and why."""
    talk.compose("r1", "hello")
    (frame,) = talk.state.take_frames()

    error = {"code": "bad_request", "message": "body: too long", "temporary": False}
    talk.take(type="error", id=frame["id"], **error)
    talk.state.disconnected(NOW)
    talk.state.connected(welcome("e1", 10), NOW)

    assert talk.shown() == [("hello", Mark.FAILED)]
    assert talk.view.lines()[0].note == "body: too long"
    assert talk.offered() == []


def test_reset_offers_again_what_was_sent_and_not_stored(talk: Talk) -> None:
    """A Redis that went back in time loses nothing while this device lives."""
    for seq, (ref, durability) in enumerate((("stored", "stored"), ("sent", "hot")), 1):
        talk.compose(ref, ref)
        talk.ack(ref, seq, durability)
    talk.compose("sending", "sending")
    talk.offered()

    talk.state.disconnected(NOW)
    talk.connection = talk.state.connected(welcome("e2", 0), NOW)
    talk.take(type="reset", cursor={"epoch": "e2", "seq": 0}, chats=[])

    assert talk.offered() == ["sent", "sending"]
    assert talk.shown() == [("sent", Mark.SENDING), ("sending", Mark.SENDING)]


def test_pages_join_the_live_messages_without_repeats(talk: Talk) -> None:
    """A page may hold what was pushed too."""
    talk.arrive(11, 5)

    talk.page(message(3), message(4), message(5), more=True)

    assert [body for body, _ in talk.shown()] == ["text 3", "text 4", "text 5"]
    assert talk.view.has_older


def test_last_page_says_that_there_is_nothing_older(talk: Talk) -> None:
    """Scrolling ends at the first message."""
    talk.arrive(11, 3)
    talk.page(message(3), more=True)

    talk.page(message(1), message(2), tier="warm")

    assert not talk.view.has_older
    assert (talk.view.bottom, talk.view.top) == (1, 3)


def test_own_message_from_the_warm_tier_counts_as_stored(talk: Talk) -> None:
    """Where it was read from proves it."""
    talk.page(message(1, "alice"), tier="warm")

    assert talk.shown() == [("text 1", Mark.STORED)]


def test_deleted_message_is_no_line(talk: Talk) -> None:
    """Deleted messages are not shown; edited ones are shown in their current version."""
    talk.arrive(11, 1)
    talk.arrive(12, 2)
    for seq, target, kind, body in ((3, 1, "delete", ""), (4, 2, "edit", "better")):
        change = {**message(seq, body=body), "kind": kind, "target": target, "body": body}
        talk.event(10 + seq, kind=kind, cs=seq, message=change)

    assert talk.shown() == [("better", None)]


def test_typing_of_the_peer_ends_with_a_message(talk: Talk) -> None:
    """The signal may be lost; the message is its end too."""
    talk.take(type="signal", kind="typing", chat="c1", **{"from": "bob"}, on=True)
    assert talk.view.is_peer_typing

    talk.arrive(11, 1)

    assert not talk.view.is_peer_typing


def test_own_typing_on_another_device_is_not_the_peers(talk: Talk) -> None:
    """Only the other person types to me."""
    talk.take(type="signal", kind="typing", chat="c1", **{"from": "alice"}, on=True)

    assert not talk.view.is_peer_typing


@given(st.permutations([1, 2, 3, 4, 5]), st.integers(0, 5))
def test_acks_in_any_order_give_lines_by_place(order: list[int], acked: int) -> None:
    """Lines stand in the order of the chat, then in the order of composing."""
    talk = Talk()
    for number in (1, 2, 3, 4, 5):
        talk.compose(f"r{number}", f"text {number}")

    for number in order[:acked]:
        talk.ack(f"r{number}", number)

    placed, waiting = sorted(order[:acked]), sorted(order[acked:])
    assert [line.body for line in talk.view.lines()] == [f"text {n}" for n in placed + waiting]
