"""Pass/fail thresholds of a load test."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final

import click

# Only the first of these latencies that the result has is checked.
_CHECKED = ("delivered", "page", "resume", "connect")


_NUMBER: Final = click.FloatRange(min=0, min_open=True)
_COUNT: Final = click.IntRange(0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Bounds that a result must meet, as options of `chatserver load`; None: not checked."""

    max_p99_ms: Annotated[
        float | None, _NUMBER, "Maximum p99 latency of deliveries, pages or connects."
    ] = None
    max_p999_ms: Annotated[float | None, _NUMBER, "Maximum p99.9 latency."] = None
    max_loss: Annotated[int, _COUNT, "Maximum number of lost messages."] = 0
    max_duplicates: Annotated[int, _COUNT, "Maximum number of duplicate messages."] = 0
    max_disorder: Annotated[
        int, _COUNT, "Maximum number of messages that arrive out of order or changed."
    ] = 0
    max_refused: Annotated[
        int | None, _COUNT, "Maximum number of refused actions; default: unlimited."
    ] = None
    max_unacked: Annotated[
        int | None, _COUNT, "Maximum number of messages without an ack; default: unlimited."
    ] = None
    min_done: Annotated[
        float | None, click.FloatRange(0, 1), "Minimum share of offered actions that complete."
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScriptThresholds(Thresholds):
    """Further bounds on the result of a load script."""

    max_refused: Annotated[int | None, _COUNT, "Maximum number of refused actions."] = 0
    max_unacked: Annotated[int | None, _COUNT, "Maximum number of messages without an ack."] = 0
    max_failed_checks: Annotated[int, _COUNT, "Maximum number of failed checks of the script."] = 0
    max_errors: Annotated[int, _COUNT, "Maximum number of exceptions in users of the script."] = 0


def check_thresholds(result: dict[str, Any], bounds: Thresholds) -> dict[str, Any]:
    """Return a dict: `is_ok`, and `broken` with one message per violated threshold."""
    counts, broken = result["counts"], []

    def check(label: str, value: float | None, most: float | None, unit: str = "") -> None:
        if most is not None and value is not None and value > most:
            broken.append(f"{label}: {value:g}{unit}, at most {most:g}{unit} allowed")

    check("lost", counts["lost"], bounds.max_loss)
    check("duplicates", counts["duplicate"], bounds.max_duplicates)
    wrong = counts["disordered"] + counts["jumped"] + counts["mismatched"]
    check("out of order or changed", wrong, bounds.max_disorder)
    check("refused", sum(counts["refused"].values()), bounds.max_refused)
    check("not acked", counts["unacked"] + counts["unsent"], bounds.max_unacked)
    if isinstance(bounds, ScriptThresholds):
        failed = counts["checks_failed"]
        names = f" ({', '.join(failed)})" if failed else ""
        check(f"failed checks{names}", sum(failed.values()), bounds.max_failed_checks)
        check("exceptions in users", counts["errors"], bounds.max_errors)
    for name in _CHECKED:
        latency = result["latency_ms"].get(name)
        if latency is not None:
            check(f"p99 of {name}", latency["p99"], bounds.max_p99_ms, " ms")
            check(f"p99.9 of {name}", latency["p99_9"], bounds.max_p999_ms, " ms")
            break
    else:
        if bounds.max_p99_ms is not None or bounds.max_p999_ms is not None:
            broken.append("no latency was measured")
    share = compute_done_share(counts)
    if bounds.min_done is not None and share < bounds.min_done:
        broken.append(
            f"completed: {share:.1%} of the offered actions, at least "
            f"{bounds.min_done:.1%} required"
        )
    if result["ended"] == "broken":
        broken.append(f"the results are incomplete: {result['why_broken']}")
    return {"is_ok": not broken, "broken": broken}


def compute_done_share(counts: dict[str, Any]) -> float:
    """Return the share of scheduled actions that succeeded."""
    if not counts["offered"]:
        return 0.0
    done = counts["acked"] + counts["pages"] + counts["connects"] - counts["reconnects"]
    done += counts["requests"]
    return min(1.0, float(done / counts["offered"]))
