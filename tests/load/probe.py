"""What the kernel says about processes and cores: CPU time, memory, who else was running."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_CALM_S, _CALM_SHARE = 2.0, 0.05
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """Return the CPU time, user and system, of all threads of a process (`/proc/<pid>/stat`)."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The name in brackets may itself hold spaces and brackets: count from the last one.
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


@dataclasses.dataclass(frozen=True, slots=True)
class Core:
    """How a core spent its time since the machine started, in seconds."""

    busy_s: float
    stolen_s: float  # taken by the hypervisor for others


def core_times(core: int) -> Core:
    """Return what `/proc/stat` says about one core."""
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            return Core((user + nice + system + irq + softirq) * _TICK_S, steal * _TICK_S)
    raise LookupError(f"there is no core {core}")


def wait_for_calm(limit_s: float) -> None:
    """Return when all cores were idle for two seconds, or when `limit_s` is over."""
    give_up = time.monotonic() + limit_s
    while time.monotonic() < give_up:
        before = [core_times(core).busy_s for core in range(os.cpu_count() or 1)]
        time.sleep(_CALM_S)
        after = [core_times(core).busy_s for core in range(os.cpu_count() or 1)]
        if max(b - a for a, b in zip(before, after, strict=True)) < _CALM_S * _CALM_SHARE:
            return


def machine() -> dict[str, object]:
    """Return what a reader must know of the machine to compare figures."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_mb": memory_kb // 1024,
        "kernel": platform.release(),
        "system": f"{platform.system()} {platform.machine()}",
    }
