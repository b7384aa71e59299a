"""Pass/fail thresholds of a load test."""

from __future__ import annotations

import dataclasses
from typing import Any

# Only the first of these latencies that the result has is checked.
_CHECKED = ("delivered", "page", "resume", "connect")


@dataclasses.dataclass(frozen=True, slots=True)
class Thresholds:
    """Bounds that a result must meet; None: not checked."""

    p99_ms: float | None = None
    p999_ms: float | None = None
    loss: int = 0
    duplicates: int = 0
    disorder: int = 0  # messages out of order or with a changed body, and gaps in an inbox
    refused: int | None = None
    unacked: int | None = None
    achieved_share: float | None = None  # minimum share of scheduled actions that succeed


def check_thresholds(result: dict[str, Any], bounds: Thresholds) -> dict[str, Any]:
    """Return a dict: `is_ok`, and `broken` with one message per violated threshold."""
    counts, broken = result["counts"], []

    def check(label: str, value: float | None, most: float | None, unit: str = "") -> None:
        if most is not None and value is not None and value > most:
            broken.append(f"{label}: {value:g}{unit}, at most {most:g}{unit} allowed")

    check("lost", counts["lost"], bounds.loss)
    check("duplicates", counts["duplicate"], bounds.duplicates)
    wrong = counts["disordered"] + counts["jumped"] + counts["mismatched"]
    check("out of order or changed", wrong, bounds.disorder)
    check("refused", sum(counts["refused"].values()), bounds.refused)
    check("not acked", counts["unacked"] + counts["unsent"], bounds.unacked)
    for name in _CHECKED:
        latency = result["latency_ms"].get(name)
        if latency is not None:
            check(f"p99 of {name}", latency["p99"], bounds.p99_ms, " ms")
            check(f"p99.9 of {name}", latency["p99_9"], bounds.p999_ms, " ms")
            break
    else:
        if bounds.p99_ms is not None or bounds.p999_ms is not None:
            broken.append("no latency was measured")
    share = compute_done_share(counts)
    if bounds.achieved_share is not None and share < bounds.achieved_share:
        broken.append(
            f"completed: {share:.1%} of the offered actions, at least "
            f"{bounds.achieved_share:.1%} required"
        )
    if result["ended"] == "broken":
        broken.append(f"the results are incomplete: {result['why_broken']}")
    return {"is_ok": not broken, "broken": broken}


def compute_done_share(counts: dict[str, Any]) -> float:
    """Return the share of scheduled actions that succeeded."""
    if not counts["offered"]:
        return 0.0
    done = counts["acked"] + counts["pages"] + counts["connects"] - counts["reconnects"]
    return min(1.0, float(done / counts["offered"]))
