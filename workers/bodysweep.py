"""Removes bodies of long messages that no message points to.

Such an object is left by who died between writing it and the item, or between the item's change and
the object's removal, and where DynamoDB's TTL removed an item. All objects are listed, and those
that are old enough are looked up: old enough is what was written before the oldest entry of the
backlog that is not persisted, so that whoever has still to write the item is not deprived of it.
"""

from __future__ import annotations

import structlog

from chatserver.cold.bodies import BodyFiles
from chatserver.errors import ConfigError
from chatserver.hot.backlog import Backlog
from chatserver.hot.leases import Lease
from chatserver.telemetry import metrics
from chatserver.warm.bodies import PREFIX, LongBodies, place_of_object
from workers.parts import WorkerParts
from workers.rounds import make_rounds

log = structlog.get_logger()

LEASE_S = 120.0
# Clocks differ; and who writes past the backlog (an operator's replay) is done by then.
SETTLE_S = 900.0


class BodySweeper:
    """Makes passes over the objects; one process at a time has the lease."""

    def __init__(self, parts: WorkerParts, owner: str, settle_s: float = SETTLE_S) -> None:
        self._parts = parts
        self._settle_s = settle_s
        self._bodies: LongBodies = parts.bodies
        self._files: BodyFiles = parts.body_files
        self._lease = Lease(parts.hot, 0, "bodies", owner, LEASE_S, parts.clock)

    async def run(self) -> None:
        """Sweep until cancelled.

        Raises:
            Unavailable: a store went away; start again.
        """
        await make_rounds(
            self._lease, self._parts.settings.warm.bodies_sweep_s, self._sweep_if_there_is_a_bucket
        )

    async def _sweep_if_there_is_a_bucket(self) -> None:
        try:
            await self.sweep()
        except ConfigError as exc:  # no bucket: then there are no objects either
            log.warning("bodies.not_swept", why=exc.message)

    async def sweep(self, prefix: str = PREFIX) -> int:
        """Remove what nobody points to, and return how many objects that were.

        Guarantees:
            Idempotent, and several at once do no harm. What an item points to, or what somebody
            has still to point to, stays.
        """
        before, count = await self._find_horizon(), 0
        async for page in self._files.iter_pages(prefix):
            old = [each.key for each in page if each.written < before]
            for key in await self._bodies.find_orphans(old):
                if await self._may_go(key):
                    await self._files.remove(key)
                    count += 1
            if 0 < self._lease.left_s() < LEASE_S / 2:
                await self._lease.claim()
        if count:
            metrics.LONG_BODIES.labels("swept").inc(count)
            log.info("bodies.swept", objects=count)
        return count

    async def _may_go(self, key: str) -> bool:
        """Tell whether the item that pointed to an object cannot come back.

        One that TTL removed for its age, before the archive had it, is put back by who reads the
        Stream (`workers.removals`), and points to it again.
        """
        archive, place = self._parts.settings.archive, place_of_object(key)
        if place is None or archive.removal != "ttl" or not archive.retention_s:
            return True
        chat, ts = place
        if ts / 1e6 > self._parts.clock.time() - archive.retention_s:
            return True
        return await self._parts.manifests.find_at(chat, ts) is not None

    async def _find_horizon(self) -> float:
        """Return the time before which an object was written whose item is written, too."""
        oldest = self._parts.clock.time()
        for partition in range(self._parts.hot.keys.partitions):
            entry = await Backlog(self._parts.hot, partition).find_oldest_ms()
            if entry is not None:
                oldest = min(oldest, entry / 1000)
        return oldest - self._settle_s


async def run_body_sweep(parts: WorkerParts, owner: str) -> None:
    """Sweep until cancelled.

    Raises:
        Unavailable: a store went away; start again.
    """
    await BodySweeper(parts, owner).run()
