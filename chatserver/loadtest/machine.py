"""Process and machine statistics from ``/proc``, and package versions."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PACKAGES = ("tierchat", "websockets", "uvloop", "msgspec", "redis", "hiredis")


def read_cpu_s(pid: int) -> float:
    """Return the CPU time, user and system, of all threads of a process (`/proc/<pid>/stat`)."""
    fields = _read_stat(pid)
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def read_parent(pid: int) -> int:
    return int(_read_stat(pid)[1])


def read_rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def read_command(pid: int) -> list[str]:
    """Return a process's command line; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return []


def list_pids() -> list[int]:
    """Return the ids of all visible processes; an empty list if there is no ``/proc``."""
    try:
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    except OSError:
        return []


def list_listeners(port: int) -> list[int]:
    """Return the ids of the visible processes that listen on a TCP port."""
    sockets: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{fields[9]}]")
    return [pid for pid in list_pids() if sockets & _list_open_files(pid)] if sockets else []


def _list_open_files(pid: int) -> set[str]:
    files: set[str] = set()
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                files.add(str(path.readlink()))
    return files


def _read_stat(pid: int) -> list[str]:
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The process name, in parentheses, may contain spaces and ")": split only what follows it.
    return stat[stat.rindex(")") + 2 :].split()


def describe_machine() -> dict[str, object]:
    model, memory_mb = "", None
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
        memory_mb = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    return {
        # `platform.processor` starts a process on Linux.
        "cpu": model or platform.processor() or "unknown",
        "cores": os.cpu_count(),
        "memory_mb": memory_mb,
        "kernel": platform.release(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def list_versions() -> dict[str, str | None]:
    """Return the versions of Python and of `_PACKAGES`; None for a package not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions
