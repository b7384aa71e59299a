"""Open-loop arrival schedule: actions run at times fixed in advance, however slow the server is.

A generator that waits for each response before its next request sends nothing while the server is
stalled, so the latencies that it measures are too low ("coordinated omission"). Here, every
scheduled action runs, late if necessary, and its latency counts from the scheduled (due) time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator

from chatserver.loadtest.precise_timer import PreciseTimer


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
