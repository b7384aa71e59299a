"""Streamed AI responses: pieces of a response, assembled in order. No I/O.

Pieces may be lost, and a device may connect during a response. If an `index` is missing, the client
requests the text so far (`join_turn`). After a worker crash, the response starts again under a
later `turn` (response id); pieces of the earlier `turn` are ignored.

Invariant: the text delivered for a response is always a prefix of the full text, without a gap.
Bounds: `RESPONSES_MAX` responses; per response, `PENDING_MAX` pieces that wait for an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import msgspec

from chatserver.client.events import Event, ResponseUpdated
from chatserver.client.request_queue import Answer, Fields, SendRequest

KIND = "ai.delta"
RESPONSES_MAX = 100
PENDING_MAX = 500


class _Response(msgspec.Struct):
    """An AI response in progress. `index` is the index of the last delivered piece."""

    turn: str
    seq: int
    index: int = -1
    text: str = ""
    is_over: bool = False
    is_requested: bool = False
    pending: dict[int, tuple[str, str, str]] = {}


@attrs.define(eq=False, repr=False)
class CompanionResponses:
    """The AI responses in progress in all chats."""

    _send_request: SendRequest
    _emit: Callable[[Iterable[Event]], None]
    _responses: dict[str, _Response] = attrs.field(factory=dict, init=False)

    def handle_signal(self, frame: Fields, now: float) -> None:
        """Handle a piece of a response."""
        chat, turn = frame["chat"], frame["turn"]
        response = self._find_or_create(chat, turn, frame["seq"])
        if response is None or response.is_over:
            return
        if len(response.pending) < PENDING_MAX and frame["index"] > response.index:
            response.pending[frame["index"]] = (
                frame["text"],
                frame.get("end") or "",
                frame.get("tool") or "",
            )
        self._deliver_pending(chat, response)
        if response.pending:
            self.request_text(chat, now)

    def _find_or_create(self, chat: str, turn: str, seq: int) -> _Response | None:
        """Return or create the response with id `turn`; None if the chat has a later response."""
        response = self._responses.get(chat)
        if response is not None and turn < response.turn:
            return None
        if response is None or turn > response.turn:
            if len(self._responses) >= RESPONSES_MAX:
                del self._responses[next(iter(self._responses))]
            self._responses.pop(chat, None)
            response = self._responses[chat] = _Response(turn, seq)
        return response

    def _deliver_pending(self, chat: str, response: _Response) -> None:
        """Deliver the pieces that continue the delivered text."""
        while not response.is_over and response.index + 1 in response.pending:
            response.index += 1
            added, end, tool = response.pending.pop(response.index)
            response.text += added
            response.is_over = bool(end)
            self._report_progress(chat, response, added, end, tool)
        if response.is_over:
            response.pending.clear()

    def _report_progress(
        self, chat: str, response: _Response, added: str, end: str, tool: str = ""
    ) -> None:
        self._emit(
            [
                ResponseUpdated(
                    chat=chat,
                    seq=response.seq,
                    turn=response.turn,
                    added=added,
                    text=response.text,
                    end=end,
                    tool=tool,
                )
            ]
        )

    def request_text(self, chat: str, now: float) -> None:
        """Request the text generated so far for the response in `chat`."""
        pending = self._responses.get(chat)
        if pending is not None:
            if pending.is_requested:
                return
            pending.is_requested = True

        def handle_answer(answer: Answer, when: float) -> None:
            if pending is not None:
                pending.is_requested = False
            if isinstance(answer, dict):
                self.apply_text(answer)

        self._send_request({"type": "join_turn", "chat": chat}, handle_answer, now)

    def apply_text(self, frame: Fields) -> None:
        """Apply the response to `join_turn`."""
        chat, turn, index = frame["chat"], frame["turn"], frame["index"]
        response = self._find_or_create(chat, turn, frame["seq"]) if turn else None
        if response is None or response.is_over or index <= response.index:
            return
        added = frame["text"][len(response.text) :]
        response.text, response.index = frame["text"], index
        end = frame.get("end") or ""
        response.is_over = bool(end)
        response.pending = {
            number: piece for number, piece in response.pending.items() if number > index
        }
        self._report_progress(chat, response, added, end)
        self._deliver_pending(chat, response)

    def handle_reconnect(self, now: float) -> None:
        """Request the text that was missed while disconnected."""
        for chat, response in list(self._responses.items()):
            response.is_requested = False
            if not response.is_over:
                self.request_text(chat, now)
