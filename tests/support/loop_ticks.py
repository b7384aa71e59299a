"""The longest tick of a server's event loop, by CPU time.

A tick runs all callbacks that are ready, so its duration is how long other requests wait. A process
of `tests.support.cli` whose environment has `PYTEST_LOOP_TICKS`, the path of a folder, runs on
asyncio's own loop, which is slower than uvloop, and records its ticks in a file named by its id.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final

FOLDER: Final = "PYTEST_LOOP_TICKS"
_FORMAT: Final = struct.Struct("<qq")  # longest tick and sum of all ticks, in ns


def _map_file(file: Path) -> mmap.mmap:
    with file.open("r+b") as opened:
        return mmap.mmap(opened.fileno(), _FORMAT.size)


class _MeteredLoop(asyncio.SelectorEventLoop):
    """Asyncio's loop, which records the CPU time of its ticks."""

    def __init__(self) -> None:
        super().__init__()
        file = Path(os.environ[FOLDER]) / str(os.getpid())
        file.write_bytes(bytes(_FORMAT.size))
        self._ticks = _map_file(file)

    def _run_once(self) -> None:
        started = time.thread_time_ns()
        super()._run_once()  # type: ignore[misc]  # asyncio's method, which its types leave out
        used = time.thread_time_ns() - started
        longest, total = _FORMAT.unpack_from(self._ticks)
        _FORMAT.pack_into(self._ticks, 0, max(longest, used), total + used)


def record_ticks() -> None:
    """Record the ticks of this process's event loop from its start on."""
    import uvloop

    uvloop.new_event_loop = _MeteredLoop  # type: ignore[assignment]  # `process_runtime` uses it


class TickReader:
    """Reads the recorded ticks of a process."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._ticks = _map_file(folder / str(pid))

    def restart(self) -> None:
        """Forget the ticks until now."""
        _FORMAT.pack_into(self._ticks, 0, 0, 0)

    def read_ms(self) -> tuple[float, float]:
        """Return the longest tick and the sum of all ticks, in ms."""
        longest, total = _FORMAT.unpack_from(self._ticks)
        return longest / 1e6, total / 1e6
