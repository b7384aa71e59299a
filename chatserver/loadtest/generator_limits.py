"""Capacity of the load tool itself, measured against a stub server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from chatserver.loadtest.coordinator import Coordinator, open_stubs
from chatserver.loadtest.plan import LoadPlan

WINDOW_MAX: Final = 64  # concurrent actions of each process
SETTLE_S: Final = 5.0
CONNECTS_PER_S: Final = 5000.0


async def measure_ceiling(plans: Sequence[LoadPlan], seconds: float) -> dict[str, Any]:
    """Return the actions per second in a closed loop, and the CPU cost per action.

    Each process has its own stub server. With fewer than two cores per process, the real maximum is
    higher than the measured one.

    Raises:
        LoadFailed: the load could not start.
    """
    async with open_stubs(len(plans)) as urls:
        run = Coordinator(
            [
                msgspec.structs.replace(
                    plan,
                    url=url,
                    duration_s=seconds,
                    settle_s=SETTLE_S,
                    connects_per_s=CONNECTS_PER_S,
                    storm_s=0.0,
                    window=max(1, min(WINDOW_MAX, plan.users // 2)),
                )
                for plan, url in zip(plans, urls, strict=True)
            ]
        )
        await run.run()
    totals = run.totals
    actions = totals.counts.get("offered", 0)
    took_s = max((result["took_s"] for result in totals.results), default=seconds)
    cpu_s = sum(result["cpu_s"] for result in totals.results)
    return {
        "per_s": round(actions / took_s, 1),
        "deliveries_per_s": round(totals.counts.get("delivered", 0) / took_s, 1),
        "cpu_us_per_action": round(cpu_s * 1e6 / actions, 1) if actions else None,
        "seconds": round(took_s, 3),
        "processes": len(plans),
    }
