"""`chatserver load bench` with short runs; the speed is not checked."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.deadlines import wait_for_exit

CLI = [sys.executable, "-m", "tests.support.cli", "load", "bench"]
SHORT = ["--seconds", "0.3", "--warmup", "0.1", "--runs", "1", "--calm", "0"]
DIRECT = ["direct", "--pairs", "2", "--window", "2", "--open-rate", "50", "--retries", "0"]
CONSTANTS = {
    # No rate is sustained, so the search for the maximum ends after its first rate.
    "chatserver.loadtest.bench.direct_pairs.SUSTAINED_P99_MS": "0",
    "chatserver.loadtest.bench.direct_pairs.SEARCH_ATTEMPTS": "1",
}


async def run_bench(
    tmp_path: Path, *args: str, code: int = 0, **constants: str
) -> tuple[dict[str, Any], str]:
    """Run a benchmark that exits with `code`; return its result and its output."""
    out = tmp_path / "result.json"
    process = await asyncio.create_subprocess_exec(
        *CLI,
        *args,
        *SHORT,
        *("--out", str(out)),
        env={**os.environ, **CONSTANTS, **constants},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(100):
            output = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.kill()
            await wait_for_exit(process)
    assert process.returncode == code, output
    return json.loads(out.read_text()), output


async def test_bench_direct_reports_rates_latency_and_versions(tmp_path: Path) -> None:
    """All parts of a run with a real gateway and Redis: idle memory, loops, CPU and echo."""
    result, output = await run_bench(tmp_path, *DIRECT, "--idle-sessions", "20")

    (run,) = result["runs"]
    assert run["violations"] == {}
    assert run["closed"]["per_second"] > 0 and run["closed"]["cpu_us_per_message"]["redis"] > 0
    assert run["open"]["ack_ms"]["p99"] > 0 and run["echo"]["per_second"] > 0
    assert result["versions"]["tierchat"] and result["versions"]["redis-server"]
    assert "not measured: the persist worker" in output


async def test_bench_direct_with_lost_messages_fails(tmp_path: Path) -> None:
    """Lost messages cause exit code 1, with examples."""
    args = [*DIRECT, "--idle-sessions", "0", "--target", "stub", "--fault", "lose"]

    short = {"chatserver.loadtest.bench.direct_pairs.DRAIN_S": "1"}  # wait for the lost messages
    result, _ = await run_bench(tmp_path, *args, code=1, **short)

    assert result["violations"]["lost"] > 0
    assert result["runs"][0]["examples"]


@pytest.mark.parametrize("kind", ["--inboxes", "--large"])
async def test_bench_groups_reports_deliveries_and_latency(kind: str, tmp_path: Path) -> None:
    """All parts of a run with a small group: closed loop, open loop and minimal fan-out server."""
    result, _ = await run_bench(tmp_path, "groups", "--members", "10", "--senders", "2", kind)

    (run,) = result["runs"]
    assert run["violations"] == {}
    assert result["deliveries_per_second"] > 0 and result["p99_ms_at_half"] > 0
    assert result["bare_per_second"] > 0 and result["bare_joined_per_second"] > 0
