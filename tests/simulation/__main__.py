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
from tests.simulation.faults import FAULTS
from tests.simulation.run import Options, Result, fork_seed, warm_up
from tests.simulation.shrinker import shrink

HASH_SEED = "0"
_print = functools.partial(print, flush=True)


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="run one seed and print its trace")
    parser.add_argument("--first", type=int, default=1, help="first of many seeds")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--minutes", type=float, help="run seeds for this time instead")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", help="kinds of faults, with commas; default: all")
    parser.add_argument("--steps", type=int, default=170, help="user actions per seed")
    parser.add_argument("--faults", type=int, default=5, help="faults per seed")
    parser.add_argument("--features", help="features of all seeds, with commas; default: drawn")
    parser.add_argument("--mutant", default="", help="plant this fault in the product")
    parser.add_argument("--digests", action="store_true", help="print the digest of each trace")
    parser.add_argument("--shrink", action="store_true", help="shorten the script of --seed")
    parser.add_argument("--script", type=Path, help="run --seed with the actions in this file")
    parser.add_argument("--stop", action="store_true", help="stop after the first failure")
    parser.add_argument("--whole", action="store_true", help="print every step of the trace")
    return parser.parse_args()


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
    args = parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        # The order of sets of texts depends on it.
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    kinds = tuple(sorted(filter(None, args.only.split(",")))) or tuple(sorted(FAULTS))
    options = Options(
        kinds=kinds,
        steps=args.steps,
        faults=args.faults,
        is_whole_trace=args.whole,
        mutant=args.mutant,
        features=None if args.features is None else tuple(filter(None, args.features.split(","))),
    )
    if args.script is not None:
        script = msgspec.json.decode(args.script.read_bytes(), type=tuple[Action, ...])
        options = msgspec.structs.replace(options, script=script)
    if args.shrink:
        warm_up()
        shortest = shrink(args.seed, options, _print)
        _print(msgspec.json.encode(shortest.script).decode())
        _print(shortest.problem[:20_000])
        return 1
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
    seeds = range(args.first, args.first + (args.seeds if give_up is None else 10**9))
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        jobs = ((seed, options) for seed in seeds)
        for result in pool.imap_unordered(_run, jobs):
            done, cpu_s = done + 1, cpu_s + result.cpu_s
            if args.digests:
                _print(f"{result.seed} {result.digest}")
            if result.problem:
                failed.append(result.seed)
                _print(describe(result))
                _print("  " + result.problem[:1500].replace("\n", "\n  "))
                _print(f"  again: python -m tests.simulation --seed {result.seed}")
            is_over = give_up is not None and time.monotonic() > give_up
            if is_over or (args.stop and failed):
                pool.terminate()
                break
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
