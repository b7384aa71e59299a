"""The harness of all benchmarks: options, repetitions, servers, medians and reports.

A module of `tests.benchmarks` is a benchmark; it defines `main`:

    @benchmark(click.option("--messages", default=1000))
    async def main(bench: Bench, messages: int) -> Figures:
        return {"per_second": ...}

    if __name__ == "__main__":
        main()

Each run has a new `Bench`, and its servers end with it. Reported are the medians of all runs, as
text, and with `--out` as JSON. The exit code is 1 if a run found a wrong result; figures never
change it. Published figures are in docs/performance.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import inspect
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import uvloop

from chatserver import compiled
from chatserver.dev.servers import (
    Fsync,
    Launch,
    Server,
    aws_limits_launch,
    dynamodb_launch,
    ministack_launch,
    redis_launch,
)
from chatserver.loadtest.delivery_checker import Findings
from chatserver.loadtest.machine import describe_machine, list_versions
from tests.benchmarks.support.measurements import LOAD_CORE, Figures, get_pid, pin
from tests.support.servers.processes import free_port

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs" / "performance"
FILES_MAX = 65_536
# The class of the servers. Its instances start new processes, as in production.
Process: type[Server] = Server
# Additional settings of the server's processes. Tests set long timeouts.
SETTINGS: Mapping[str, str] = {}


class Bench:
    """One run of a benchmark: its servers, its folder, and the wrong results that it found."""

    def __init__(self, number: int, exits: contextlib.ExitStack, folder: Path) -> None:
        self.number = number  # of the run, from 0; the seed of its random choices
        self.folder = folder
        self.findings = Findings()
        self._exits = exits

    def start(self, launch: Launch, core: int | None = None) -> Server:
        """Start a server, bound to a core if given, that ends with the run."""
        server = Process(launch)
        self.on_exit(server.kill)
        server.start()
        if core is not None:
            pin(get_pid(server), core)
        return server

    def start_redis(self, fsync: Fsync = "no") -> Server:
        return self.start(redis_launch(self.folder / "redis", free_port(), appendonly=fsync))

    def start_dynamodb(self) -> Server:
        return self.start(dynamodb_launch(self.folder / "dynamodb", free_port()))

    def start_aws_limits(self, dynamodb: Server) -> Server:
        """Start the proxy that refuses requests as AWS does."""
        return self.start(aws_limits_launch(self.folder / "limits", free_port(), dynamodb.port))

    def start_s3(self, folder: Path | None = None) -> Server:
        """Start an S3 server. `folder` keeps its data."""
        folder = folder or self.folder
        return self.start(ministack_launch(folder / "s3", free_port(), service="s3"))

    def on_exit(self, call: Callable[[], object]) -> None:
        """Call a function at the end of the run."""
        self._exits.callback(call)

    def use_load_core(self) -> None:
        """Bind this process to the core of the load generator, until the end of the run."""
        cores = os.sched_getaffinity(0)
        self.on_exit(lambda: os.sched_setaffinity(0, cores))
        os.sched_setaffinity(0, {LOAD_CORE})


def benchmark(
    *options: Callable[[Any], Any],
    runs: int = 1,
    runs_option: str = "--runs",
    render: Callable[[Figures], str] | None = None,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a benchmark: a function of a `Bench` and of options that returns figures.

    `runs` is the default of `--runs`; `render` returns the text to print, instead of a list.
    """

    def declare(measure: Callable[..., Any]) -> click.Command:
        def main(runs: int, out: Path | None, **values: Any) -> None:
            results, counts = [], dict[str, int]()
            for number in range(runs):
                figures, findings = _run(measure, number, values)
                results.append(figures)
                if runs > 1:
                    click.echo(f"run {number + 1}: {json.dumps(figures)}", err=True)
                for kind, count in findings.counts.items():
                    counts[kind] = counts.get(kind, 0) + count
                for example in findings.examples:
                    click.echo(example)
            figures = combine(results)
            violations = {kind: count for kind, count in counts.items() if count}
            click.echo(compiled.describe())
            click.echo((render or render_figures)(figures))
            if out is not None:
                about = {"about": _describe(values), "violations": violations}
                every = {"runs": results} if runs > 1 else {}
                file = Path(module.__file__ or "")
                name = file.parent.name if file.stem == "__main__" else file.stem
                whole = {"benchmark": name, **about, **figures, **every}
                text = json.dumps(whole, indent=1, ensure_ascii=False, default=str)
                out.write_text(text + "\n", encoding="utf-8")
            if violations:
                click.echo(f"violations: {violations}")
                sys.exit(1)

        module = sys.modules[measure.__module__]
        command = click.command(help="\b\n" + (module.__doc__ or "").replace("\n\n", "\n\n\b\n"))
        path = click.Path(dir_okay=False, writable=True, path_type=Path)
        for option in (
            click.option("--out", type=path, help="Also write the figures to this file as JSON."),
            click.option(
                runs_option, "runs", default=runs, show_default=True, type=click.IntRange(1)
            ),
            *reversed(options),
        ):
            main = option(main)
        return command(main)

    return declare


# Options of the benchmarks that measure rates.
timing = (
    click.option("--seconds", default=5.0, show_default=True, help="Per measurement."),
    click.option("--warmup", "warmup_s", default=2.0, show_default=True, help="Seconds before it."),
)


def _run(
    measure: Callable[..., Any], number: int, values: dict[str, Any]
) -> tuple[Figures, Findings]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, FILES_MAX)), hard))
    with contextlib.ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(number, exits, folder)
        figures = measure(bench, **values)
        return uvloop.run(figures) if inspect.isawaitable(figures) else figures, bench.findings


def combine(runs: list[Any]) -> Any:
    """Return the medians of the numbers in results of the same form; other values of the first."""
    first = runs[0]
    if isinstance(first, dict):
        names = dict.fromkeys(name for run in runs for name in run)
        return {name: combine([run[name] for run in runs if name in run]) for name in names}
    if isinstance(first, int | float) and len(runs) > 1:
        return round(statistics.median(runs), 4)
    return first


def render_figures(figures: Figures) -> str:
    """Return a line for each figure, with its path."""

    def iter_lines(path: str, value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for name, part in value.items():
                yield from iter_lines(f"{path}, {name}" if path else str(name), part)
        else:
            yield (
                f"{path:<60} {value:>12,}" if isinstance(value, int | float) else f"{path} {value}"
            )

    return "\n".join(iter_lines("", figures))


def _describe(options: dict[str, Any]) -> Figures:
    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=60
        ).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "chatserver", "workers")
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD") + (" and uncommitted changes" if changed else ""),
        "options": options,
        "is_compiled": compiled.is_active(),
        "versions": list_versions(),
        "machine": {**describe_machine(), "load_average": os.getloadavg()},
    }


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
