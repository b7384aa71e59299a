"""Bounded queue of events that the application has not consumed yet (promise P8).

At `events_max` the client leaves chat events on the server (`ClientState.pause`). Events that still
arrive beyond the bound are coalesced or dropped: signals are dropped, an ack already returned to
its caller is not repeated, and of connection states and `StoredUpto` only the newest is kept.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

from chatserver.client.events import (
    AnswerGrew,
    Connected,
    Disconnected,
    Event,
    SignalReceived,
    StoredUpto,
)
from chatserver.client.state import QueuedEvent


class EventQueue:
    """Events in order. Bound: `events_max`, plus events whose information is in no other place."""

    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self._queue: collections.deque[QueuedEvent] = collections.deque()
        self._newest: dict[str, QueuedEvent] = {}  # deferred: chat, or "" for connection

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[QueuedEvent]:
        return iter(self._queue)

    @property
    def is_full(self) -> bool:
        """True while the server is to hold back events."""
        return len(self._queue) >= self._events_max

    def put(self, queued: QueuedEvent) -> None:
        """Append an event, or coalesce or drop it if the queue is full."""
        if not self.is_full:
            self._queue.append(queued)
            return
        match queued.event:
            case SignalReceived() | AnswerGrew():
                pass
            case Connected() | Disconnected():
                self._newest[""] = queued
            case StoredUpto(chat):
                self._newest[chat] = queued
            case _ if not queued.is_known:
                self._queue.append(queued)

    def take(self) -> Event:
        """Remove and return the oldest event."""
        event = self._queue.popleft().event
        if not self._queue:
            self._queue.extend(self._newest.values())
            self._newest.clear()
        return event
