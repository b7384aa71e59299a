"""Records the I/O of a test, by audit events of the interpreter.

An audit hook cannot be removed, so there is one for all tests, and it records only inside
`recorded_io`. Event loops use socket pairs, which cause none of these events.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import urllib3.util.connection  # noqa: F401  # binds a port when it is imported

_CALLS = (
    *("subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system"),
    *("socket.bind", "socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.send"),
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_ROOT = str(Path(__file__).parents[2])
_CACHES = ("__pycache__", ".hypothesis")

_records: list[list[str]] = []  # a list for each `recorded_io`, the innermost last


@contextlib.contextmanager
def recorded_io() -> Iterator[list[str]]:
    """Record processes, connections and written files of the repository inside the block."""
    found: list[str] = []
    _records.append(found)
    try:
        yield found
    finally:
        _records.remove(found)


def _record(event: str, args: tuple[Any, ...]) -> None:
    if not _records:
        return
    if event.startswith(_CALLS) or (event == "open" and _is_written(*args)):
        _records[-1].append(f"{event}{args}")


def _is_written(path: object, _mode: object, flags: int) -> bool:
    """Return whether a file of the repository is written that is not a cache."""
    if not flags & _WRITES or not isinstance(path, (str, Path)):
        return False
    name = str(Path(path).absolute())
    return name.startswith(_ROOT) and not any(cache in name for cache in _CACHES)


sys.addaudithook(_record)
