"""``python -m tests.simulation``: run seeds, one after the other or in several jobs."""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import sys
import time
from pathlib import Path

import msgspec

from tests.chaos.simulation import Action
from tests.simulation.coverage import Coverage
from tests.simulation.faults import FAULTS
from tests.simulation.run import Options, Result, fork_seed, warm_up
from tests.simulation.script import FAULTS_PER_SCRIPT, STEPS
from tests.simulation.shrinker import shrink
from tests.simulation.swarms import SWARMS

HASH_SEED = "0"
PROGRESS_S = 30
_print = functools.partial(print, flush=True)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="run one seed and print its trace")
    parser.add_argument("--first", type=int, default=1, help="first of many seeds")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--minutes", type=float, help="run seeds for this time instead")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", help="kinds of faults, with commas; default: all")
    parser.add_argument("--swarm", default="", choices=sorted(SWARMS), help="make this common")
    parser.add_argument("--steps", type=int, default=STEPS, help="user actions per seed")
    parser.add_argument("--faults", type=int, default=FAULTS_PER_SCRIPT, help="faults per seed")
    parser.add_argument("--mixed", action="store_true", help="draw the size of each seed")
    parser.add_argument("--features", help="features of all seeds, with commas; default: drawn")
    parser.add_argument("--mutant", default="", help="plant this fault in the product")
    parser.add_argument("--digests", action="store_true", help="print the digest of each trace")
    parser.add_argument("--coverage", action="store_true", help="report what never happened")
    parser.add_argument(
        "--shrink",
        type=Path,
        nargs="?",
        const=Path("script.json"),
        help="shorten the script of --seed, and save it in this file",
    )
    parser.add_argument("--script", type=Path, help="run --seed with the actions in this file")
    parser.add_argument("--stop", action="store_true", help="stop after the first failure")
    parser.add_argument("--whole", action="store_true", help="print every step of the trace")
    return parser


def describe_command(args: argparse.Namespace, seed: int, script: Path | None) -> str:
    """Return the command that repeats one seed."""
    left_out = {"seed", "script", "shrink", "first", "seeds", "minutes", "jobs", "stop"}
    words = ["python -m tests.simulation", f"--seed {seed}"]
    for action in make_parser()._actions:
        value = getattr(args, action.dest, None)
        if action.dest in left_out or value in (None, action.default):
            continue
        words.append(action.option_strings[0])
        if action.nargs != 0:
            words.append(str(value))
    return " ".join(words if script is None else [*words, f"--script {script}"])


def describe(result: Result) -> str:
    """Return one line about a run."""
    state = "FAILED" if result.problem else "ok"
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(result.counts.items()))
    return (
        f"seed {result.seed}: {state}, {result.cpu_s:.2f} s CPU, {result.virtual_s:.1f} s, "
        f"{result.acked} of {result.asked} acked, {result.redis_calls} Redis calls, "
        f"{result.dynamodb_requests} DynamoDB requests, {result.ticks} ticks; {faults}"
    )


def main() -> int:
    """Run the command."""
    args = make_parser().parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        # The order of sets of texts depends on it.
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    kinds = tuple(sorted(filter(None, args.only.split(",")))) or tuple(sorted(FAULTS))
    options = Options(
        kinds=kinds,
        steps=args.steps,
        faults=args.faults,
        is_mixed=args.mixed,
        is_whole_trace=args.whole,
        mutant=args.mutant,
        swarm=args.swarm,
        has_coverage=args.coverage,
        features=None if args.features is None else tuple(filter(None, args.features.split(","))),
    )
    if args.script is not None:
        script = msgspec.json.decode(args.script.read_bytes(), type=tuple[Action, ...])
        options = msgspec.structs.replace(options, script=script)
    if args.shrink is not None:
        shortest = shrink(args.seed, options, _print)
        args.shrink.write_bytes(msgspec.json.encode(shortest.script))
        _print(shortest.problem[:20_000] or "the seed does not fail")
        _print(f"again: {describe_command(args, args.seed, args.shrink)}")
        return 1 if shortest.problem else 0
    if args.seed is not None:
        result = fork_seed(args.seed, options)
        _print("\n".join(result.lines))
        _print(describe(result))
        _print(f"trace {result.digest}")
        _print(result.problem[:20_000])
        return 1 if result.problem else 0
    warm_up()
    start, failed, done, cpu_s = time.monotonic(), list[int](), 0, 0.0
    give_up = start + 60 * args.minutes if args.minutes else None
    report_at, coverage = start + PROGRESS_S, Coverage()
    seeds = range(args.first, args.first + (args.seeds if give_up is None else 10**9))
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        jobs = ((seed, options) for seed in seeds)
        for result in pool.imap_unordered(_run, jobs):
            done, cpu_s = done + 1, cpu_s + result.cpu_s
            if time.monotonic() > report_at:
                report_at = time.monotonic() + PROGRESS_S
                _print(f"{done} seeds, {len(failed)} failed", file=sys.stderr)
            coverage.add(result.coverage or Coverage())
            if args.digests:
                _print(f"{result.seed} {result.digest}")
            if result.problem:
                failed.append(result.seed)
                _print(describe(result))
                _print("  " + result.problem[:4000].replace("\n", "\n  "))
                _print(f"  again: {describe_command(args, result.seed, args.script)}")
            is_over = give_up is not None and time.monotonic() > give_up
            if is_over or (args.stop and failed):
                pool.terminate()
                break
    if args.coverage:
        _print("\n".join(coverage.describe()))
    seconds = time.monotonic() - start
    _print(
        f"{done} seeds in {seconds:.0f} s, {cpu_s / max(1, done):.2f} s CPU each; "
        f"{len(failed)} failed: {sorted(failed)}"
    )
    return 1 if failed else 0


def _run(job: tuple[int, Options]) -> Result:
    result = fork_seed(*job)
    result.lines = []
    return result


if __name__ == "__main__":
    sys.exit(main())
