"""Runs one seed: the cluster, the users, the script and the checks.

`run_seed` replaces time and randomness, so call it in a process of its own (`fork_seed`), after
`warm_up`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from chatserver.dev.aws_limits.rules import AwsLimits
from tests.chaos.simulation import Action
from tests.simulation import environment, mutants, searches
from tests.simulation.cluster import Cluster, make_settings
from tests.simulation.coverage import Coverage, Recorder
from tests.simulation.faults import FAULTS, SimulatedFaults
from tests.simulation.loop import SimulatedLoop
from tests.simulation.play import Play
from tests.simulation.script import FAULTS_PER_SCRIPT, STEPS, draw_size, write_script
from tests.simulation.swarms import SWARMS, Swarm
from tests.simulation.trace import Trace
from tests.support.deadlines import wait_for_pid

LIMIT_S = 1_200.0  # virtual time of a run
FEATURES = {"api": 0.06, "push": 0.12, "ttl": 0.08, "search": 0.06}  # share of the seeds
SWARM_SHARE = 0.25  # of the mixed seeds, which have a swarm
RUN_S_MAX = 600.0  # real time of a run, on a busy machine


class Options(msgspec.Struct, frozen=True):
    """The options of a run, without its seed."""

    kinds: tuple[str, ...] = tuple(sorted(FAULTS))
    steps: int = STEPS
    faults: int = FAULTS_PER_SCRIPT
    is_mixed: bool = False  # draw the numbers of steps and faults from the seed
    is_whole_trace: bool = False
    mutant: str = ""
    swarm: str = ""
    has_coverage: bool = False
    features: tuple[str, ...] | None = None  # instead of those of the seed
    script: tuple[Action, ...] | None = None  # instead of the script of the seed


class Result(msgspec.Struct):
    """The outcome of a run."""

    seed: int
    digest: str = ""
    problem: str = ""
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    ticks: int = 0
    asked: int = 0
    acked: int = 0
    redis_calls: int = 0
    dynamodb_requests: int = 0
    counts: dict[str, int] = {}
    lines: list[str] = []
    script: list[Action] = []
    coverage: Coverage | None = None


def run_seed(seed: int, options: Options) -> Result:
    """Run a seed in this operating system process."""
    features = draw_features(seed) if options.features is None else frozenset(options.features)
    with searches.open_folder() if "search" in features else contextlib.nullcontext("") as index:
        return _run_seed(seed, options, features, index)


def _run_seed(seed: int, options: Options, features: frozenset[str], index: str) -> Result:
    cpu, cpu_start = time.process_time, time.process_time()
    trace = Trace(is_whole=options.is_whole_trace)
    loop = SimulatedLoop(seed, trace)
    swarm = choose_swarm(seed, options)
    settings = draw_settings(seed)
    settings["search"] = {"index": index}
    if "ttl" in features:
        settings |= draw_ttl_settings(seed, settings)
    for name, values in swarm.settings.items():
        settings[name] = {**settings.get(name, {}), **values}
    steps, faults = draw_size(seed) if options.is_mixed else (options.steps, options.faults)
    script = list(
        options.script
        or write_script(
            seed,
            kinds=swarm.kinds or options.kinds,
            features=features,
            steps=steps,
            faults=faults,
            weights=swarm.actions,
        )
    )
    environment.install(loop, seed)
    if options.mutant:
        mutants.install(options.mutant)
    asyncio.set_event_loop(loop)
    result = Result(seed, script=script)
    cluster = Cluster(loop, make_settings(**settings))
    if (limits := draw_limits(seed)) is not None:
        cluster.dynamodb.set_limits(limits)
    coverage = Recorder(trace, cluster.redis.scripting) if options.has_coverage else None
    try:
        loop.run_until_complete(_run(cluster, seed, script, result, features))
    except BaseException as exc:
        text = str(exc) if isinstance(exc, AssertionError) else ""
        result.problem = text or "".join(traceback.format_exception(exc)[-6:])
    if loop.failures and not result.problem:
        result.problem = "\n".join(f"{process.name}: {text}" for process, text in loop.failures)
    result.digest, result.lines = trace.hexdigest(), trace.lines
    result.virtual_s, result.ticks = loop.now - 1000, loop.ticks
    result.redis_calls = cluster.redis.calls
    result.dynamodb_requests = cluster.dynamodb.server.requests
    result.coverage = None if coverage is None else coverage.get()
    result.cpu_s = cpu() - cpu_start
    return result


async def _run(
    cluster: Cluster,
    seed: int,
    script: Sequence[Action],
    result: Result,
    features: Collection[str],
) -> None:
    cluster.start_servers()
    cluster.add_gateway("gateway-a")
    cluster.add_gateway("gateway-b")
    both = [
        name for name, feature in (("notify", "push"), ("search", "search")) if feature in features
    ]
    cluster.add_worker("worker-a", "persist", "rpc", *both)
    more = [*both, *(["archive"] if cluster.settings.archive.retention_s else [])]
    if "api" in features:
        cluster.add_api("api-a")
        more.append("erasures")
    cluster.add_worker("worker-b", "persist", "repair", "rpc", *more)
    async with asyncio.timeout(LIMIT_S):
        play = Play(cluster, seed, features)
        await play.__aenter__()
        faults = SimulatedFaults(play)
        try:
            await play.begin()
            for action in script:
                await faults.perform(action)
            await play.finish_and_check()
        finally:
            result.counts = dict(faults.counts)
            result.asked, result.acked = play.asked(), play.acks()


def choose_swarm(seed: int, options: Options) -> Swarm:
    """Return the swarm of the options; for some mixed seeds, one that is drawn."""
    if options.swarm:
        return SWARMS[options.swarm]
    rng = random.Random(f"swarm {seed}")
    is_drawn = options.is_mixed and options.kinds == Options().kinds
    if is_drawn and rng.random() < SWARM_SHARE:
        return SWARMS[rng.choice(sorted(SWARMS))]
    return Swarm()


def draw_settings(seed: int) -> dict[str, dict[str, Any]]:
    """Return the settings of a seed: a swarm that makes rare limits common."""
    rng = random.Random(f"settings {seed}")
    inbox_max = rng.choice((10, 30, 80, 1000))
    archive = {
        "retention_s": rng.choice((0, 0, 0, 1, 3)),
        "sweep_interval_s": rng.choice((0.5, 1, 2)),
        "segment_entries_min": 1,
        "segment_entries_max": rng.choice((2, 5, 50)),
        "wait_s": 0,
    }
    return {
        "archive": archive,
        "redis": {
            "partitions": rng.choice((1, 1, 2, 3)),
            "log_max": max(inbox_max, rng.choice((10, 80, 1000))),
            "inbox_max": inbox_max,
            # Idle chats are evicted, and loaded again.
            "chat_idle_s": rng.choice((1, 604_800, 604_800)),
        },
        "notify": {"delay_s": rng.choice((0.05, 0.5, 3.0))},
        "chats": {"fanout_members_max": rng.choice((2, 3, 8, 256))},
        # A gateway that is paused for longer gets no events.
        "gateway": {"online_ttl_s": rng.choice((1.2, 3, 3))},
    }


def draw_ttl_settings(seed: int, settings: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the settings with which TTL removes archived messages, soon after the archival."""
    rng = random.Random(f"ttl {seed}")
    archive = {
        "retention_s": rng.choice((1, 3)),
        "sweep_interval_s": 0.5,
        "removal": "ttl",
        "ttl_margin_s": rng.choice((2, 3, 6)),
    }
    return {"archive": settings["archive"] | archive, "warm": {"stream": True}}


def draw_features(seed: int) -> frozenset[str]:
    """Return the parts of the product that a seed uses besides messages, each in few seeds."""
    rng = random.Random(f"features {seed}")
    return frozenset(name for name, share in FEATURES.items() if rng.random() < share)


def draw_limits(seed: int) -> AwsLimits | None:
    """Return AWS's limits for a quarter of the seeds: conflicts, index lag, unprocessed items."""
    rng = random.Random(f"limits {seed}")
    if rng.random() >= 0.25:
        return None
    return AwsLimits(
        transaction_ms=rng.choice((10.0, 100.0)),
        index_lag_ms=rng.choice(((0.0, 0.0), (50.0, 500.0), (200.0, 2_000.0))),
        unprocessed_share=rng.choice((0.0, 0.02, 0.2)),
        seed=seed,
    )


@functools.cache
def warm_up() -> None:
    """Load all modules and fill all caches, so that no run has to.

    A short run in this process does it. What it leaves behind is the same for each seed.
    """
    run_seed(0, Options(steps=40, faults=3, features=tuple(FEATURES)))
    environment.restore()
    gc.freeze()  # the tasks of the run must not be collected
    gc.enable()


def fork_seed(seed: int, options: Options) -> Result:
    """Run a seed in a child of this operating system process."""
    warm_up()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)  # so that it ends if its parent was killed
        _run_child(seed, options, writer)
    os.close(writer)
    payload = _read_all(reader, time.monotonic() + RUN_S_MAX)
    if payload is None:
        os.kill(child, signal.SIGKILL)
    wait_for_pid(child)
    if payload is None:
        return Result(seed, problem=f"the run did not end within {RUN_S_MAX:g} s")
    if not payload:
        return Result(seed, problem="the process of this seed crashed")
    return msgspec.msgpack.decode(payload, type=Result)


def _read_all(reader: int, give_up: float) -> bytes | None:
    """Return everything that the child writes; None if it does not end in time."""
    parts = []
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, give_up - time.monotonic()))[0]:
            part = pipe.read(1_048_576)
            if not part:
                return b"".join(parts)
            parts.append(part)
    return None


def _run_child(seed: int, options: Options, writer: int) -> None:
    try:
        result = run_seed(seed, options)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(msgspec.msgpack.encode(result))
    except BrokenPipeError:
        pass  # the parent was stopped
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
