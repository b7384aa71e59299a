"""Text summary of a run: progress lines and the final result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chatserver.domain.quantities import format_count
from chatserver.loadtest.coordinator import Totals

_COUNTED = ("lost", "duplicate", "disordered", "jumped", "mismatched", "unacked", "unsent")


def format_progress(totals: Totals, number: int) -> str:
    row = totals.seconds.get(number, {})
    for name in ("delivered", "page", "connect"):
        p50, p99 = (totals.get_percentile_ms(number, name, share) for share in (0.5, 0.99))
        if p50 is not None:
            break
    else:
        name = "latency"
    done = row.get("acked", 0) + row.get("pages", 0) + row.get("connects", 0)
    return (
        f"{number + 1:>4} s  offered {row.get('offered', 0)}/s  done {done}/s  "
        f"delivered {row.get('delivered', 0)}/s  "
        f"{name} p50 {_format_ms(p50)} p99 {_format_ms(p99)}  "
        f"missing {row.get('missing', 0)}  backlog {_format_or_dash(row.get('backlog'))}"
        + "".join(f"  {name} {row[name]}" for name in ("errors",) if row.get(name))
    )


def format_ceiling(ceiling: dict[str, Any]) -> str:
    return (
        f"ceiling of the tool here: {ceiling['per_s']:,.0f} actions/s, "
        f"{ceiling['deliveries_per_s']:,.0f} deliveries/s, "
        f"{_format_or_dash(ceiling['cpu_us_per_action'])} us of CPU an action, "
        f"{format_count(ceiling['processes'], 'process', 'processes')}, "
        "against a stub server"
    )


def iter_lines(result: dict[str, Any]) -> Iterator[str]:
    counts, rates = result["counts"], result["rates"]
    yield (
        f"offered {rates['offered_per_s']:g}/s, acked {rates['acked_per_s']:g}/s, delivered "
        f"{rates['delivered_per_s']:g}/s over {result['scenario']['took_s']:g} s "
        f"({counts['offered']} actions, {counts['delivered']} of {counts['expected']} deliveries)"
    )
    names = ("count", "p50", "p90", "p99", "p99_9", "p99_99", "max")
    heads = "".join(f"{name.replace('_', '.'):>11}" for name in names)
    yield f"{'latency, ms':<12}{heads}"
    for name, row in result["latency_ms"].items():
        yield f"{name:<12}" + "".join(f"{_format_or_dash(row[key]):>11}" for key in names)
    wrong = [f"{name} {counts[name]}" for name in _COUNTED]
    refused = ", ".join(f"{code} {count}" for code, count in counts["refused"].items())
    yield f"{', '.join(wrong)}; refused {refused or 0}"
    yield from _iter_script_lines(result)
    tool = result["tool"]
    if tool["used_of_ceiling"] is not None:
        yield (
            f"the tool used {tool['used_of_ceiling']:.1%} of its capacity and "
            f"{tool['cpu_share_max']:.0%} of a core in its busiest process"
        )
    for text in result["examples"]:
        yield f"  {text}"
    if "rate_limited" in counts["refused"]:
        yield (
            "  rate_limited: a limit of one user (CHAT_LIMITS_SENDS, CHAT_LIMITS_REQUESTS, "
            "CHAT_LIMITS_MEMORY); use more --users, a lower --rate, or another limit"
        )
    for text in result["verdict"]["broken"]:
        yield f"BROKEN  {text}"
    if result["ended"] != "done":
        yield f"the load was {result['ended']}"


def _iter_script_lines(result: dict[str, Any]) -> Iterator[str]:
    counts = result["counts"]
    passed, failed = counts["checks_passed"], counts["checks_failed"]
    for name in sorted({*passed, *failed}):
        yield f"check   {name}: {passed.get(name, 0)} passed, {failed.get(name, 0)} failed"
    for name, count in counts["metrics"].items():
        yield f"count   {name}: {count}"
    if counts["errors"]:
        yield f"{format_count(counts['errors'], 'exception', 'exceptions')} in users; the first:"
        yield from (f"  {line}" for line in result["first_error"].splitlines())


def _format_ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"


def _format_or_dash(value: object) -> str:
    return "-" if value is None else str(value)
