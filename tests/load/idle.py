"""Memory of a session that is there and does nothing.

The gateway first gets some sessions, so that what it allocates once is allocated. Then its resident
memory is read, the idle sessions are opened and authenticated (a user each), it is read again when
it no longer grows, and the difference is divided by their number. The same for Redis's own count.
"""

from __future__ import annotations

import asyncio
from typing import Any

import redis as redis_py

from tests.load import probe
from tests.load.connection import Tally
from tests.load.people import open_sessions
from tests.load.stack import Stack

_FIRST_SESSIONS = 100


async def measure(stack: Stack, count: int, tally: Tally) -> dict[str, Any]:
    """Return the memory that each of `count` idle sessions takes in the gateway and in Redis."""
    first = await open_sessions(stack, [f"w{n:05}" for n in range(_FIRST_SESSIONS)], tally)
    before, redis_before = await _settled_rss(stack), _redis_bytes(stack)
    idle = await open_sessions(stack, [f"i{n:05}" for n in range(count)], tally)
    await asyncio.gather(*(session.ping() for session in idle))
    after, redis_after = await _settled_rss(stack), _redis_bytes(stack)
    for session in (*first, *idle):
        session.close()
    return {
        "sessions": count,
        "gateway_rss_before_kb": before // 1024,
        "gateway_rss_after_kb": after // 1024,
        "gateway_kb_per_session": round((after - before) / 1024 / count, 2),
        "redis_kb_per_session": round((redis_after - redis_before) / 1024 / count, 2),
    }


async def _settled_rss(stack: Stack) -> int:
    """Return the gateway's resident memory once two readings agree."""
    pid = stack.pids()["gateway"]
    last = -1
    while (now := probe.rss_bytes(pid)) != last:
        last = now
        await asyncio.sleep(0.5)
    return now


def _redis_bytes(stack: Stack) -> int:
    if stack.redis is None:
        return 0
    with redis_py.Redis(port=stack.redis.port) as client:
        return int(client.info("memory")["used_memory"])
