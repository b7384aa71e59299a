"""Removes from table `messages` what TTL would, where nobody does: local servers know no TTL.

An item whose `ttl` is over goes if its text has ended, or if the archive has it as it is. Anything
else stays: the archive worker has yet to take it. The whole table is read for that, so this is for
small ones. Conditional on what was read; several at once do no harm.
"""

from __future__ import annotations

import structlog

from chatserver.errors import CorruptData
from chatserver.hot.leases import Lease
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.messages import decode_item
from workers.parts import WorkerParts
from workers.rounds import make_rounds

log = structlog.get_logger()


class ExpirySweeper:
    """Makes passes over the table; one process at a time has the lease."""

    def __init__(self, parts: WorkerParts, owner: str) -> None:
        self._parts = parts
        self._lease_s = parts.settings.archive.lease_s
        self._lease = Lease(parts.hot, 0, "expiry", owner, self._lease_s, parts.clock)

    async def run(self) -> None:
        """Sweep until cancelled.

        Raises:
            Unavailable: a store went away; start again.
        """
        await make_rounds(self._lease, self._parts.settings.archive.sweep_interval_s, self.sweep)

    async def sweep(self) -> int:
        """Remove what may go now; return how many items that were.

        Guarantees:
            Idempotent. An item that changed since it was read stays.
        """
        removals, count = self._parts.removals, 0
        async for page in removals.items.iter_over(self._parts.clock.time()):
            for item in page:
                try:
                    found = await removals.judge.judge(decode_item(item))
                except CorruptData as exc:
                    log.error("expiry.refused", error=exc.message)
                    continue
                failpoint("expiry.before_remove")
                if found != "missing":
                    count += await removals.items.remove(item)
            if 0 < self._lease.left_s() < self._lease_s / 2:
                await self._lease.claim()
        if count:
            log.info("expiry.removed", items=count)
        return count


async def run_expiry(parts: WorkerParts, owner: str) -> None:
    """Sweep until cancelled. Raises Unavailable: a store went away; start again."""
    await ExpirySweeper(parts, owner).run()
