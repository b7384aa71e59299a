"""Bounded queue of events that the application has not consumed yet (guarantee P8).

If the queue is full (`events_max`), the client leaves chat events on the server
(`ClientState.pause`). A full queue drops signals (typing, presence), updates of AI responses, and
acks that a call has already returned. It keeps only the newest connection state and the newest
`StoredUpto` of each chat.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

from chatserver.client.client_state import QueuedEvent
from chatserver.client.events import (
    Connected,
    Disconnected,
    Event,
    ResponseUpdated,
    SignalReceived,
    StoredUpto,
)


class EventQueue:
    """Events in order: at most `events_max`, and in addition events that must not be dropped."""

    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self._queue: collections.deque[QueuedEvent] = collections.deque()
        self.current: QueuedEvent | None = None  # last result of `pop`; may be in use
        # Events that arrived while the queue was full: the newest `StoredUpto` of each chat, and
        # the newest connection state (key "").
        self._newest: dict[str, QueuedEvent] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[QueuedEvent]:
        return iter(self._queue)

    @property
    def is_full(self) -> bool:
        """True while the client must leave events on the server."""
        return len(self._queue) >= self._events_max

    def put(self, queued: QueuedEvent) -> None:
        """Append an event; if the queue is full, coalesce or drop it where possible."""
        if not self.is_full:
            self._queue.append(queued)
            return
        match queued.event:
            case SignalReceived() | ResponseUpdated():
                pass
            case Connected() | Disconnected():
                self._newest[""] = queued
            case StoredUpto(chat):
                self._newest[chat] = queued
            case _ if not queued.is_known:
                self._queue.append(queued)

    def pop(self) -> Event:
        """Remove and return the oldest event."""
        self.current = self._queue.popleft()
        if not self._queue:
            self._queue.extend(self._newest.values())
            self._newest.clear()
        return self.current.event
