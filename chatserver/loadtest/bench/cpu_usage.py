"""CPU time of the benchmarked processes and of their cores, from ``/proc``."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from chatserver.loadtest.machine import read_cpu_s

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_IDLE_S, _IDLE_SHARE = 2.0, 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class CoreTimes:
    """CPU time of a core since the machine started, in seconds."""

    busy_s: float
    stolen_s: float  # CPU time (s) that the hypervisor gave to other virtual machines


@dataclasses.dataclass(frozen=True, slots=True)
class Cores:
    """The server core, the load generator's core, and the processes whose CPU time is measured."""

    server_core: int
    load_core: int
    pids: dict[str, int]  # maps a role to its process id; role "load" is this process

    def read_cpu_times(self) -> dict[str, float]:
        """Return the CPU seconds of each role and the server core, and the stolen CPU seconds."""
        times = {role: read_cpu_s(pid) for role, pid in self.pids.items()}
        core = read_core_times(self.server_core)
        times["_server_core"] = core.busy_s
        times["_stolen"] = core.stolen_s + read_core_times(self.load_core).stolen_s
        return times


def read_core_times(core: int) -> CoreTimes:
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            return CoreTimes((user + nice + system + irq + softirq) * _TICK_S, steal * _TICK_S)
    raise LookupError(f"no such CPU core: {core}")


def wait_for_idle_cores(limit_s: float) -> None:
    """Wait until all cores have been idle for two seconds, but at most `limit_s` seconds."""
    give_up_at = time.monotonic() + limit_s
    cores = range(os.cpu_count() or 1)
    while time.monotonic() < give_up_at:
        before = [read_core_times(core).busy_s for core in cores]
        time.sleep(_IDLE_S)
        after = [read_core_times(core).busy_s for core in cores]
        if max(b - a for a, b in zip(before, after, strict=True)) < _IDLE_S * _IDLE_SHARE:
            return


def compute_cpu_costs(
    before: dict[str, float], after: dict[str, float], elapsed_s: float, count: int
) -> dict[str, Any]:
    """Return CPU time per message by role, and other processes' share of the server core."""
    used = {role: after[role] - before[role] for role in before}
    core_s, stolen_s = used.pop("_server_core"), used.pop("_stolen")
    servers_s = sum(s for role, s in used.items() if role in ("gateway", "redis", "echo"))
    return {
        "cpu_us_per_message": {
            role: round(s / count * 1e6, 2) if count else None for role, s in used.items()
        },
        "cpu_share": {role: round(s / elapsed_s, 3) for role, s in used.items()},
        # CPU time of other processes and interrupts. Above a few percent, the run counts as
        # disturbed.
        "server_core_others_share": round(max(0.0, core_s - servers_s) / elapsed_s, 3),
        "stolen_share": round(stolen_s / elapsed_s, 3),
    }


async def measure_rate(
    count: Callable[[], int], cores: Cores, warmup_s: float, seconds: float
) -> dict[str, Any]:
    """Measure a running closed loop: its rate over `seconds` after a warm-up, and its CPU costs."""
    await asyncio.sleep(warmup_s)
    before, first, begin = cores.read_cpu_times(), count(), perf_counter()
    per_second: list[int] = []
    last, last_at = first, begin
    while not per_second or perf_counter() < begin + seconds - 0.5:
        await asyncio.sleep(min(1.0, begin + seconds - perf_counter()))
        now, started = count(), perf_counter()
        per_second.append(round((now - last) / (started - last_at)))
        last, last_at = now, started
    after, elapsed = cores.read_cpu_times(), perf_counter() - begin
    total = count() - first
    return {
        "messages": total,
        "seconds": round(elapsed, 3),
        "per_second": round(total / elapsed),
        "lowest_second": min(per_second),
        "highest_second": max(per_second),
        **compute_cpu_costs(before, after, elapsed, total),
    }
