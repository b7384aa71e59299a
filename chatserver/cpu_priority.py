"""CPU priorities of processes and threads."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path


def lower_process_priority(nice: int) -> None:
    """Give this process a nice value of at least `nice`. Call it before other threads start.

    With autogroup scheduling, Linux compares nice values only between processes of the same POSIX
    session. If this process leads a session, the session as a whole therefore gets `nice`, too.
    """
    os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError, ValueError):
            autogroup = Path("/proc/self/autogroup")
            current = int(autogroup.read_text().rpartition("nice")[2])
            autogroup.write_text(str(max(nice, current)))


def lower_thread_priority(nice: int) -> None:
    """Give this thread a nice value of at least `nice`; only on Linux."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread)))
