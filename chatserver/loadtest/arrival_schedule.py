"""Open-loop arrival schedule: actions run at times fixed in advance, however slow the server is.

A generator that waits for each response before its next request sends nothing while the server is
stalled, so the latencies that it measures are too low ("coordinated omission"). Here, every
scheduled action runs, late if necessary, and its latency counts from the scheduled (due) time.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator

_CLOCK_MONOTONIC = 1  # from <time.h>; `time.monotonic` uses the same clock
_ABSOLUTE = 1


def iter_arrivals(rate: float, seconds: float, chance: random.Random) -> Iterator[float]:
    """Yield the times, in seconds, of a Poisson process with `rate` events per second."""
    arrival_s = chance.expovariate(rate)
    while arrival_s < seconds:
        yield arrival_s
        arrival_s += chance.expovariate(rate)


class Pacer:
    """Calls `act(index, due)` at each scheduled time, then `on_late(seconds)` with the delay."""

    def __init__(
        self,
        due: Iterable[float],
        begin: float,
        act: Callable[[int, float], None],
        *,
        on_late: Callable[[float], object],
    ) -> None:
        self._due, self._begin, self._act, self._on_late = iter(due), begin, act, on_late
        self._index = 0
        self._next = next(self._due, None)
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._alarm = PreciseTimer(self.run_due_actions)
        self._alarm.set(begin)

    def run_due_actions(self) -> None:
        """Call `act` for all scheduled times that have passed."""
        elapsed = time.monotonic() - self._begin
        while self._next is not None and self._next <= elapsed:
            due = self._next
            self._next = next(self._due, None)
            self._act(self._index, self._begin + due)
            self._on_late(elapsed - due)
            self._index += 1
        if self._next is not None:
            self._alarm.set(self._begin + self._next)
        else:
            self.stop()

    def stop(self) -> None:
        self._next = None
        self._alarm.close()
        if not self.finished.done():
            self.finished.set_result(None)


class _Itimerspec(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")
    )


class PreciseTimer:
    """Microsecond timer without busy waiting: calls a callback at a given time.

    A busy-waiting load generator keeps its core fully loaded. A server on the other hyperthread of
    that core then runs at half speed, which distorts the measured latency. Systems other than Linux
    use the event loop's timer, which fires up to a millisecond late.
    """

    def __init__(self, on_expiry: Callable[[], None]) -> None:
        self._on_expiry = on_expiry
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
