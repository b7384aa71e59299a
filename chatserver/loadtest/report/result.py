"""The result of a run as one JSON object: input to the HTML report and the capacity planner.

docs/load.md documents the fields; `SCHEMA` is incremented when the meaning of a field changes.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from chatserver.loadtest.coordinator import Coordinator, Totals
from chatserver.loadtest.delivery_checker import EXAMPLES_MAX, KINDS
from chatserver.loadtest.machine import describe_machine, list_versions
from chatserver.loadtest.plan import Scenario
from chatserver.loadtest.report.cost_constants import compute_constants
from chatserver.loadtest.script_metrics import COUNTED, FAILED, PASSED

SCHEMA: Final = 1
_PLAIN = ("offered", "sent", "acked", "delivered", "retried", "pages")
_COMING = ("connects", "connects_failed", "reconnects", "resumed_to_settle")
_OF_SCRIPTS = ("requests", "errors")
_GROUPS = (
    ("refused", "refused:"),
    ("tiers", "tier:"),
    ("checks_passed", PASSED),
    ("checks_failed", FAILED),
    ("metrics", COUNTED),
)
_SHOWN = ("ack", "delivered", "page", "connect")


def build(
    scenario: Scenario,
    run: Coordinator,
    *,
    pids: Mapping[str, list[int]],
    has_redis: bool,
    ceiling: dict[str, Any] | None,
    load_average: Sequence[float],
) -> dict[str, Any]:
    totals, plan = run.totals, run.plans[0]
    took_s = max(
        (worker_result["took_s"] for worker_result in totals.results), default=plan.duration_s
    )
    counts = collect_counts(totals)
    rates = {
        f"{name}_per_s": round(counts[name] / took_s, 1)
        for name in ("offered", "sent", "acked", "delivered")
    }
    script = scenario.script
    result = {
        "schema": SCHEMA,
        "at": _format_time(run.began_at),
        "ended": run.ended,
        "why_broken": run.why_broken,
        "scenario": {
            "name": scenario.name,
            "about": scenario.about,
            "users": sum(planned.users for planned in run.plans),
            "rate_per_s": sum(planned.rate for planned in run.plans) if script is None else None,
            "duration_s": plan.duration_s,
            "took_s": round(took_s, 3),
            "body_bytes": plan.body_bytes,
            "seed": plan.seed,
            "chats": run.chats,
            "members": {"small": plan.shape.small_members, "large": plan.shape.large_members}
            if script is None
            else script.chats,
            "mix": msgspec.structs.asdict(plan.mix) if script is None else {},
            "storm_s": plan.storm_s,
            "script": None if script is None else {"file": script.path, "sha256": script.sha256},
        },
        "target": {"url": plan.url, "processes": dict(pids), "has_redis": has_redis},
        "machine": {**describe_machine(), "load_average_before": list(load_average)},
        "versions": list_versions(),
        "tool": _build_tool(run, took_s, rates["offered_per_s"], ceiling),
        "counts": counts,
        "examples": _collect_examples(totals),
        "first_error": next(filter(None, (each["first_error"] for each in totals.results)), ""),
        "rates": rates,
        "latency_ms": {
            name: histogram.summarize_ms() for name, histogram in sorted(totals.histograms.items())
        },
        "histograms": {
            name: histogram.to_json() for name, histogram in sorted(totals.histograms.items())
        },
        "series": build_series(totals),
    }
    result["constants"] = compute_constants(result, run.before, run.after)
    return result


def collect_counts(totals: Totals) -> dict[str, Any]:
    counts: dict[str, Any] = {name: totals.counts.get(name, 0) for name in (*_PLAIN, *_COMING)}
    counts |= {name: totals.counts.get(name, 0) for name in _OF_SCRIPTS}
    counts["expected"] = totals.expected
    counts["unacked"] = sum(result["unacked"] for result in totals.results)
    counts["unsent"] = totals.counts.get("unsent", 0)
    counts["unsent"] += sum(result["unsent"] for result in totals.results)
    for kind in KINDS:
        counts[kind] = sum(result["findings"][kind] for result in totals.results)
    for name, prefix in _GROUPS:
        counts[name] = {
            key.removeprefix(prefix): count
            for key, count in sorted(totals.counts.items())
            if key.startswith(prefix)
        }
    return counts


def build_series(totals: Totals) -> list[dict[str, Any]]:
    rows = []
    for number, second in sorted(totals.seconds.items()):
        row: dict[str, Any] = {"second": number}
        nothing = 0 if "missing" in second else None  # None: no worker reported this second
        row |= {name: second.get(name, nothing) for name in (*_PLAIN, "connects", "missing")}
        for name in _SHOWN:
            row[f"{name}_p50"] = totals.get_percentile_ms(number, name, 0.5)
            row[f"{name}_p99"] = totals.get_percentile_ms(number, name, 0.99)
        row["loop_lag_p99"] = totals.get_percentile_ms(number, "loop_lag", 0.99)
        row |= {name: second.get(name) for name in ("backlog", "cpu_s", "rss")}
        rows.append(row)
    return rows


def _collect_examples(totals: Totals) -> list[str]:
    examples = [text for worker_result in totals.results for text in worker_result["examples"]]
    for result in totals.results:
        examples += [f"refused: {code}: {text}" for code, text in result["refusals"].items()]
        if result["last_failure"]:
            examples.append(f"while users connected or reconnected: {result['last_failure']}")
        if result["fatal"]:
            examples.append(result["fatal"])
    return list(dict.fromkeys(examples))[:EXAMPLES_MAX]


def _build_tool(
    run: Coordinator, took_s: float, offered_per_s: float, ceiling: dict[str, Any] | None
) -> dict[str, Any]:
    totals = run.totals
    shares = [result["cpu_s"] / took_s for result in totals.results]
    used = None
    if ceiling is not None and ceiling["per_s"]:
        # The ceiling is that of this machine; its processes have their share of the users.
        local_share = 1 - len(run.remotes) / len(run.plans)
        used = round(offered_per_s * local_share / ceiling["per_s"], 4)
    return {
        "processes": len(run.plans),
        "remote_processes": len(run.remotes),
        "cpu_s": round(sum(result["cpu_s"] for result in totals.results), 3),
        "cpu_share_max": round(max(shares, default=0.0), 3),
        "ceiling": ceiling,
        "used_of_ceiling": used,
    }


def _format_time(time_s: float) -> str:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).isoformat(timespec="seconds")


def get_load_average() -> tuple[float, ...]:
    return os.getloadavg() if hasattr(os, "getloadavg") else ()


def to_json(result: dict[str, Any]) -> str:
    """Encode the result as JSON text, one line per field."""
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in result.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
