"""Short loads against a stub server, in the process of the test."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from chatserver.loadtest.histogram import Histogram
from chatserver.loadtest.plan import SCENARIOS, LoadPlan
from chatserver.loadtest.stub_server import StubState, open_stub
from chatserver.loadtest.worker import LoadWorker


def plan_of(port: int, name: str = "direct", **changes: Any) -> LoadPlan:
    """Return the plan of a short load."""
    scenario = SCENARIOS[name]
    plan = LoadPlan(
        run="t",
        url=f"ws://127.0.0.1:{port}/",
        secret="x" * 32,
        audience="chatserver",
        issuer=None,
        token_s=600,
        first_user=1,
        users=2,
        rate=200,
        duration_s=0.3,
        settle_s=30,
        body_bytes=120,
        seed=1,
        connects_per_s=1000,
        shape=scenario.shape,
        mix=scenario.mix,
        storm_s=0,
        preload=scenario.preload,
    )
    return msgspec.structs.replace(plan, **changes)


async def run_load(state: StubState, name: str = "direct", **changes: Any) -> dict[str, Any]:
    """Run a load against a stub server with this state; return its result and measurements."""
    server, port = await open_stub(state)
    worker = LoadWorker(plan_of(port, name, **changes))
    counts: dict[str, int] = {}
    latencies: dict[str, Histogram] = {}
    try:
        await worker.set_up()

        def add(progress: dict[str, Any]) -> None:
            for key, count in progress["counts"].items():
                counts[key] = counts.get(key, 0) + count
            for key, fields in progress["histograms"].items():
                latencies.setdefault(key, Histogram()).add(Histogram.from_json(fields))

        result = await worker.run_load(time.monotonic(), add)
    finally:
        worker.users.close()
        server.close()
    found = {kind: count for kind, count in result["findings"].items() if count}
    expected = worker.users.count_expected()
    measured = {"counts": counts, "latencies": latencies, "expected": expected}
    return {**result, "found": found, **measured}
