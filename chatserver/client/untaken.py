"""Events that the application has not taken yet: a queue with a bound (promise P8).

At `events_max` the client leaves events of chats with the server (`ClientState.pause`). What comes
all the same tells of other things, and gives way: signals go first, an ack that its caller was
given is not told twice, and of the connection and of what is stored only the newest counts.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

from chatserver.client.events import (
    AnswerGrew,
    Connected,
    Disconnected,
    Event,
    Signalled,
    StoredUpto,
)
from chatserver.client.state import Told


class Untaken:
    """Events in order. Bound: `events_max`, and what nothing but its event tells beyond that."""

    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self._queue: collections.deque[Told] = collections.deque()
        self._newest: dict[str, Told] = {}  # told when there is room: chat, or "" → the last word

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Told]:
        return iter(self._queue)

    @property
    def is_full(self) -> bool:
        """True while the server is to keep what comes."""
        return len(self._queue) >= self._events_max

    def put(self, told: Told) -> None:
        """Add an event, if it is one that counts."""
        if not self.is_full:
            self._queue.append(told)
            return
        match told.event:
            case Signalled() | AnswerGrew():
                pass
            case Connected() | Disconnected():
                self._newest[""] = told
            case StoredUpto(chat):
                self._newest[chat] = told
            case _ if not told.is_known:
                self._queue.append(told)

    def take(self) -> Event:
        """Return the oldest event."""
        event = self._queue.popleft().event
        if not self._queue:
            self._queue.extend(self._newest.values())
            self._newest.clear()
        return event
