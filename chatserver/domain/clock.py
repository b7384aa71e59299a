"""Injected clocks, so that tests can control time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time for display and expiry; monotonic time for deadlines."""

    def time(self) -> float: ...

    def monotonic(self) -> float: ...


class SystemClock:
    def time(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Return the seconds since a fixed point; never decreases."""
        return time.monotonic()


def get_now_ms(clock: Clock) -> int:
    """Return the wall-clock time in milliseconds since 1970."""
    return int(clock.time() * 1000)
