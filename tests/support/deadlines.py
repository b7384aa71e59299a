"""Waits for child processes, each with a deadline.

pytest's timeout interrupts a test once. If its clean-up then waits for a process that never ends,
the whole run hangs. `tests/unit/support/test_deadlines.py` finds waits without a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

EXIT_S = 120.0  # a process that was signalled ends within this time, even on a busy machine


async def wait_for_exit(process: asyncio.subprocess.Process, deadline_s: float = EXIT_S) -> int:
    """Wait until a process ends; return its exit code.

    Raises:
        AssertionError: it has not ended in time; it is killed.
    """
    try:
        async with asyncio.timeout(deadline_s):
            return await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise AssertionError(f"process {process.pid} has not ended in {deadline_s:g} s") from None


def wait_for_pid(pid: int, deadline_s: float = EXIT_S) -> int:
    """Wait until a child process ends; return its exit code.

    Raises:
        AssertionError: it has not ended in time.
    """
    pidfd = os.pidfd_open(pid)
    try:
        has_ended = select.select([pidfd], [], [], deadline_s)[0]
        assert has_ended, f"process {pid} has not ended in {deadline_s:g} s"
        return os.waitstatus_to_exitcode(os.waitpid(pid, os.WNOHANG)[1])
    finally:
        os.close(pidfd)


@contextlib.contextmanager
def open_process(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process, and kill it at the end, because it may ignore SIGTERM."""
    process = subprocess.Popen(argv, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait(EXIT_S)
