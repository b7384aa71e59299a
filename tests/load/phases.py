"""The two ways to load a server: a closed loop for the rate, an open loop for the latency."""

from __future__ import annotations

import asyncio
import dataclasses
from array import array
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from chatserver.loadtest.arrival_schedule import Pacer, schedule
from tests.load import probe
from tests.load.pair import Pair


@dataclasses.dataclass(frozen=True, slots=True)
class Cores:
    """Where processes were put, and which ones to charge for a phase."""

    server_core: int
    load_core: int
    pids: dict[str, int]  # role → process; "load" is this one

    def snapshot(self) -> dict[str, float]:
        """Return the CPU seconds that each role and each core has used so far."""
        times = {role: probe.cpu_s(pid) for role, pid in self.pids.items()}
        core = probe.core_times(self.server_core)
        times["_server_core"] = core.busy_s
        times["_stolen"] = core.stolen_s + probe.core_times(self.load_core).stolen_s
        return times


def spent(
    before: dict[str, float], after: dict[str, float], elapsed_s: float, count: int
) -> dict[str, Any]:
    """Return what a phase cost: CPU per message of each role, and who else was on the core."""
    used = {role: after[role] - before[role] for role in before}
    core_s, stolen_s = used.pop("_server_core"), used.pop("_stolen")
    servers_s = sum(s for role, s in used.items() if role in ("gateway", "redis", "echo"))
    return {
        "cpu_us_per_message": {
            role: round(s / count * 1e6, 2) if count else None for role, s in used.items()
        },
        "cpu_share": {role: round(s / elapsed_s, 3) for role, s in used.items()},
        # Processes that are not ours, and interrupts: above a few percent the run is disturbed.
        "server_core_others_share": round(max(0.0, core_s - servers_s) / elapsed_s, 3),
        "stolen_share": round(stolen_s / elapsed_s, 3),
    }


async def sample_rate(
    count: Callable[[], int], cores: Cores, warmup_s: float, seconds: float
) -> dict[str, Any]:
    """Watch a running closed loop: its rate over `seconds` after a warm-up, and what it cost."""
    await asyncio.sleep(warmup_s)
    before, first, begin = cores.snapshot(), count(), perf_counter()
    per_second: list[int] = []
    last, last_at = first, begin
    while perf_counter() < begin + seconds - 0.5:
        await asyncio.sleep(min(1.0, begin + seconds - perf_counter()))
        now, at = count(), perf_counter()
        per_second.append(round((now - last) / (at - last_at)))
        last, last_at = now, at
    after, elapsed = cores.snapshot(), perf_counter() - begin
    total = count() - first
    return {
        "messages": total,
        "seconds": round(elapsed, 3),
        "per_second": round(total / elapsed),
        "lowest_second": min(per_second),
        "highest_second": max(per_second),
        **spent(before, after, elapsed, total),
    }


async def closed_loop(
    pairs: Sequence[Pair], cores: Cores, window: int, warmup_s: float, seconds: float
) -> dict[str, Any]:
    """Measure the rate of messages acked and delivered, `window` under way in each pair."""
    for pair in pairs:
        pair.start_window(window)
    figures = await sample_rate(lambda: sum(p.done for p in pairs), cores, warmup_s, seconds)
    for pair in pairs:
        pair.stop_window()
    await drain(pairs)
    return {"window": window, **figures}


async def open_loop(
    pairs: Sequence[Pair], cores: Cores, rate: float, warmup_s: float, seconds: float, seed: int
) -> dict[str, Any]:
    """Measure latencies at a rate that does not follow the server.

    Messages are due at times of a Poisson process, fixed before the first is sent; a latency runs
    from when a message was due, so a server (or a generator) that falls behind shows it.
    """
    due, order = schedule(rate, warmup_s + seconds, len(pairs), seed)
    for pair in pairs:
        pair.start_recording()
    begin = perf_counter() + 0.1
    lateness = array("d")
    pacer = Pacer(
        due, begin, lambda index, at: pairs[order[index]].send_one(at), on_late=lateness.append
    )
    measured_from = begin + warmup_s
    await asyncio.sleep(0.1 + warmup_s)
    before, at, first = cores.snapshot(), perf_counter(), sum(p.done for p in pairs)
    await pacer.finished
    after, elapsed = cores.snapshot(), perf_counter() - at
    count = sum(p.done for p in pairs) - first
    await drain(pairs)
    for pair in pairs:
        pair.stop_recording()
    acked: list[float] = []
    delivered: list[float] = []
    for pair in pairs:
        for times, into in ((pair.sender.ack_at, acked), (pair.receiver.event_at, delivered)):
            into.extend(
                at - intended
                for intended, at in zip(pair.intended, times, strict=False)
                if intended >= measured_from
            )
    costs = spent(before, after, elapsed, count)
    late = [s for s, d in zip(lateness, due, strict=True) if d >= warmup_s]
    return {
        "asked_per_second": round(rate),
        "seconds": round(elapsed, 3),
        "messages": len(acked),
        "ack_ms": percentiles_ms(acked),
        "delivered_ms": percentiles_ms(delivered),
        "sent_late_ms": percentiles_ms(late),  # the generator's own part of the latencies
        **costs,
    }


async def drain(pairs: Sequence[Pair], deadline_s: float = 15) -> None:
    """Wait until all that was sent has come; report what has not, and what came twice."""
    until = perf_counter() + deadline_s
    while not all(pair.is_quiet for pair in pairs) and perf_counter() < until:
        await asyncio.sleep(0.02)
    for pair in pairs:
        pair.note_missing()
    # What the server wrote before its pong has been read after this, a repeated event included.
    await asyncio.gather(*(s.ping() for p in pairs for s in (p.sender, p.receiver)))


def percentiles_ms(values: Sequence[float]) -> dict[str, float | None]:
    """Return the usual percentiles, in milliseconds (nearest rank)."""
    ranked = sorted(values)
    if not ranked:  # of a void run
        return dict.fromkeys(("p50", "p90", "p99", "p999", "max"))

    def at(share: float) -> float:
        index = min(len(ranked) - 1, max(0, -(-int(len(ranked) * share * 1000) // 1000) - 1))
        return round(ranked[index] * 1000, 3)

    return {
        "p50": at(0.5),
        "p90": at(0.9),
        "p99": at(0.99),
        "p999": at(0.999),
        "max": round(ranked[-1] * 1000, 3),
    }
