"""What the kernel says about processes and about cores: CPU time, memory, who else was running."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

from chatserver.loadtest.machine import cpu_s, machine, rss_bytes

__all__ = ["Core", "core_times", "cpu_s", "machine", "rss_bytes", "wait_for_calm"]

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_CALM_S, _CALM_SHARE = 2.0, 0.05


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
