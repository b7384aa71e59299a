"""Simulated processes: groups of callbacks that share a memory, a clock and a fate.

A process is identified by a context variable, so every task, timer and callback that it creates
belongs to it. The loop runs the ready callbacks of one process as one tick, in order, as the
process's own event loop would. Between processes there is no order: the seed chooses.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any, Final


class Process:
    """A process of the simulation. `kind` selects its network links and its clock."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.ready: deque[Any] = deque()  # handles of `SimulatedLoop`
        self.is_queued = False  # in the loop's list of processes with ready callbacks
        self.is_dead = False
        self.is_paused = False
        self.handles_left: int | None = None  # die after this many callbacks
        self.skew_s = 0.0  # offset of the wall clock
        self.monotonic_s = 0.0  # offset of the monotonic clock, constant
        self.on_death: list[Callable[[], None]] = []
        # A killed process is not collected: no `finally` of its coroutines may run.
        self.remains: list[object] = []

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def run(self, callback: Callable[..., object], *args: object) -> None:
        """Call a function in a new context of this process."""
        make_context(self).run(callback, *args)


WORLD: Final = Process("world", "world")  # the test itself
PROCESS: Final[contextvars.ContextVar[Process]] = contextvars.ContextVar("process", default=WORLD)


def get_process() -> Process:
    """Return the process that runs now."""
    return PROCESS.get(WORLD)


def make_context(process: Process) -> contextvars.Context:
    """Return a context whose callbacks belong to a process."""
    context = contextvars.copy_context()
    context.run(PROCESS.set, process)
    return context
