"""CPU time of the event loop's callbacks.

CPU time of the thread, not wall time, so that the load of the machine does not matter. Garbage
collection is off meanwhile, because its time depends on the objects of all other tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Iterator
from unittest import mock


class LoopCpu:
    """CPU time of the callbacks of one event loop, in seconds."""

    def __init__(self) -> None:
        self.callbacks = 0
        self.total_s = 0.0
        self.longest_s = 0.0
        self.longest = ""

    def add(self, used_s: float, handle: asyncio.Handle) -> None:
        self.callbacks += 1
        self.total_s += used_s
        if used_s > self.longest_s:
            self.longest_s, self.longest = used_s, repr(handle)


@contextlib.contextmanager
def measure_loop() -> Iterator[LoopCpu]:
    """Measure the callbacks that the event loop of this thread runs in the block."""
    cpu, thread, run = LoopCpu(), threading.get_ident(), asyncio.Handle._run

    def run_measured(handle: asyncio.Handle) -> None:
        if threading.get_ident() != thread:
            run(handle)
            return
        started = time.thread_time()
        try:
            run(handle)
        finally:
            cpu.add(time.thread_time() - started, handle)

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with mock.patch.object(asyncio.Handle, "_run", run_measured):
            yield cpu
    finally:
        if was_enabled:
            gc.enable()
