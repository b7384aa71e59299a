"""Replacement for DynamoDB's TTL on table `messages`, for local servers without TTL.

An item whose `ttl` has passed is removed if its message has expired, or if the archive contains its
current revision. Any other item stays until it is archived. Each pass reads the whole table, so
use this only for small tables.
"""

from __future__ import annotations

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.errors import CorruptData
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.messages.messages import decode_item
from workers.archive import LEASE_S
from workers.archive.container import ArchiveContainer
from workers.periodic_work import run_periodically

log = structlog.get_logger()


class TtlEmulation:
    """Removes items as TTL would, under a lease."""

    def __init__(self, container: StorageContainer, owner: str) -> None:
        self._container = container
        self.lease = container.make_lease("expiry", owner, LEASE_S)

    async def sweep(self) -> int:
        """Remove items as TTL would; return the number removed.

        Guarantees:
            Idempotent. An item that has changed since it was read is kept.
        """
        removals, count = self._container.get(ArchiveContainer).removals, 0
        async for page in removals.items.iter_expired(self._container.clock.time()):
            for item in page:
                try:
                    outcome = await removals.classifier.classify(decode_item(item))
                except CorruptData as exc:
                    log.error("expiry.refused", error=exc.message)
                    continue
                failpoint("expiry.before_remove")
                if outcome != "missing":
                    count += await removals.items.remove(item)
            if 0 < self.lease.left_s() < LEASE_S / 2:
                await self.lease.claim()
        if count:
            log.info("expiry.removed", items=count)
        return count


async def run_expiry(container: StorageContainer, owner: str) -> None:
    """Sweep the table periodically, until cancelled. Raises Unavailable if a store is down."""
    emulation = TtlEmulation(container, owner)
    interval_s = container.settings.archive.sweep_interval_s
    await run_periodically(emulation.lease, interval_s, emulation.sweep)
