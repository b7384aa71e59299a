"""Options and process setup that the benchmarks share."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import click

FILES_MAX = 65_536

_OPTIONS = (
    click.option("--seconds", default=5.0, show_default=True, help="Seconds per measurement."),
    click.option(
        "--warmup",
        default=2.0,
        show_default=True,
        help="Warm-up before each measurement, in seconds.",
    ),
    click.option(
        "--runs", default=3, show_default=True, help="Number of runs; the medians are reported."
    ),
    click.option(
        "--server-core", default=0, show_default=True, help="CPU core to pin the servers to."
    ),
    click.option(
        "--load-core", default=1, show_default=True, help="CPU core to pin the load generator to."
    ),
    click.option("--calm", default=0.0, help="Maximum seconds to wait for idle cores."),
    click.option(
        "--profile",
        type=Path,
        help="Write a py-spy profile of the gateway: a flame graph (.svg) or raw stacks.",
    ),
    click.option("--out", type=Path, help="Write all results to this file as JSON."),
)


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `direct` and `groups` share."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def prepare_process(load_core: int) -> None:
    """Move this process to CPU core `load_core`, and raise its open-file limit."""
    os.sched_setaffinity(0, {load_core})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, FILES_MAX)), hard))


@contextlib.contextmanager
def disable_garbage_collection() -> Iterator[None]:
    """Disable garbage collection, which would be measured as server latency."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.asynccontextmanager
async def profile(pid: int, seconds: float, out: Path | None) -> AsyncIterator[None]:
    """Profile a process while the block runs, if `out` is set."""
    if out is None:
        yield
        return
    form = "flamegraph" if out.suffix == ".svg" else "raw"
    command = ["py-spy", "record", "--pid", str(pid), "--format", form, "--rate", "500"]
    command += ["--native", "--duration", str(int(seconds)), "--output", str(out)]
    process = await asyncio.create_subprocess_exec(*command)
    yield
    await process.wait()
