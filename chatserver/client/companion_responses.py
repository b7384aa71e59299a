"""Streamed AI responses: pieces of a response, assembled in order. No I/O.

Pieces may be lost, and a device may connect during a response. If an `index` is missing, the client
requests the text so far (`join_turn`). After a worker crash, the response starts again under a
later `turn` (response id); pieces of the earlier `turn` are ignored.

Invariant: the text delivered for a response is always a prefix of the full text, without a gap.
Bounds: `ANSWERS_MAX` responses; `HELD_MAX` pieces of each response that wait for an earlier piece.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from chatserver.client.events import AnswerGrew, Event
from chatserver.client.requests import Fields
from chatserver.errors import ChatError

KIND = "ai.delta"
ANSWERS_MAX = 100
HELD_MAX = 500


@dataclasses.dataclass(slots=True)
class _Answer:
    """An AI response in progress. `index` is the index of the last delivered piece."""

    turn: str
    seq: int
    index: int = -1
    text: str = ""
    is_over: bool = False
    is_asking: bool = False
    held: dict[int, tuple[str, str, str]] = dataclasses.field(default_factory=dict)


class CompanionResponses:
    """The AI responses in progress in all chats."""

    def __init__(
        self,
        ask: Callable[[Fields, Any, Any, float], None],
        emit: Callable[[Iterable[Event]], None],
    ) -> None:
        self._ask = ask
        self._emit = emit
        self._answers: dict[str, _Answer] = {}

    def signalled(self, frame: Fields, now: float) -> None:
        """Handle a piece of a response."""
        chat, turn = frame["chat"], frame["turn"]
        answer = self._find(chat, turn, frame["seq"])
        if answer is None or answer.is_over:
            return
        if len(answer.held) < HELD_MAX and frame["index"] > answer.index:
            answer.held[frame["index"]] = (
                frame["text"],
                frame.get("end") or "",
                frame.get("tool") or "",
            )
        self._deliver_held(chat, answer)
        if answer.held:
            self.join(chat, now)

    def _find(self, chat: str, turn: str, seq: int) -> _Answer | None:
        """Return or create the response with id `turn`; None if the chat has a later response."""
        answer = self._answers.get(chat)
        if answer is not None and turn < answer.turn:
            return None
        if answer is None or turn > answer.turn:
            if len(self._answers) >= ANSWERS_MAX:
                del self._answers[next(iter(self._answers))]
            self._answers.pop(chat, None)
            answer = self._answers[chat] = _Answer(turn, seq)
        return answer

    def _deliver_held(self, chat: str, answer: _Answer) -> None:
        """Deliver the pieces that continue the delivered text."""
        while not answer.is_over and answer.index + 1 in answer.held:
            answer.index += 1
            added, end, tool = answer.held.pop(answer.index)
            answer.text += added
            answer.is_over = bool(end)
            self._report_progress(chat, answer, added, end, tool)
        if answer.is_over:
            answer.held.clear()

    def _report_progress(
        self, chat: str, answer: _Answer, added: str, end: str, tool: str = ""
    ) -> None:
        self._emit([AnswerGrew(chat, answer.seq, answer.turn, added, answer.text, end, tool)])

    def join(self, chat: str, now: float) -> None:
        """Request the text of the response in `chat` so far."""
        known = self._answers.get(chat)
        if known is not None:
            if known.is_asking:
                return
            known.is_asking = True

        def over(_: Any, __: float) -> None:
            if known is not None:
                known.is_asking = False

        def take(frame: Fields, when: float) -> None:
            over(frame, when)
            self.joined(frame)

        def failed(error: ChatError, when: float) -> None:
            over(error, when)

        self._ask({"type": "join_turn", "chat": chat}, take, failed, now)

    def joined(self, frame: Fields) -> None:
        """Apply the answer to `join`."""
        chat, turn, index = frame["chat"], frame["turn"], frame["index"]
        answer = self._find(chat, turn, frame["seq"]) if turn else None
        if answer is None or answer.is_over or index <= answer.index:
            return
        added = frame["text"][len(answer.text) :]
        answer.text, answer.index = frame["text"], index
        end = frame.get("end") or ""
        answer.is_over = bool(end)
        answer.held = {place: held for place, held in answer.held.items() if place > index}
        self._report_progress(chat, answer, added, end)
        self._deliver_held(chat, answer)

    def reconnected(self, now: float) -> None:
        """Request the text that was missed while disconnected."""
        for chat, answer in list(self._answers.items()):
            answer.is_asking = False
            if not answer.is_over:
                self.join(chat, now)
