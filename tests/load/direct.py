"""Direct messages: how many a second, how fast at half of that, and at what cost.

    python -m tests.load.direct [--pairs 200] [--window 8] [--seconds 10] [--runs 3] [--out F.json]

One gateway process and Redis share one core, the load generator has another. Each run starts a
fresh stack and measures, one after the other: memory per idle session, the closed-loop rate of
messages acked and delivered, latencies of an open loop at half of that rate, and the rate of the
gateway's connection class behind an echo in the same place. Every message is checked for loss,
repetition and order. The persist worker is off unless ``--with-persist`` asks for a second figure
with it. It prints a table, writes JSON and never gates: it exits with 1 only if a message went
wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import uvloop

from chatserver.dev.servers import Server
from tests.load import idle, probe, report, stack
from tests.load.connection import Tally
from tests.load.pair import Pair
from tests.load.people import open_pairs
from tests.load.phases import Cores, closed_loop, open_loop
from tests.load.servers.echo_load import load_echo

PERSIST_START_S = 30


@click.command(help=(__doc__ or "").replace("\n\n", "\n\n\b\n", 1))
@click.option("--pairs", default=200, show_default=True, help="Direct chats, two sessions each.")
@click.option("--window", default=8, show_default=True, help="Messages under way in each pair.")
@click.option("--seconds", default=10.0, show_default=True, help="Measured time of each phase.")
@click.option("--warmup", default=3.0, show_default=True, help="Time before it, not measured.")
@click.option("--runs", default=3, show_default=True, help="Medians are taken over the runs.")
@click.option("--frame-bytes", default=200, show_default=True, help="Whole JSON of one `send`.")
@click.option("--idle-sessions", default=2000, show_default=True, help="0: leave this out.")
@click.option("--open-rate", type=float, help="Rate of the open loop; default: half of the closed.")
@click.option(
    "--appendfsync",
    type=click.Choice(["off", "no", "everysec", "always"]),
    default="everysec",
    show_default=True,
    help="Redis's log on disk; `off` keeps none.",
)
@click.option("--aof-rewrite", is_flag=True, help="Let Redis rewrite its log while measuring.")
@click.option("--with-persist", is_flag=True, help="Then a second rate, with the persist worker.")
@click.option("--server-core", default=0, show_default=True)
@click.option("--load-core", default=1, show_default=True)
@click.option(
    "--target", type=click.Choice(["gateway", "stub"]), default="gateway", show_default=True
)
@click.option(
    "--plant", type=click.Choice(["lose", "repeat", "swap"]), help="Make the stub misbehave."
)
@click.option(
    "--calm", default=0.0, help="Wait so many seconds for other work to end, before each run."
)
@click.option("--retries", default=0, help="Runs that other work disturbed are done again.")
@click.option("--profile", type=Path, help="Py-spy profile of the gateway (extra, uncounted run).")
@click.option("--out", type=Path, help="Write all figures to this file.")
def main(**options: Any) -> None:
    """Run the benchmark."""
    os.sched_setaffinity(0, {options["load_core"]})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)), hard))
    load_average = os.getloadavg()
    runs: list[dict[str, Any]] = []
    discarded: list[str] = []
    while len(runs) < options["runs"]:
        probe.wait_for_calm(options["calm"])
        with tempfile.TemporaryDirectory(prefix="chatserver-load-") as folder:
            run = uvloop.run(_run(len(runs), options, Path(folder)))
        click.echo(report.line(len(runs) + 1, run), err=True)
        # A run with a violation is kept, whatever disturbed it; refused sends are none.
        is_useless = report.is_disturbed(run) and run["violations"].keys() <= {"refused"}
        if is_useless and len(discarded) < options["retries"]:
            discarded.append(report.line(len(runs) + 1, run))
        else:
            runs.append(run)
    result = report.build(options, runs, discarded, load_average)
    if options["out"] is not None:
        options["out"].write_text(report.to_json(result))
    click.echo(report.table(result))
    sys.exit(1 if result["violations"] else 0)


async def _run(number: int, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    placement = stack.Options(
        options["server_core"],
        options["load_core"],
        options["appendfsync"],
        options["aof_rewrite"],
    )
    tally = Tally()
    result: dict[str, Any] = {}
    with contextlib.ExitStack() as exits:
        if options["target"] == "stub":
            running = exits.enter_context(stack.stub_stack(placement, folder, options["plant"]))
        else:
            running = exits.enter_context(stack.chat_stack(placement, folder))
        cores = Cores(placement.server_core, placement.load_core, running.pids())
        result["redis_version"] = report.redis_version(running)
        if options["idle_sessions"] and options["target"] == "gateway":
            result["idle"] = await idle.measure(running, options["idle_sessions"], tally)
        pairs = await open_pairs(running, options["pairs"], options["frame_bytes"], tally)
        gc.collect()
        gc.freeze()
        gc.disable()  # a collection would show as a latency of the server
        try:
            await _chat_phases(number, options, running, pairs, cores, result)
            if options["profile"] is not None and number == 0:
                await _profiled(options, running, pairs, cores)
            if options["with_persist"]:
                with stack.worker("persist", placement, folder, running.env) as persist:
                    result["with_persist"] = await _with_persist(options, persist, pairs, cores)
        finally:
            gc.enable()
        for pair in pairs:
            pair.close()
    result["echo"] = await _echo(options, placement, folder, tally)
    result["violations"] = {"refused": tally.refused} if tally.is_void else dict(tally.counts)
    result["examples"] = tally.examples[:20]
    result["slow_frames"] = tally.slow_frames
    return result


async def _chat_phases(
    number: int,
    options: dict[str, Any],
    running: stack.Stack,
    pairs: list[Pair],
    cores: Cores,
    result: dict[str, Any],
) -> None:
    warmup_s, seconds = options["warmup"], options["seconds"]
    report.reset_redis_stats(running)
    closed = await closed_loop(pairs, cores, options["window"], warmup_s, seconds)
    result["closed"] = closed
    result["redis_commands"] = report.redis_commands(running)
    rate = options["open_rate"] or closed["per_second"] / 2
    result["open"] = await open_loop(pairs, cores, rate, warmup_s, seconds, seed=number)


async def _profiled(
    options: dict[str, Any], running: stack.Stack, pairs: list[Pair], cores: Cores
) -> None:
    """Sample the gateway while it is under full load."""
    command = ["py-spy", "record", "--pid", str(running.pids()["gateway"]), "--format", "raw"]
    command += ["--duration", str(int(options["seconds"])), "--rate", "500", "--native"]
    process = await asyncio.create_subprocess_exec(*command, "--output", str(options["profile"]))
    await closed_loop(pairs, cores, options["window"], 1, options["seconds"])
    await process.wait()


async def _with_persist(
    options: dict[str, Any], persist: Server, pairs: list[Pair], cores: Cores
) -> dict[str, Any]:
    """Measure the rate while what was committed moves to DynamoDB, on the load's core."""
    assert persist.process is not None
    pids = {**cores.pids, "persist": persist.process.pid}
    watched = Cores(cores.server_core, cores.load_core, pids)
    begin, before = time.perf_counter(), _stored(pairs)
    while _stored(pairs) == before and time.perf_counter() < begin + PERSIST_START_S:
        await asyncio.sleep(0.1)
    begin, before = time.perf_counter(), _stored(pairs)
    figures = await closed_loop(
        pairs, watched, options["window"], options["warmup"], options["seconds"]
    )
    stored = _stored(pairs) - before
    return {**figures, "stored_per_second": round(stored / (time.perf_counter() - begin))}


def _stored(pairs: list[Pair]) -> int:
    """Return how many messages the senders know to be in DynamoDB."""
    return sum(pair.sender.stored_upto for pair in pairs)


async def _echo(
    options: dict[str, Any], placement: stack.Options, folder: Path, tally: Tally
) -> dict[str, Any]:
    port = stack.free_port()
    launch = stack.module_launch(
        "echo", ["tests.load.servers.echo_server", "--port", str(port)], port, folder / "echo"
    )
    with stack.running(launch, placement.server_core) as server:
        assert server.process is not None
        pids = {"echo": server.process.pid, "load": os.getpid()}
        return await load_echo(
            port,
            Cores(placement.server_core, placement.load_core, pids),
            tally,
            connections=options["pairs"],
            window=options["window"],
            frame_bytes=options["frame_bytes"],
            warmup_s=options["warmup"],
            seconds=options["seconds"],
        )


if __name__ == "__main__":
    main()
