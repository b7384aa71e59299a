"""Rounds: what one process at a time goes through, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from chatserver.domain.jitter import jittered
from chatserver.hot.leases import Lease


async def make_rounds(
    lease: Lease, interval_s: float, go_round: Callable[[], Awaitable[object]]
) -> None:
    """Go round while the lease is ours, some `interval_s` apart, until cancelled.

    On the way out the lease is given back.

    Raises:
        Unavailable: Redis does not answer.
        Exception: whatever a round raises; the next one is the caller's.
    """
    async with lease.given_back():
        while True:
            if await lease.claim():
                await go_round()
            await asyncio.sleep(jittered(interval_s))
