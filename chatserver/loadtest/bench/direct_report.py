"""Direct benchmark result: medians of the runs, versions and machine, as a table and as JSON."""

from __future__ import annotations

import datetime
import json
import statistics
import subprocess
from typing import Any

import redis as redis_py

from chatserver import compiled
from chatserver.loadtest.bench.server_stack import Stack
from chatserver.loadtest.machine import describe_machine, list_versions

TARGETS = {
    "messages_per_second": 27_500,
    "delivered_p99_ms_at_half_load": 2.0,
    "share_of_echo": 0.25,
    "gateway_kb_per_idle_session": 20,
}
# Maps the name of a median to the path of its value in the results of a run.
_FIGURES = {
    "open_maximum_per_second": "open_maximum_per_second",
    "messages_per_second": "closed.per_second",
    "echo_per_second": "echo.per_second",
    "share_of_echo": "",
    "gateway_cpu_us_per_message": "closed.cpu_us_per_message.gateway",
    "redis_cpu_us_per_message": "closed.cpu_us_per_message.redis",
    "load_cpu_us_per_message": "closed.cpu_us_per_message.load",
    "load_cpu_share": "closed.cpu_share.load",
    "server_core_others_share": "closed.server_core_others_share",
    "stolen_share": "closed.stolen_share",
    "open_loop_per_second": "open.asked_per_second",
    "ack_p50_ms_at_half_load": "open.ack_ms.p50",
    "ack_p99_ms_at_half_load": "open.ack_ms.p99",
    "delivered_p50_ms_at_half_load": "open.delivered_ms.p50",
    "delivered_p99_ms_at_half_load": "open.delivered_ms.p99",
    "sent_late_p99_ms_at_half_load": "open.sent_late_ms.p99",
    "gateway_cpu_us_per_message_at_half_load": "open.cpu_us_per_message.gateway",
    "redis_cpu_us_per_message_at_half_load": "open.cpu_us_per_message.redis",
    "gateway_kb_per_idle_session": "idle.gateway_kb_per_session",
    "redis_kb_per_idle_session": "idle.redis_kb_per_session",
    "with_persist_per_second": "with_persist.per_second",
    "with_persist_stored_per_second": "with_persist.stored_per_second",
}
_COMMANDS_MAX = 12
# A run is disturbed if other processes used more than DISTURBED_SHARE of the server core, or if the
# p99 of the generator's sending delay exceeded DISTURBED_LATE_MS.
DISTURBED_SHARE = 0.05
DISTURBED_LATE_MS = 0.5


def get_redis_version(stack: Stack) -> str:
    if stack.redis is None:
        return "none"
    with redis_py.Redis(port=stack.redis.port) as client:
        return str(client.info("server")["redis_version"])


def reset_redis_stats(stack: Stack) -> None:
    if stack.redis is not None:
        with redis_py.Redis(port=stack.redis.port) as client:
            client.config_resetstat()


def get_redis_commands(stack: Stack) -> dict[str, dict[str, float]]:
    """Return calls and microseconds per call of the most expensive Redis commands."""
    if stack.redis is None:
        return {}
    with redis_py.Redis(port=stack.redis.port) as client:
        stats: dict[str, dict[str, float]] = client.info("commandstats")
    ranked = sorted(stats.items(), key=lambda item: -item[1]["usec"])[:_COMMANDS_MAX]
    return {
        name.removeprefix("cmdstat_"): {
            "calls": figures["calls"],
            "us_per_call": figures["usec_per_call"],
            "total_ms": round(figures["usec"] / 1000),
        }
        for name, figures in ranked
    }


def build(
    options: dict[str, Any],
    runs: list[dict[str, Any]],
    discarded: list[str],
    load_average: tuple[float, float, float],
) -> dict[str, Any]:
    """Return the complete result: settings, versions, medians and each run."""
    count_violations: dict[str, int] = {}
    for run in runs:
        for kind, count in run["violations"].items():
            count_violations[kind] = count_violations.get(kind, 0) + count
    return {
        "benchmark": "direct messages",
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _get_commit(),
        "settings": {
            name: value for name, value in options.items() if name not in ("out", "profile")
        },
        "not_measured": _list_not_measured(options),
        "versions": {**list_versions(), "redis-server": runs[0]["redis_version"]},
        "machine": {**describe_machine(), "load_average_before": list(load_average)},
        "targets": TARGETS,
        "medians": _compute_medians(runs),
        "violations": count_violations,
        "disturbed_runs": sum(map(is_disturbed, runs)),
        "discarded_runs": discarded,
        "runs": runs,
    }


def _get_commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  fixed
        return done.stdout.strip()

    is_changed = git("status", "--porcelain", "--untracked-files=no", "--", "chatserver")
    return git("rev-parse", "HEAD") + (" and uncommitted changes" if is_changed else "")


def _list_not_measured(options: dict[str, Any]) -> list[str]:
    notes = ["TLS", "network delay: all processes talk over loopback"]
    if not compiled.is_active():
        notes.append("the compiled send path: run `make compiled` first")
    if not options["with_persist"]:
        notes.append("the persist worker: it was off, so no `stored` was sent")
    if options["appendfsync"] == "off":
        notes.append("Redis's append-only file: it was off")
    elif not options["aof_rewrite"]:
        notes.append("rewrites of Redis's append-only file: they were off")
    return notes


def _compute_medians(runs: list[dict[str, Any]]) -> dict[str, float]:
    samples: dict[str, list[float]] = {}
    for run in runs:
        shares = run["closed"]["per_second"] / run["echo"]["per_second"]
        figures = {name: _find(run, path) for name, path in _FIGURES.items()}
        for name, value in {**figures, "share_of_echo": shares}.items():
            if value is not None:
                samples.setdefault(name, []).append(value)
    return {name: round(statistics.median(values), 3) for name, values in samples.items()}


def _find(run: dict[str, Any], path: str) -> float | None:
    """Return the value at a dotted `path` in the results of a run; None if not measured."""
    part: Any = run
    for key in path.split("."):
        part = part.get(key) if isinstance(part, dict) else None
    return float(part) if isinstance(part, int | float) else None


def format_line(number: int, run: dict[str, Any]) -> str:
    delivered = run["open"]["delivered_ms"]
    closed = run["closed"]
    disturbed = "  DISTURBED" if is_disturbed(run) else ""
    return (
        f"run {number}: {run['open_maximum_per_second']:,}/s in the open loop, "
        f"{closed['per_second']:,}/s in the closed one  half load p50 {delivered['p50']} "
        f"p99 {delivered['p99']} ms  echo {run['echo']['per_second']:,}/s  "
        f"others on the core {closed['server_core_others_share']:.0%}  "
        f"slow frames {run['slow_frames']}  violations {run['violations'] or 'none'}{disturbed}"
    )


def is_disturbed(run: dict[str, Any]) -> bool:
    """Return whether other processes used the server core or delayed the generator."""
    phases = (run["closed"], run["open"], run["echo"])
    late_ms = run["open"]["sent_late_ms"]["p99"]
    return (
        any(phase["server_core_others_share"] > DISTURBED_SHARE for phase in phases)
        or late_ms is None
        or late_ms > DISTURBED_LATE_MS
    )


def format_table(result: dict[str, Any]) -> str:
    """Return the medians with their targets, and the violations."""
    targets, rows = result["targets"], []
    for name, value in result["medians"].items():
        target = targets.get(name)
        is_met = None
        if target is not None:
            low_is_good = name.endswith(("_ms_at_half_load", "_kb_per_idle_session"))
            is_met = value <= target if low_is_good else value >= target
        mark = "" if is_met is None else ("met" if is_met else "MISSED")
        bound = "" if target is None else f"{target:,}"
        rows.append(f"{name:<42} {value:>12,} {bound:>10} {mark}")
    head = f"{'median of ' + str(len(result['runs'])) + ' runs':<42} {'figure':>12} {'target':>10}"
    wrong = [f"VIOLATION {kind}: {count}" for kind, count in result["violations"].items()]
    examples = [text for run in result["runs"] for text in run["examples"]][:20]
    notes = [f"not measured: {note}" for note in result["not_measured"]]
    if result["discarded_runs"]:
        notes.append(f"{len(result['discarded_runs'])} disturbed runs were repeated")
    if result["disturbed_runs"]:
        notes.append(f"{result['disturbed_runs']} runs disturbed: other work on the server core")
    return "\n".join([head, *rows, *notes, *wrong, *examples])


def to_json(result: dict[str, Any]) -> str:
    return json.dumps(result, indent=2) + "\n"
