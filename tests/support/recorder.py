"""What all clients of a run saw, as the checker wants it."""

from __future__ import annotations

import itertools
import time
from typing import Any

from tests.support.observations import AnyObservation, Row, Run


class Recorder:
    """Stamps and keeps the observations of all clients of a run."""

    def __init__(self, members: dict[str, set[str]] | None = None) -> None:
        self.run = Run(members if members is not None else {})
        self._start = time.monotonic()
        self.conns = itertools.count(1)

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._start

    def add(self, observation: AnyObservation) -> None:
        """Keep an observation."""
        self.run.seen.append(observation)

    def count(self, kind: type[Any]) -> int:
        """Return how many observations of a kind there are."""
        return sum(isinstance(seen, kind) for seen in self.run.seen)


def row_of(message: dict[str, Any]) -> Row:
    """Return a message as the checker wants it."""
    names = ("chat", "seq", "ts", "mid", "sender", "ref", "body")
    return Row(*(message[name] for name in names))
