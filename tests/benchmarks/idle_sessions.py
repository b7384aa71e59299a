"""Memory of an idle session, in the gateway and in Redis.

    python -m tests.benchmarks.idle_sessions [--sessions 5000] [--out F.json]

Some sessions are opened first, so that one-time allocations are not counted. Then the idle sessions
are opened, one per user. Memory is measured before and after that, and the difference is divided by
the number of sessions. The gateway's resident memory is read every half second until two readings
are equal; then Redis's `used_memory` is read.
"""

from __future__ import annotations

import asyncio
from typing import Any

import click

from chatserver.loadtest.machine import read_rss_bytes
from tests.benchmarks.support.checked_sessions import Session, open_sessions
from tests.benchmarks.support.harness import Bench, benchmark
from tests.benchmarks.support.measurements import Figures, get_pid
from tests.benchmarks.support.pinned_stack import PinnedStack
from tests.support.servers.processes import redis_client

FIRST_SESSIONS = 100


@benchmark(click.option("--sessions", default=5000, show_default=True, type=click.IntRange(1)))
async def main(bench: Bench, sessions: int) -> Figures:
    pinned = PinnedStack(bench)
    pid = get_pid(pinned.start_gateway())

    async def open_more(prefix: str, count: int) -> tuple[list[Session], int, int]:
        users = [f"{prefix}{number:05}" for number in range(count)]
        opened = await open_sessions(pinned.stack, users, bench.findings, Session)
        await asyncio.gather(*(session.ping() for session in opened))
        last = -1
        while (now := read_rss_bytes(pid)) != last:
            last = now
            await asyncio.sleep(0.5)
        with redis_client(pinned.stack.redis_url) as client:
            memory: Any = client.info("memory")
        return opened, now, memory["used_memory"]

    first, rss_before, redis_before = await open_more("w", FIRST_SESSIONS)
    idle, rss_after, redis_after = await open_more("i", sessions)
    for session in (*first, *idle):
        session.close()
    return {
        "gateway_rss_before_kb": rss_before // 1024,
        "gateway_rss_after_kb": rss_after // 1024,
        "gateway_kb_per_session": round((rss_after - rss_before) / 1024 / sessions, 2),
        "redis_kb_per_session": round((redis_after - redis_before) / 1024 / sessions, 2),
    }


if __name__ == "__main__":
    main()
