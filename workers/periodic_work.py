"""Periodic work under a lease: only the process that holds the lease runs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chatserver.domain.aligned_sleep import sleep_aligned
from chatserver.hot.worker_leases import Lease


async def run_periodically(
    lease: Lease, interval_s: float, run_pass: Callable[[], Awaitable[object]]
) -> None:
    """Call `run_pass` every `interval_s` while this process holds the lease, until cancelled.

    The lease is released on exit.

    Raises:
        Unavailable: Redis does not respond.
        Exception: any error from `run_pass`; the caller restarts the loop.
    """
    async with lease.release_on_exit():
        while True:
            if await lease.claim():
                await run_pass()
            await sleep_aligned(interval_s)
