"""Pending requests by number. No I/O.

Queries and idempotent requests (`is_retried`) are sent again on the next connection, until their
deadline. At most `IN_FLIGHT_MAX` requests are in flight (the server allows 32); the others are
queued in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chatserver.errors import (
    ERRORS_BY_CODE,
    BadRequest,
    ChatError,
    Conflict,
    Overloaded,
    Unavailable,
)

IN_FLIGHT_MAX = 24
CONFLICT_RETRY_MS = 100
Fields = dict[str, Any]
Answer = Fields | ChatError
OnAnswer = Callable[[Answer, float], None]  # called with the answer and the time
# Sends a request on the current connection only. The arguments are fields, on_answer, now.
SendRequest = Callable[[Fields, OnAnswer, float], None]


def parse_error(frame: Fields) -> ChatError:
    """Convert an `error` frame to an exception. An unknown code becomes a plain `ChatError`."""
    kind = ERRORS_BY_CODE.get(frame.get("code", ""), ChatError)
    error = kind(frame.get("message", ""), retry_after_ms=frame.get("retry_after_ms"))
    error.temporary = bool(frame.get("temporary", kind.temporary))
    return error


def check_text(fields: Fields) -> None:
    """Check that all text can be encoded as UTF-8.

    Raises:
        BadRequest: a string contains a lone surrogate.
    """
    try:
        msgspec.json.encode(fields)
    except UnicodeEncodeError as exc:
        raise BadRequest("text contains a lone surrogate") from exc


class QueuedRequest(msgspec.Struct, eq=False):
    """One request. `on_answer` is called once, with the response or the error.

    If the request is removed, or dropped after a disconnect, it is not called.
    """

    fields: Fields
    on_answer: OnAnswer
    deadline: float
    is_retried: bool  # True: send again after a conflict, and on the next connection
    id: int = 0
    not_before: float = 0.0  # time of the earliest retry after a conflict


class RequestQueue:
    def __init__(self, requests_max: int) -> None:
        self._requests_max = requests_max
        self._queued: dict[int, QueuedRequest] = {}
        self._in_flight: dict[int, QueuedRequest] = {}
        self._last_id = 0

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def add(self, request: QueuedRequest) -> int:
        """Add a request to the queue.

        Raises:
            Overloaded: too many requests are pending.
        """
        waiting = len(self._queued) + len(self._in_flight)
        if request.is_retried and waiting >= self._requests_max:
            raise Overloaded(f"{self._requests_max} requests are in flight; wait for responses")
        request.id = self.next_id()
        self._queued[request.id] = request
        return request.id

    def next_frames(self, now: float) -> list[Fields]:
        frames = []
        for request in [waiting for waiting in self._queued.values() if waiting.not_before <= now]:
            if len(self._in_flight) >= IN_FLIGHT_MAX:
                break
            del self._queued[request.id]
            self._in_flight[request.id] = request
            frames.append({**request.fields, "id": request.id})
        return frames

    def handle_answer(self, frame: Fields, now: float) -> bool:
        """Handle a response or an error; return False if no request matches it."""
        request = self._in_flight.pop(frame.get("id", -1), None)
        if request is None:
            return False
        if frame["type"] != "error":
            request.on_answer(frame, now)
            return True
        error = parse_error(frame)
        if request.is_retried and error.temporary and error.code == Conflict.code:
            # A concurrent request changed the data. A retry succeeds or fails permanently.
            request.not_before = now + (error.retry_after_ms or CONFLICT_RETRY_MS) / 1000
            if request.not_before < request.deadline:
                self._queued[request.id] = request
                return True
        request.on_answer(error, now)
        return True

    def remove(self, number: int) -> None:
        """Drop a request whose caller is no longer waiting."""
        self._queued.pop(number, None)
        self._in_flight.pop(number, None)

    def handle_disconnect(self) -> None:
        """Requeue the requests with `is_retried`; drop the others."""
        retried = {n: r for n, r in (self._in_flight | self._queued).items() if r.is_retried}
        self._queued = dict(sorted(retried.items()))
        self._in_flight.clear()

    def expire(self, now: float) -> None:
        """Fail the requests whose deadline has passed."""
        for number, request in list((self._in_flight | self._queued).items()):
            if request.deadline <= now:
                self.remove(number)
                request.on_answer(Unavailable("no response in time"), now)

    def list_due_times(self) -> list[float]:
        """Return the deadlines of all requests, and the retry times after conflicts."""
        requests = (self._in_flight | self._queued).values()
        retries = [
            request.not_before for request in self._queued.values() if request.not_before > 0
        ]
        return [*(request.deadline for request in requests), *retries]
