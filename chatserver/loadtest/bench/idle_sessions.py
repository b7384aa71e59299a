"""Memory of an idle session, in the gateway and in Redis.

Some sessions are opened first, so that one-time allocations are not counted. Then the idle sessions
are opened, one per user. Memory is measured before and after that, and the difference is divided by
the number of sessions. The gateway's resident memory is read every half second until two readings
are equal; then Redis's `used_memory` is read.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import click
import redis as redis_py
import uvloop

from chatserver.loadtest.bench.run_options import prepare_process
from chatserver.loadtest.bench.server_stack import Placement, Stack, run_chat_stack
from chatserver.loadtest.bench.session import RunFindings, Session, open_sessions
from chatserver.loadtest.machine import read_rss_bytes

_FIRST_SESSIONS = 100


async def measure_idle_sessions(stack: Stack, count: int, findings: RunFindings) -> dict[str, Any]:
    """Return the mean memory of `count` idle sessions, in the gateway and in Redis."""
    first = await open_sessions(
        stack, [f"w{n:05}" for n in range(_FIRST_SESSIONS)], findings, Session
    )
    before, redis_before = await _wait_for_stable_rss(stack), _get_redis_bytes(stack)
    idle = await open_sessions(stack, [f"i{n:05}" for n in range(count)], findings, Session)
    await asyncio.gather(*(session.ping() for session in idle))
    after, redis_after = await _wait_for_stable_rss(stack), _get_redis_bytes(stack)
    for session in (*first, *idle):
        session.close()
    return {
        "sessions": count,
        "gateway_rss_before_kb": before // 1024,
        "gateway_rss_after_kb": after // 1024,
        "gateway_kb_per_session": round((after - before) / 1024 / count, 2),
        "redis_kb_per_session": round((redis_after - redis_before) / 1024 / count, 2),
    }


async def _wait_for_stable_rss(stack: Stack) -> int:
    pid = stack.get_pids()["gateway"]
    last = -1
    while (now := read_rss_bytes(pid)) != last:
        last = now
        await asyncio.sleep(0.5)
    return now


def _get_redis_bytes(stack: Stack) -> int:
    if stack.redis is None:
        return 0
    with redis_py.Redis(port=stack.redis.port) as client:
        return int(client.info("memory")["used_memory"])


@click.command()
@click.option(
    "--sessions",
    default=5000,
    show_default=True,
    type=click.IntRange(1),
    help="Number of idle sessions.",
)
@click.option("--server-core", default=0, show_default=True, help="CPU core to pin the servers to.")
@click.option(
    "--load-core", default=1, show_default=True, help="CPU core to pin the load generator to."
)
def idle(sessions: int, server_core: int, load_core: int) -> None:
    """Measure the memory of an idle session."""
    prepare_process(load_core)
    with (
        tempfile.TemporaryDirectory() as folder,
        run_chat_stack(Placement(server_core, load_core), Path(folder)) as stack,
    ):
        figures = uvloop.run(measure_idle_sessions(stack, sessions, RunFindings()))
    click.echo(json.dumps(figures, indent=2))
