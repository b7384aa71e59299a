"""Work of one search request in threads: its time, CPU time and matched characters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from chatserver.errors import Unavailable

TIMED_OUT: Final = "search: the index did not respond in time; try again"
T = TypeVar("T")


class WorkBudget:
    """Ends the work of a request in threads, and measures its CPU time.

    Work in a thread checks `is_over` often, so a thread is free shortly after the deadline, or
    after the request was cancelled.
    """

    def __init__(self, time_s_max: float) -> None:
        self.cpu_s = 0.0  # used by finished work, in all threads
        self._lock = threading.Lock()
        self.matched_chars = 0
        self.charged = 0  # tokens that the user was charged for `cpu_s`
        self._ends_at = time.monotonic() + time_s_max
        self._is_cancelled = False

    @property
    def left_s(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self._ends_at - time.monotonic())

    def is_over(self) -> bool:
        """Return whether the request was cancelled or its deadline has passed."""
        return self._is_cancelled or not self.left_s

    def cancel(self) -> None:
        """End all work of the request."""
        self._is_cancelled = True

    def check(self) -> None:
        """Raise Unavailable if the work must end."""
        if self.is_over():
            raise Unavailable(TIMED_OUT)

    def run(self, work: Callable[[], T]) -> T:
        """Run `work` in the calling thread.

        Raises:
            Unavailable: the request was over before `work` started.
        """
        self.check()
        started = time.thread_time()
        try:
            return work()
        finally:
            used_s = time.thread_time() - started
            with self._lock:
                self.cpu_s += used_s
