"""How processes of ours run: on the fastest event loop there is, and never longer than we do."""

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
    """Run until `main` returns, on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def tune_garbage_collector() -> None:
    """Collect less often, and leave out all objects that exist now. Call it after the start.

    Messages leave no cycles, and a full collection of what a start leaves (modules, models of AWS)
    stops the event loop for 100 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def raise_file_limit() -> int:
    """Allow this process as many open files as the system lets it have; return how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else sys.maxsize


def die_with_parent() -> Callable[[], None] | None:
    """Return what a child must call before `exec`, to be killed by the kernel when we die.

    For `preexec_fn`. The kernel watches the *thread* that started the child, so start children
    from a thread that lives as long as the process: the main one. Elsewhere than on Linux there
    is no such thing and the answer is None; there, only an orderly end takes the children along.
    """
    prctl = _find_prctl()
    if prctl is None:
        return None
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call above: no signal will come
            os._exit(1)

    return in_child


def stop_with_parent() -> None:
    """Have the kernel send this process SIGTERM when its parent dies."""
    prctl = _find_prctl()
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _find_prctl() -> Callable[[int, int], object] | None:
    # Looked up before a fork: the child, between fork and exec, should allocate and import nothing.
    if not sys.platform.startswith("linux"):
        return None
    prctl: Callable[[int, int], object] = ctypes.CDLL(None, use_errno=True).prctl
    return prctl
