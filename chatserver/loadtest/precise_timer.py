"""Microsecond timer without busy waiting, based on timerfd.

A busy-waiting load generator keeps its core fully loaded. A server on the other hyperthread of that
core then runs at half speed, which distorts the measured latency. Systems other than Linux use the
event loop's timer, which fires up to a millisecond late.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1  # from <time.h>; `time.monotonic` uses the same clock
_ABSOLUTE = 1


class _Itimerspec(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")
    )


class PreciseTimer:
    """Calls a callback at a given time; `set` replaces the previous time."""

    def __init__(self, on_ring: Callable[[], None]) -> None:
        self._on_expiry = on_ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._fd = -1
        if sys.platform.startswith("linux"):
            self._libc = ctypes.CDLL(None, use_errno=True)
            flags = os.O_NONBLOCK | os.O_CLOEXEC
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, flags)
            if self._fd < 0:
                raise OSError(ctypes.get_errno(), "timerfd_create")
            self._loop.add_reader(self._fd, self._handle_expiry)

    def set(self, deadline: float) -> None:
        """Fire at `deadline` (on the `time.monotonic` clock), or immediately if it has passed."""
        if self._fd < 0:
            self._timer = self._loop.call_later(
                max(0.0, deadline - time.monotonic()), self._on_expiry
            )
            return
        ns = max(1, int(deadline * 1e9))
        spec = _Itimerspec(0, 0, ns // 1_000_000_000, ns % 1_000_000_000)
        self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(spec), None)

    def _handle_expiry(self) -> None:
        os.read(self._fd, 8)
        self._on_expiry()

    def close(self) -> None:
        """Release the timer. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
