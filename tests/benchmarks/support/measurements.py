"""Statistics, and CPU time of processes and their cores from ``/proc``."""

from __future__ import annotations

import asyncio
import math
import os
import random
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from chatserver.dev.servers import Server
from chatserver.loadtest.arrival_schedule import iter_arrivals
from chatserver.loadtest.machine import read_cpu_s
from tests.support.servers.processes import redis_client

Figures = dict[str, Any]
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# Cores of the measured servers, and of the load generator and the other processes.
SERVER_CORE, LOAD_CORE = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))


def summarize_ms(times_s: Sequence[float]) -> Figures:
    """Return the count, the minimum, percentiles (nearest rank) and the maximum of some times."""
    ranked = sorted(times_s)
    shares = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
    found = {
        f"{name}_ms": round(ranked[max(0, math.ceil(len(ranked) * share) - 1)] * 1000, 3)
        for name, share in shares.items()
        if ranked
    }
    return {"count": len(ranked), **found}


def build_schedule(
    rate: float, seconds: float, senders: int, seed: int
) -> tuple[array[float], list[int]]:
    """Return `(times, senders)`: the scheduled time of each message, in seconds, and its sender.

    The times are a Poisson process, the same for the same seed.
    """
    chance = random.Random(seed)
    due = array("d", iter_arrivals(rate, seconds, chance))
    return due, [chance.randrange(senders) for _ in due]


def read_redis_commands(url: str) -> dict[str, dict[str, float]]:
    """Return the statistics of Redis for each command, the most expensive one first."""
    with redis_client(url) as client:
        stats: dict[str, dict[str, float]] = client.info("commandstats")  # type: ignore[assignment]
    ranked = sorted(stats.items(), key=lambda each: -each[1]["usec"])
    return {name.removeprefix("cmdstat_"): each for name, each in ranked}


def get_pid(server: Server) -> int:
    assert server.process is not None
    return server.process.pid


def pin(pid: int, core: int) -> None:
    """Bind a process with all its threads to a core."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})


class CpuMeter:
    """CPU time of servers by role and of this process (`load`), and of the servers' core."""

    def __init__(self, servers: dict[str, Server]) -> None:
        self._pids = {role: get_pid(server) for role, server in servers.items()}
        self._pids["load"] = os.getpid()

    def start(self, count: Callable[[], int]) -> Callable[[], Figures]:
        """Start a measurement; the returned function ends it, and returns rates and CPU costs.

        `count` returns how often the measured action has happened.
        """
        before, first, begin = self._read(), count(), perf_counter()

        def end() -> Figures:
            after, total, elapsed_s = self._read(), count() - first, perf_counter() - begin
            used_s = {role: after[role] - before[role] for role in before}
            core_s, stolen_s = used_s.pop("core"), used_s.pop("stolen")
            others_s = core_s - sum(s for role, s in used_s.items() if role in ("gateway", "redis"))
            return {
                "count": total,
                "seconds": round(elapsed_s, 3),
                "per_second": round(total / elapsed_s),
                "cpu_us_each": {
                    role: round(s / max(1, total) * 1e6, 2) for role, s in used_s.items()
                },
                "cpu_share": {role: round(s / elapsed_s, 3) for role, s in used_s.items()},
                # Above a few percent, other processes disturbed the measurement.
                "server_core_others_share": round(max(0.0, others_s) / elapsed_s, 3),
                "stolen_share": round(stolen_s / elapsed_s, 3),
            }

        return end

    async def measure(self, count: Callable[[], int], warmup_s: float, seconds: float) -> Figures:
        """Measure for some seconds after a warm-up."""
        await asyncio.sleep(warmup_s)
        end = self.start(count)
        await asyncio.sleep(seconds)
        return end()

    def _read(self) -> dict[str, float]:
        times = {role: read_cpu_s(pid) for role, pid in self._pids.items()}
        times["core"], stolen_s = _read_core_times(SERVER_CORE)
        times["stolen"] = stolen_s + _read_core_times(LOAD_CORE)[1]
        return times


def _read_core_times(core: int) -> tuple[float, float]:
    """Return how long a core was busy, and how long the hypervisor gave it to other machines."""
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            return (user + nice + system + irq + softirq) * _TICK_S, steal * _TICK_S
    raise LookupError(f"no such CPU core: {core}")
