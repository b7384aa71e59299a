"""Seeded fault schedules: `.venv/bin/python -m tests.chaos.schedules --seeds 200 --jobs 2`.

A seed is one schedule of about 30 seconds: users chat on a `FullStack` while faults happen, then
the system becomes idle and the checkers run. Each job is a process with its own stack that serves
one seed after the other, with new users and chats for each; after a violation it starts a new
stack. It prints one line for each seed; for a failed seed the folder keeps the report, the history,
the script and all logs. Exits with 1 if a seed failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.chaos.full_simulation import FullSimulation
from tests.chaos.full_stack import FullStack, clear_folder, open_full_stack
from tests.chaos.nemesis import FAULTS, Nemesis
from tests.chaos.script import write_script
from tests.support.deadlines import EXIT_S, wait_for_exit

SEED_S = 420.0  # deadline of a schedule


class Result(msgspec.Struct, frozen=True):
    """Result of a seed."""

    seed: int
    seconds: float
    actions: int
    asked: int
    acks: int
    faults: dict[str, int]
    slow: str = ""  # the longest waits at the end of the round
    problem: str = ""  # empty if there is no violation

    def line(self, folder: Path) -> str:
        """Format the line to print."""
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        text = (
            f"seed {self.seed}: {'FAILED' if self.problem else 'passed'} in {self.seconds:.0f} s,"
            f" {self.actions} actions, {self.acks} acks; {faults or 'no faults'}; {self.slow}"
        )
        if not self.problem:
            return text
        lines = [line for line in self.problem.splitlines() if line.strip()]
        shown = "\n".join(f"    {line[:200]}" for line in lines[1:7])
        return f"{text}\n    {folder / f'seed-{self.seed}'}\n{shown}"


async def run_seed(full: FullStack, seed: int, kinds: set[str]) -> Result:
    """Perform the schedule of a seed and check the result."""
    start = time.monotonic()
    folder = full.folder / f"seed-{seed}"
    folder.mkdir(exist_ok=True)
    script = write_script(seed, kinds)
    counts: dict[str, int] = {}
    problem, asked, acks, slow = "", 0, 0, ""
    stuck: list[str] = []
    asyncio.get_running_loop().call_later(SEED_S - 1, lambda: stuck.extend(list_tasks()))
    keeper = asyncio.create_task(full.restart_exited(), name="keeper")
    try:
        async with asyncio.timeout(SEED_S), FullSimulation(full, folder, seed) as simulation:
            nemesis = Nemesis(simulation)
            await simulation.begin()
            try:
                for action in script:
                    await nemesis.perform(action)
                await simulation.finish_and_check()
            finally:
                counts = dict(nemesis.counts)
                asked, acks, slow = simulation.asked(), simulation.acks(), simulation.slowest()
    except (Exception, TimeoutError) as exc:
        # Any error is recorded as the result of this seed.
        problem = "\n".join([f"{type(exc).__name__}: {exc}", *stuck])
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
    seconds = time.monotonic() - start
    return Result(seed, seconds, len(script), asked, acks, counts, slow, problem)


def list_tasks() -> list[str]:
    """Return the current stack frame of each task, for the report of a schedule that hangs."""
    lines = []
    for task in asyncio.all_tasks():
        where = (f"{frame.f_code.co_name}:{frame.f_lineno}" for frame in task.get_stack())
        lines.append(f"{task.get_name()}: {'; '.join(where)}")
    return lines


# ── one job ─────────────────────────────────────────────────────────────────────────────────────


async def serve(kinds: set[str], kept: Path) -> None:
    """Run the seeds from standard input, one per line, and print one result line for each."""
    loop = asyncio.get_running_loop()
    seed = await loop.run_in_executor(None, sys.stdin.readline)
    while seed:
        folder = Path(tempfile.mkdtemp(prefix="stack-", dir=kept))
        try:
            async with open_full_stack(folder) as full:
                problem = ""
                while seed and not problem:
                    result = await run_seed(full, int(seed), kinds)
                    problem = result.problem
                    if problem:
                        save_report(folder, kept / f"seed-{result.seed}", result)
                    print(msgspec.json.encode(result).decode(), flush=True)  # noqa: T201
                    seed = await loop.run_in_executor(None, sys.stdin.readline)
        finally:
            clear_folder(folder)


def save_report(folder: Path, kept: Path, result: Result) -> None:
    """Keep the report of a failed seed and the logs of its stack."""
    clear_folder(kept)
    kept.mkdir(parents=True)
    # The report refers to files in the seed's folder, which is deleted later.
    old = str(folder / f"seed-{result.seed}")
    (kept / "report.txt").write_text(result.problem.replace(old, str(kept)))
    for path in (*folder.rglob("*.log"), *(folder / f"seed-{result.seed}").glob("*")):
        shutil.copy(path, kept / path.name)


# ── all jobs ────────────────────────────────────────────────────────────────────────────────────


class Jobs:
    """Assigns seeds to jobs and prints the results."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._seeds: Iterator[int] = iter(range(args.first, args.first + args.seeds))
        self.failed: list[int] = []
        self.done = 0

    async def run(self) -> None:
        """Run all seeds."""
        self._args.folder.mkdir(parents=True, exist_ok=True)
        try:
            await self._run_all()
        finally:
            for left in self._args.folder.glob("stack-*"):
                clear_folder(left)

    async def _run_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(min(self._args.jobs, self._args.seeds)):
                group.create_task(self._run_job(number), name=f"job-{number}")

    async def _run_job(self, number: int) -> None:
        # Each job uses a separate range of ports, like parallel tests.
        env = os.environ | {
            "PYTEST_XDIST_WORKER": f"gw{number}",
            "PYTEST_XDIST_WORKER_COUNT": str(self._args.jobs),
        }
        argv = [sys.executable, "-m", "tests.chaos.schedules", "--serve"]
        argv += [
            "--folder",
            str(self._args.folder),
            "--only",
            ",".join(sorted(self._args.kinds)) or "none",
        ]
        pipe = asyncio.subprocess.PIPE
        with (self._args.folder / f"job-{number}.log").open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=pipe, stdout=pipe, stderr=errors, env=env, limit=2**26
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for seed in self._seeds:
                process.stdin.write(f"{seed}\n".encode())
                line = b""
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SEED_S + EXIT_S):
                        line = await process.stdout.readline()
                if not line:
                    self.failed.append(seed)
                    print(f"seed {seed}: FAILED, its job ended or hangs; see job-{number}.log")  # noqa: T201
                    return
                self._report(msgspec.json.decode(line, type=Result))
            process.stdin.close()
            await wait_for_exit(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await wait_for_exit(process)

    def _report(self, result: Result) -> None:
        self.done += 1
        if result.problem:
            self.failed.append(result.seed)
        print(result.line(self._args.folder), flush=True)  # noqa: T201  # the command's output


def parse_args() -> argparse.Namespace:
    """Parse the command line; `kinds` are the kinds of faults."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.schedules")
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="stacks at a time")
    parser.add_argument("--only", default="", help="kinds of faults, with commas; default: all")
    parser.add_argument("--without", default="", help="kinds of faults to leave out, with commas")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "schedules")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    only, without = set(filter(None, args.only.split(","))), set(args.without.split(",")) - {""}
    unknown = sorted((only | without) - set(FAULTS) - {"none"})
    if unknown:
        parser.error(f"unknown faults: {', '.join(unknown)}; there are {', '.join(sorted(FAULTS))}")
    args.kinds = ((only or set(FAULTS)) - without) & set(FAULTS)
    return args


def main() -> int:
    """Run the command."""
    args = parse_args()
    if args.serve:
        asyncio.run(serve(args.kinds, args.folder))
        return 0
    start = time.monotonic()
    jobs = Jobs(args)
    asyncio.run(jobs.run())
    seconds = time.monotonic() - start
    failed = sorted(jobs.failed)
    summary = f"{jobs.done} seeds in {seconds:.0f} s, {len(failed)} failed: {failed}"
    print(summary)  # noqa: T201  # the result
    return 1 if jobs.failed else 0


if __name__ == "__main__":
    sys.exit(main())
