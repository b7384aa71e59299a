"""AI response parts: with any loss or repetition, the reported text is a prefix of the response."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chatserver.client.companion_responses import CompanionResponses
from chatserver.client.events import ResponseUpdated
from chatserver.errors import Unavailable


class Server:
    """A server with a complete response, of which it has sent a part."""

    def __init__(self, pieces: list[str], turn: str = "T1") -> None:
        self.turn = turn
        self.pieces = ["", *pieces, ""]
        self.sent = 0  # number of pieces sent

    def signal(self, index: int) -> dict[str, Any]:
        """Return one piece as a device receives it."""
        frame: dict[str, Any] = {
            "type": "signal", "kind": "ai.delta", "chat": "c", "from": "ai-x", "turn": self.turn,
            "seq": 7, "index": index, "text": self.pieces[index],
        }  # fmt: skip
        if index == len(self.pieces) - 1:
            frame["end"] = "done"
        return frame

    def join_response(self) -> dict[str, Any]:
        """Return the text so far, as the response to `join_turn`."""
        index = self.sent - 1
        frame: dict[str, Any] = {
            "type": "turn", "id": 1, "chat": "c", "turn": self.turn, "seq": 7, "index": index,
            "text": "".join(self.pieces[: self.sent]),
        }  # fmt: skip
        if self.sent == len(self.pieces):
            frame["end"] = "done"
        return frame


class Device:
    """A device that records its events and its join requests."""

    def __init__(self) -> None:
        self.events: list[ResponseUpdated] = []
        self.joins: list[Any] = []
        self.responses = CompanionResponses(self._send_request, self.events.extend)  # type: ignore[arg-type]  # a stub

    def _send_request(self, fields: dict[str, Any], on_answer: Any, now: float) -> None:
        assert fields == {"type": "join_turn", "chat": "c"}
        self.joins.append(on_answer)

    def check(self, turn: str, response: str) -> str:
        """Check that the reported text is a prefix of the response, each part once; return it."""
        text = ""
        for event in self.events:
            if event.turn == turn:
                text += event.added
                assert event.text == text
        assert response.startswith(text)
        return text


actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.booleans()),  # whether the device receives the piece
        st.tuples(st.just("late"), st.integers(0, 30)),  # an earlier piece, repeated or delayed
        st.tuples(st.just("answer"), st.booleans()),  # whether the oldest join succeeds
        st.tuples(st.just("join"), st.just(0)),
        st.tuples(st.just("reconnect"), st.just(0)),
    ),
    max_size=60,
)


@given(pieces=st.lists(st.text("ab", min_size=1, max_size=3), max_size=12), script=actions)
def test_response_is_reported_as_prefixes_and_finally_complete(
    pieces: list[str], script: list[tuple[str, Any]]
) -> None:
    """Signals and responses may be lost, repeated or late: nothing is reported twice."""
    server, device, response = Server(pieces), Device(), "".join(pieces)
    for action, value in script:
        if action == "send" and server.sent < len(server.pieces):
            server.sent += 1
            if value:
                device.responses.handle_signal(server.signal(server.sent - 1), 0.0)
        elif action == "late" and server.sent:
            device.responses.handle_signal(server.signal(value % server.sent), 0.0)
        elif action == "answer" and device.joins and server.sent:
            answer = server.join_response() if value else Unavailable("no")
            device.joins.pop(0)(answer, 0.0)
        elif action == "join":
            device.responses.request_text("c", 0.0)
        elif action == "reconnect":
            device.joins.clear()
            device.responses.handle_reconnect(0.0)
        device.check("T1", response)

    server.sent = len(server.pieces)
    device.responses.apply_text(server.join_response())
    assert device.check("T1", response) == response
    assert [event.end for event in device.events if event.end] == ["done"]


def test_gap_in_response_sends_one_join() -> None:
    """Later pieces behind the same gap send no further request."""
    server, device = Server(["a", "b", "c", "d"]), Device()
    for index in (0, 2, 3, 4):
        device.responses.handle_signal(server.signal(index), 0.0)
    assert len(device.joins) == 1

    server.sent = 4
    device.joins[0](server.join_response(), 0.0)

    assert device.check("T1", "abcd") == "abcd"


def test_restarted_response_replaces_the_old_one() -> None:
    """After a worker crash, parts of its response are ignored, even if they arrive late."""
    old, new, device = Server(["x", "y"], "T1"), Server(["a", "b"], "T2"), Device()
    device.responses.handle_signal(old.signal(0), 0.0)
    device.responses.handle_signal(old.signal(1), 0.0)
    device.responses.handle_signal(new.signal(0), 0.0)
    device.responses.handle_signal(old.signal(2), 0.0)
    for index in (1, 2, 3):
        device.responses.handle_signal(new.signal(index), 0.0)

    assert device.check("T1", "xy") == "x"
    assert device.check("T2", "ab") == "ab"


def test_join_without_response_reports_nothing() -> None:
    device = Device()
    device.responses.request_text("c", 0.0)
    on_text = device.joins[0]
    on_text({"type": "turn", "chat": "c", "turn": "", "seq": 0, "index": 0, "text": ""}, 0.0)

    assert device.events == []
