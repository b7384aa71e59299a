"""Aligned sleeps: the periodic loops of a process wake up together.

A process that wakes up once for several loops uses less CPU, and the loops' Redis calls share one
round trip. Different processes do not wake up together.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chatserver.domain.jitter import add_jitter

_PHASE_S: Final = add_jitter(60.0, 0.0)


def compute_aligned_delay(interval_s: float) -> float:
    """Return the time until the next multiple of `interval_s` on the loop's clock."""
    return interval_s - (asyncio.get_running_loop().time() + _PHASE_S) % interval_s


async def sleep_aligned(interval_s: float) -> None:
    """Sleep until the next multiple of `interval_s`; see `compute_aligned_delay`."""
    await asyncio.sleep(compute_aligned_delay(interval_s))
