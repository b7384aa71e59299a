"""Recorder of the observations of all clients of a run, in the checker's format."""

from __future__ import annotations

import itertools
import time
from typing import Any

from tests.support.observations import AnyObservation, Row, Run


class Recorder:
    """Records the observations of all clients of a run with timestamps."""

    def __init__(self, members: dict[str, set[str]] | None = None) -> None:
        self.run = Run(members if members is not None else {})
        self._start = time.monotonic()
        self.conns = itertools.count(1)

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self._start

    def add(self, observation: AnyObservation) -> None:
        """Record an observation."""
        self.run.seen.append(observation)

    def count(self, kind: type[Any]) -> int:
        """Return the number of observations of a kind."""
        return sum(isinstance(seen, kind) for seen in self.run.seen)


def row_of(message: dict[str, Any]) -> Row:
    """Convert a message to the checker's format."""
    names = ("chat", "seq", "ts", "mid", "sender", "ref", "body")
    return Row(*(message[name] for name in names))
