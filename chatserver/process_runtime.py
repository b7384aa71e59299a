"""Process runtime: event loop, garbage collector, file limit and parent-death signals."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to completion, on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def tune_garbage_collector() -> None:
    """Limit the pauses of the garbage collector, and exempt all existing objects.

    Call after startup. A collection takes 1 to 3 ms per 1,000 objects that it examines: about 2,000
    new ones, and sometimes up to 12,000 that survived one collection. Messages create no reference
    cycles, but refused requests do (an exception, its traceback and a frame). Full collections, of
    all sessions, are rare. The objects created at startup (modules, AWS service models) would add
    100 ms to them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 4, 2_000)


def raise_file_limit() -> int:
    """Raise the open file limit to the hard limit, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else sys.maxsize


def make_parent_death_hook() -> Callable[[], None] | None:
    """Return a `preexec_fn` that makes the kernel kill the child when this process dies.

    The kernel tracks the *thread* that started the child, so start children from a thread that
    lives as long as the process: the main thread. Returns None on systems other than Linux, where
    only a graceful shutdown stops the children.
    """
    prctl = _find_prctl()
    if prctl is None:
        return None
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before `prctl`, so no signal will come
            os._exit(1)

    return in_child


def stop_with_parent() -> None:
    """Make the kernel send SIGTERM to this process when its parent dies."""
    prctl = _find_prctl()
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _find_prctl() -> Callable[[int, int], object] | None:
    # Look up `prctl` before the fork: between fork and exec, the child must not allocate or import.
    if not sys.platform.startswith("linux"):
        return None
    prctl: Callable[[int, int], object] = ctypes.CDLL(None, use_errno=True).prctl
    return prctl
