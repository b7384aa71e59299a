"""A direct chat in the terminal: no line is repeated or lost, and marks only advance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.client.calls import HistoryPage
from chatserver.client.client_state import ClientState
from chatserver.client.model import parse_entry
from chatserver.client.outbox import OutboxEntry
from chatserver.client.terminal.conversation import Conversation, Mark

NOW = 0.0


class TerminalChat:
    """Alice's direct chat with Bob in the terminal client, connected for the first time."""

    def __init__(self) -> None:
        self.state = ClientState("phone")
        self.view = Conversation("bob")
        self.connection = self.state.handle_welcome(welcome("e1", 10), NOW)
        self.view.set_chat(
            "alice", self.state.get_or_create_chat("c1"), lambda: list(self.state.outbox)
        )

    def receive(self, **frame: Any) -> None:
        self.state.handle_frame(self.connection, frame, NOW)
        for event in self.state.pop_events():
            self.view.apply_event(event)

    def compose(self, ref: str, body: str) -> None:
        fields = {"type": "send", "chat": "c1", "ref": ref, "body": body}
        self.state.enqueue(OutboxEntry(ref, "c1", fields), NOW)
        self.view.record_sent(ref, body)

    def ack(self, ref: str, seq: int, durability: str = "hot") -> None:
        position = {"seq": seq, "ts": seq * 1000, "mid": f"m{seq}"}
        self.receive(type="ack", id=0, ref=ref, dup=False, durability=durability, **position)

    def receive_message(self, inbox_seq: int, seq: int, chat: str = "c1", **fields: Any) -> None:
        entry = message(seq, **fields)
        self.receive_event(
            inbox_seq, kind="message", cs=seq, chat=chat, message={**entry, "chat": chat}
        )

    def receive_event(self, inbox_seq: int, chat: str = "c1", **fields: Any) -> None:
        self.receive(type="event", epoch="e1", seq=inbox_seq, chat=chat, **fields)

    def receive_page(
        self, *messages: dict[str, Any], tier: str = "hot", more: bool = False
    ) -> None:
        page = {"chat": "c1", "messages": list(messages), "tier": tier, "more": more}
        self.state.apply_history(page, is_newest=False)
        self.view.apply_page(HistoryPage([parse_entry(each) for each in messages], tier, more))

    def shown(self) -> list[tuple[str, Mark | None]]:
        """Return bodies and marks of the lines."""
        return [(line.body, line.mark) for line in self.view.build_lines()]

    def sent_refs(self) -> list[str]:
        """Return the refs of the messages that are sent now."""
        return [frame["ref"] for frame in self.state.pop_frames() if frame["type"] == "send"]


def welcome(epoch: str, seq: int) -> dict[str, Any]:
    return {"type": "welcome", "user": "alice", "epoch": epoch, "seq": seq, "limits": {}}


def message(seq: int, sender: str = "bob", ref: str = "x", body: str = "") -> dict[str, Any]:
    body = body or f"text {seq}"
    return {"seq": seq, "ts": seq * 1000, "chat": "c1", "mid": f"m{seq}", "sender": sender,
            "ref": ref, "kind": "text", "body": body}  # fmt: skip


@pytest.fixture
def terminal() -> TerminalChat:
    return TerminalChat()


def test_composed_message_is_sending_until_acked(terminal: TerminalChat) -> None:
    """Until its ack, the message is the last line and has no time; then it is at its position."""
    terminal.compose("r1", "hello")
    assert terminal.shown() == [("hello", Mark.SENDING)]
    assert terminal.view.build_lines()[0].ts is None
    assert not terminal.view.is_all_acked

    terminal.ack("r1", 1)

    assert terminal.shown() == [("hello", Mark.SENT)]
    assert terminal.view.build_lines()[0].ts == 1000
    assert terminal.view.is_all_acked


def test_draft_before_the_chat_is_open_is_shown_and_sent_once_open() -> None:
    """Text typed while the chat is being opened is not lost."""
    state, view = ClientState("phone"), Conversation("bob")
    view.add_draft("hello")
    assert [line.body for line in view.build_lines()] == ["hello"]

    assert view.set_chat("alice", state.get_or_create_chat("c1"), list) == ["hello"]
    assert view.build_lines() == []


def test_own_message_received_before_its_ack_is_shown_once(terminal: TerminalChat) -> None:
    """The event and the ack of one message make one line, in either order."""
    terminal.compose("r1", "hello")

    terminal.receive_message(11, 1, sender="alice", ref="r1", body="hello")
    terminal.ack("r1", 1)

    assert terminal.shown() == [("hello", Mark.SENT)]


def test_marks_advance_from_sent_to_stored_to_read(terminal: TerminalChat) -> None:
    """A `stored` position covers all earlier messages; a read message stays read."""
    for seq in (1, 2, 3):
        terminal.compose(f"r{seq}", f"text {seq}")
        terminal.receive_message(10 + seq, seq, sender="alice", ref=f"r{seq}")
        terminal.ack(f"r{seq}", seq)

    terminal.receive(type="stored", chat="c1", upto=2)
    assert [mark for _, mark in terminal.shown()] == [Mark.STORED, Mark.STORED, Mark.SENT]

    terminal.receive_event(14, kind="read", read={"user": "bob", "read": 1})
    terminal.receive(type="stored", chat="c1", upto=1)
    assert [mark for _, mark in terminal.shown()] == [Mark.READ, Mark.STORED, Mark.SENT]


def test_own_read_mark_does_not_mark_own_messages_as_read(terminal: TerminalChat) -> None:
    """A read mark of the user's other device is not the peer's."""
    terminal.compose("r1", "hello")
    terminal.ack("r1", 1)

    terminal.receive_event(11, kind="read", read={"user": "alice", "read": 1})

    assert terminal.shown() == [("hello", Mark.SENT)]


def test_event_of_another_chat_is_not_shown(terminal: TerminalChat) -> None:
    """The event only advances the cursor."""
    terminal.receive_message(11, 1, chat="c2")

    assert terminal.view.build_lines() == []
    assert terminal.state.cursor is not None
    assert terminal.state.cursor.seq == 11


def test_refused_message_is_failed_with_its_reason_and_not_resent(terminal: TerminalChat) -> None:
    """The user sees which message was refused and why."""
    terminal.compose("r1", "hello")
    (frame,) = terminal.state.pop_frames()

    error = {"code": "bad_request", "message": "body: too long", "temporary": False}
    terminal.receive(type="error", id=frame["id"], **error)
    terminal.state.handle_disconnect(NOW)
    terminal.state.handle_welcome(welcome("e1", 10), NOW)

    assert terminal.shown() == [("hello", Mark.FAILED)]
    assert terminal.view.build_lines()[0].note == "body: too long"
    assert terminal.sent_refs() == []


def test_reset_resends_messages_that_are_not_stored(terminal: TerminalChat) -> None:
    """A running device loses no messages if Redis loses data."""
    for seq, (ref, durability) in enumerate((("stored", "stored"), ("sent", "hot")), 1):
        terminal.compose(ref, ref)
        terminal.ack(ref, seq, durability)
    terminal.compose("sending", "sending")
    terminal.sent_refs()

    terminal.state.handle_disconnect(NOW)
    terminal.connection = terminal.state.handle_welcome(welcome("e2", 0), NOW)
    terminal.receive(type="reset", cursor={"epoch": "e2", "seq": 0}, chats=[])

    assert terminal.sent_refs() == ["sent", "sending"]
    assert terminal.shown() == [("sent", Mark.SENDING), ("sending", Mark.SENDING)]


def test_page_joins_the_live_messages_without_repeats(terminal: TerminalChat) -> None:
    """A page may contain messages that were also pushed."""
    terminal.receive_message(11, 5)

    terminal.receive_page(message(3), message(4), message(5), more=True)

    assert [body for body, _ in terminal.shown()] == ["text 3", "text 4", "text 5"]
    assert terminal.view.has_older


def test_last_page_ends_the_history(terminal: TerminalChat) -> None:
    """Scrolling ends at the first message."""
    terminal.receive_message(11, 3)
    terminal.receive_page(message(3), more=True)

    terminal.receive_page(message(1), message(2), tier="warm")

    assert not terminal.view.has_older
    assert (terminal.view.bottom, terminal.view.top) == (1, 3)


def test_own_message_from_the_warm_tier_counts_as_stored(terminal: TerminalChat) -> None:
    """Reading it from the warm tier proves that it is stored."""
    terminal.receive_page(message(1, "alice"), tier="warm")

    assert terminal.shown() == [("text 1", Mark.STORED)]


def test_deleted_message_is_not_shown(terminal: TerminalChat) -> None:
    """Edited messages are shown in their current version."""
    terminal.receive_message(11, 1)
    terminal.receive_message(12, 2)
    for seq, target, kind, body in ((3, 1, "delete", ""), (4, 2, "edit", "better")):
        change = {**message(seq, body=body), "kind": kind, "target": target, "body": body}
        terminal.receive_event(10 + seq, kind=kind, cs=seq, message=change)

    assert terminal.shown() == [("better", None)]


def test_typing_of_the_peer_ends_with_a_message(terminal: TerminalChat) -> None:
    """The signal that ends typing may be lost."""
    terminal.receive(type="signal", kind="typing", chat="c1", **{"from": "bob"}, on=True)
    assert terminal.view.is_peer_typing

    terminal.receive_message(11, 1)

    assert not terminal.view.is_peer_typing


def test_own_typing_on_another_device_is_not_shown(terminal: TerminalChat) -> None:
    """Only the peer's typing is shown."""
    terminal.receive(type="signal", kind="typing", chat="c1", **{"from": "alice"}, on=True)

    assert not terminal.view.is_peer_typing


@given(st.permutations([1, 2, 3, 4, 5]), st.integers(0, 5))
def test_acks_in_any_order_give_lines_by_position(order: list[int], acked: int) -> None:
    """Acked lines are in the order of the chat, the others in the order of composing."""
    terminal = TerminalChat()
    for number in (1, 2, 3, 4, 5):
        terminal.compose(f"r{number}", f"text {number}")

    for number in order[:acked]:
        terminal.ack(f"r{number}", number)

    placed, waiting = sorted(order[:acked]), sorted(order[acked:])
    bodies = [line.body for line in terminal.view.build_lines()]
    assert bodies == [f"text {n}" for n in placed + waiting]
