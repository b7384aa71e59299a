"""Time as objects that are passed in, so that tests own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for people and expiries; monotonic time for deadlines."""

    def time(self) -> float: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's clocks."""

    def time(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""
        return time.monotonic()
