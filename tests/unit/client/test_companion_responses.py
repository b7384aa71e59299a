"""AI response parts: with any loss or repetition, the reported text is a prefix of the response."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chatserver.client.companion_responses import CompanionResponses
from chatserver.client.events import AnswerGrew
from chatserver.errors import Unavailable


class Server:
    """Knows the whole response, and how much of it was sent so far."""

    def __init__(self, pieces: list[str], turn: str = "T1") -> None:
        self.turn = turn
        self.pieces = ["", *pieces, ""]
        self.said = 0  # pieces with an index below it

    def signal(self, index: int) -> dict[str, Any]:
        """One part, as a device receives it."""
        frame: dict[str, Any] = {
            "type": "signal", "kind": "ai.delta", "chat": "c", "from": "ai-x", "turn": self.turn,
            "seq": 7, "index": index, "text": self.pieces[index],
        }  # fmt: skip
        if index == len(self.pieces) - 1:
            frame["end"] = "done"
        return frame

    def joined(self) -> dict[str, Any]:
        """The text so far, as the response to `join_turn`."""
        index = self.said - 1
        frame: dict[str, Any] = {
            "type": "turn", "id": 1, "chat": "c", "turn": self.turn, "seq": 7, "index": index,
            "text": "".join(self.pieces[: self.said]),
        }  # fmt: skip
        if self.said == len(self.pieces):
            frame["end"] = "done"
        return frame


class Device:
    """Receives frames and keeps the events that it reports."""

    def __init__(self) -> None:
        self.told: list[AnswerGrew] = []
        self.asked: list[tuple[Any, Any]] = []
        self.answers = CompanionResponses(self._ask, self.told.extend)  # type: ignore[arg-type]  # as much as is used

    def _ask(self, fields: dict[str, Any], take: Any, failed: Any, now: float) -> None:
        assert fields == {"type": "join_turn", "chat": "c"}
        self.asked.append((take, failed))

    def check(self, turn: str, whole: str) -> str:
        """Check that the reported text is a prefix of the response, each part once; return it."""
        text = ""
        for event in self.told:
            if event.turn == turn:
                text += event.added
                assert event.text == text
        assert whole.startswith(text)
        return text


deeds = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.booleans()),  # and whether the device hears it
        st.tuples(st.just("late"), st.integers(0, 30)),  # an earlier piece comes, again or now
        st.tuples(st.just("answer"), st.booleans()),  # of the oldest question; or it fails
        st.tuples(st.just("join"), st.just(0)),
        st.tuples(st.just("reconnect"), st.just(0)),
    ),
    max_size=60,
)


@given(pieces=st.lists(st.text("ab", min_size=1, max_size=3), max_size=12), script=deeds)
def test_spoken_answer_is_told_as_a_beginning_and_in_the_end_whole(
    pieces: list[str], script: list[tuple[str, Any]]
) -> None:
    """Signals and responses may be lost, repeated or late: nothing is reported twice."""
    server, device, whole = Server(pieces), Device(), "".join(pieces)
    for deed, value in script:
        if deed == "say" and server.said < len(server.pieces):
            server.said += 1
            if value:
                device.answers.signalled(server.signal(server.said - 1), 0.0)
        elif deed == "late" and server.said:
            device.answers.signalled(server.signal(value % server.said), 0.0)
        elif deed == "answer" and device.asked and server.said:
            take, failed = device.asked.pop(0)
            if value:
                take(server.joined(), 0.0)
            else:
                failed(Unavailable("no"), 0.0)
        elif deed == "join":
            device.answers.join("c", 0.0)
        elif deed == "reconnect":
            device.asked.clear()
            device.answers.reconnected(0.0)
        device.check("T1", whole)

    server.said = len(server.pieces)
    device.answers.joined(server.joined())
    assert device.check("T1", whole) == whole
    assert [event.end for event in device.told if event.end] == ["done"]


def test_spoken_gap_asks_once_until_it_is_answered() -> None:
    """However many pieces come behind it."""
    server, device = Server(["a", "b", "c", "d"]), Device()
    for index in (0, 2, 3, 4):
        device.answers.signalled(server.signal(index), 0.0)
    assert len(device.asked) == 1

    server.said = 4
    device.asked[0][0](server.joined(), 0.0)

    assert device.check("T1", "abcd") == "abcd"


def test_spoken_answer_that_begins_anew_takes_the_place_of_the_old() -> None:
    """After a worker crash, parts of its response are ignored, even if they arrive late."""
    old, new, device = Server(["x", "y"], "T1"), Server(["a", "b"], "T2"), Device()
    device.answers.signalled(old.signal(0), 0.0)
    device.answers.signalled(old.signal(1), 0.0)
    device.answers.signalled(new.signal(0), 0.0)
    device.answers.signalled(old.signal(2), 0.0)
    for index in (1, 2, 3):
        device.answers.signalled(new.signal(index), 0.0)

    assert device.check("T1", "xy") == "x"
    assert device.check("T2", "ab") == "ab"


def test_spoken_nothing_is_being_made() -> None:
    """Joining a response that does not exist reports nothing."""
    device = Device()
    device.answers.join("c", 0.0)
    take, _ = device.asked[0]
    take({"type": "turn", "chat": "c", "turn": "", "seq": 0, "index": 0, "text": ""}, 0.0)

    assert device.told == []
