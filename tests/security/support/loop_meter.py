"""CPU time of the event loops of server processes.

The main thread of a server runs its event loop, and Linux counts the CPU time of each thread. It
does not depend on the load of the machine as wall time does, and it includes system calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")
IDLE_S: Final = 0.02
IDLE_CHECKS_MAX: Final = 10
IDLE_MS: Final = 0.3  # CPU time per interval of a server that only waits


class LoopMeter:
    """Measures what a request costs the event loop of each process."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._files = {
            name: Path(f"/proc/{pid}/task/{pid}/schedstat") for name, pid in pids.items()
        }

    def _read_ms(self) -> dict[str, float]:
        return {name: int(file.read_text().split()[0]) / 1e6 for name, file in self._files.items()}

    async def measure(self, request: Awaitable[T]) -> tuple[float, T]:
        """Send a request; return the CPU time of the loop it used most, in ms, and the response.

        The work that follows the response is included.
        """
        before = await self._wait_until_idle()
        answer = await request
        after = await self._wait_until_idle()
        return max(after[name] - before[name] for name in before), answer

    async def _wait_until_idle(self) -> dict[str, float]:
        """Wait for an interval without work, at most `IDLE_CHECKS_MAX` intervals."""
        read = self._read_ms()
        for _ in range(IDLE_CHECKS_MAX):
            await asyncio.sleep(IDLE_S)
            read, before = self._read_ms(), read
            if all(read[name] - before[name] < IDLE_MS for name in read):
                break
        return read
