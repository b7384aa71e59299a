"""Direct messages: maximum rate, latency at half that rate, and CPU cost.

One gateway process and Redis share one core; the load generator has another. Each run starts new
servers and measures, in this order:

\b
1. memory of idle sessions
2. the highest rate of an open loop (messages sent one by one, at random times)
3. latencies at half that rate
4. the closed-loop rate with `--window` messages in flight per pair
5. with `--with-persist`, that rate again while the persist worker runs
6. the rate of an echo application that uses the gateway's connection class, on the same core

Every message is checked for loss, duplication and order. Slow results never fail the command: exit
code 1 means that a message was lost or wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import uvloop

from chatserver.dev.servers import Server
from chatserver.loadtest.bench import direct_report, server_stack
from chatserver.loadtest.bench.cpu_usage import Cores, wait_for_idle_cores
from chatserver.loadtest.bench.direct_pairs import (
    Pair,
    find_open_maximum,
    open_pairs,
    run_closed_loop,
    run_open_loop,
)
from chatserver.loadtest.bench.echo import measure_echo
from chatserver.loadtest.bench.idle_sessions import measure_idle_sessions
from chatserver.loadtest.bench.run_options import (
    disable_garbage_collection,
    prepare_process,
    profile,
    run_options,
)
from chatserver.loadtest.bench.session import RunFindings

PERSIST_START_S = 30


@click.command(help=(__doc__ or "").replace("\n\n", "\n\n\b\n", 1))
@click.option(
    "--pairs",
    default=200,
    show_default=True,
    help="Number of direct chats, with two sessions each.",
)
@click.option("--window", default=8, show_default=True, help="Messages in flight per direct chat.")
@click.option(
    "--frame-bytes", default=200, show_default=True, help="Size of one `send` frame as JSON."
)
@click.option(
    "--gateways",
    default=1,
    show_default=True,
    help="Number of gateways to start, in turn on the server and the load core.",
)
@click.option(
    "--idle-sessions",
    default=2000,
    show_default=True,
    help="Number of idle sessions to measure; 0: skip.",
)
@click.option(
    "--open-rate",
    type=float,
    help="Open-loop rate in messages per second; default: half of the measured maximum.",
)
@click.option(
    "--appendfsync",
    type=click.Choice(["off", "no", "everysec", "always"]),
    default="everysec",
    show_default=True,
    help="Redis setting `appendfsync`; `off`: no append-only file.",
)
@click.option("--aof-rewrite", is_flag=True, help="Allow Redis to rewrite its append-only file.")
@click.option(
    "--with-persist",
    is_flag=True,
    help="Measure the closed-loop rate again, with the persist worker running.",
)
@click.option(
    "--target",
    type=click.Choice(["gateway", "stub"]),
    default="gateway",
    show_default=True,
    help="Measure the gateway, or a stub server to test the benchmark itself.",
)
@click.option(
    "--fault",
    type=click.Choice(["lose", "repeat", "swap"]),
    help="Fault to inject into the stub server.",
)
@click.option(
    "--retries",
    default=0,
    help="Maximum number of runs to repeat because other work disturbed them.",
)
@run_options
def direct(**options: Any) -> None:
    prepare_process(options["load_core"])
    load_average = os.getloadavg()
    runs: list[dict[str, Any]] = []
    discarded: list[str] = []
    while len(runs) < options["runs"]:
        wait_for_idle_cores(options["calm"])
        with tempfile.TemporaryDirectory() as folder:
            run = uvloop.run(_run(len(runs), options, Path(folder)))
        click.echo(direct_report.format_line(len(runs) + 1, run), err=True)
        # Repeat a run that other processes disturbed, unless it found errors (except refused
        # sends).
        is_useless = direct_report.is_disturbed(run) and run["violations"].keys() <= {"refused"}
        if is_useless and len(discarded) < options["retries"]:
            discarded.append(direct_report.format_line(len(runs) + 1, run))
        else:
            runs.append(run)
    result = direct_report.build(options, runs, discarded, load_average)
    if options["out"] is not None:
        options["out"].write_text(direct_report.to_json(result))
    click.echo(direct_report.format_table(result))
    sys.exit(1 if result["violations"] else 0)


async def _run(number: int, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    placement = server_stack.Placement(
        options["server_core"],
        options["load_core"],
        options["appendfsync"],
        options["aof_rewrite"],
        options["gateways"],
    )
    findings = RunFindings()
    result: dict[str, Any] = {}
    with contextlib.ExitStack() as exits:
        if options["target"] == "stub":
            running = server_stack.run_stub_stack(placement, folder, options["fault"])
        else:
            running = server_stack.run_chat_stack(placement, folder)
        stack = exits.enter_context(running)
        cores = Cores(placement.server_core, placement.load_core, stack.get_pids())
        result["redis_version"] = direct_report.get_redis_version(stack)
        if options["idle_sessions"] and options["target"] == "gateway":
            result["idle"] = await measure_idle_sessions(stack, options["idle_sessions"], findings)
        pairs = await open_pairs(stack, options["pairs"], options["frame_bytes"], findings)
        with disable_garbage_collection():
            await _measure_loops(number, options, stack, pairs, cores, result)
            if options["profile"] is not None and number == 0:
                window, seconds = options["window"], options["seconds"]
                async with profile(cores.pids["gateway"], seconds, options["profile"]):
                    await run_closed_loop(pairs, cores, window, 1, seconds)
            if options["with_persist"]:
                with server_stack.run_worker("persist", placement, folder, stack.env) as persist:
                    result["with_persist"] = await _measure_with_persist(
                        options, persist, pairs, cores
                    )
        for pair in pairs:
            pair.close()
    result["echo"] = await _measure_echo(options, placement, folder, findings)
    result["violations"] = findings.count_violations()
    result["examples"] = findings.examples
    result["slow_frames"] = findings.slow_frames
    return result


async def _measure_loops(
    number: int,
    options: dict[str, Any],
    stack: server_stack.Stack,
    pairs: list[Pair],
    cores: Cores,
    result: dict[str, Any],
) -> None:
    warmup_s, seconds = options["warmup"], options["seconds"]
    maximum = await find_open_maximum(
        pairs, cores, warmup_s / 4, max(1.0, seconds / 4), seed=number
    )
    result["open_maximum_per_second"] = maximum
    rate = options["open_rate"] or max(1.0, maximum / 2)
    result["open"] = await run_open_loop(pairs, cores, rate, warmup_s, seconds, seed=number)
    direct_report.reset_redis_stats(stack)
    closed = await run_closed_loop(pairs, cores, options["window"], warmup_s, seconds)
    result["closed"] = closed
    result["redis_commands"] = direct_report.get_redis_commands(stack)


async def _measure_with_persist(
    options: dict[str, Any], persist: Server, pairs: list[Pair], cores: Cores
) -> dict[str, Any]:
    """Measure the rate while the persist worker writes to DynamoDB."""
    pids = {**cores.pids, "persist": server_stack.get_pid(persist)}
    all_cores = Cores(cores.server_core, cores.load_core, pids)
    begin, before = time.perf_counter(), _sum_stored(pairs)
    give_up_at = begin + PERSIST_START_S
    while _sum_stored(pairs) == before and time.perf_counter() < give_up_at:  # noqa: ASYNC110  polling
        await asyncio.sleep(0.1)
    begin, before = time.perf_counter(), _sum_stored(pairs)
    figures = await run_closed_loop(
        pairs, all_cores, options["window"], options["warmup"], options["seconds"]
    )
    stored = _sum_stored(pairs) - before
    return {**figures, "stored_per_second": round(stored / (time.perf_counter() - begin))}


def _sum_stored(pairs: list[Pair]) -> int:
    return sum(pair.sender.stored_upto for pair in pairs)


async def _measure_echo(
    options: dict[str, Any], placement: server_stack.Placement, folder: Path, findings: RunFindings
) -> dict[str, Any]:
    port = server_stack.find_free_port()
    module = ["chatserver.loadtest.bench.echo_server", "--port", str(port)]
    launch = server_stack.build_launch("echo", module, port, folder / "echo")
    with server_stack.run_server(launch, placement.server_core) as server:
        pids = {"echo": server_stack.get_pid(server), "load": os.getpid()}
        return await measure_echo(
            port,
            Cores(placement.server_core, placement.load_core, pids),
            findings,
            connections=options["pairs"],
            window=options["window"],
            frame_bytes=options["frame_bytes"],
            warmup_s=options["warmup"],
            seconds=options["seconds"],
        )
