"""Clocks that tests set instead of waiting."""

from __future__ import annotations

from chatserver.domain.clock import SystemClock


class FakeClock:
    """A clock that moves only when a test sets `now` or advances it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    monotonic = time

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self.now += seconds


class ShiftedClock(SystemClock):
    """The system clock, with offsets that a test sets: wall time is wrong, or a process slept."""

    def __init__(self, *, wall_s: float = 0.0, monotonic_s: float = 0.0) -> None:
        self.wall_s = wall_s
        self.monotonic_s = monotonic_s

    def time(self) -> float:
        return super().time() + self.wall_s

    def monotonic(self) -> float:
        return super().monotonic() + self.monotonic_s
