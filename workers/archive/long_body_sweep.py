"""Deletes body objects of long messages that no item references.

Crashes and TTL removals leave such objects behind. A pass lists all objects, and checks those that
are `UNWRITTEN_S_MAX` older than the oldest backlog entry, or than now if the backlog is empty. The
items of newer objects may not have been written yet.
"""

from __future__ import annotations

import structlog

from chatserver.cold.long_bodies import BodyFiles
from chatserver.container.storage import StorageContainer
from chatserver.errors import ConfigError
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.telemetry import metrics
from chatserver.warm.messages.long_bodies import PREFIX, LongBodies, parse_object_key

log = structlog.get_logger()

BODIES_SWEEP_S = 3600.0

LEASE_S = 120.0
# An orphaned object is deleted only if it is this much older than the oldest backlog entry, or than
# now if there is none. This allows for clock differences, and for writers that bypass the backlog
# (replays by an operator).
UNWRITTEN_S_MAX = 900.0


class LongBodySweeper:
    """Deletes orphaned body objects, under a lease."""

    def __init__(
        self, container: StorageContainer, owner: str, settle_s: float = UNWRITTEN_S_MAX
    ) -> None:
        self._container = container
        self._settle_s = settle_s
        self._bodies: LongBodies = container.long_bodies
        self._files: BodyFiles = container.body_files
        self.lease = container.make_lease("bodies", owner, LEASE_S)

    async def sweep_if_bucket_exists(self) -> None:
        """Delete orphaned objects; without a bucket there are none."""
        try:
            await self.sweep()
        except ConfigError as exc:
            log.warning("bodies.sweep_failed", error=exc.message)

    async def sweep(self, prefix: str = PREFIX) -> int:
        """Delete orphaned objects whose key starts with `prefix`; return the number deleted.

        Guarantees:
            Idempotent, and safe to run concurrently. An object is kept if an item references it, or
            if its item may not have been written yet.
        """
        before, count = await self._find_horizon(), 0
        async for page in self._files.iter_pages(prefix):
            old = [file.key for file in page if file.written < before]
            for key in await self._bodies.find_orphans(old):
                if await self._can_delete(key):
                    await self._files.remove(key)
                    count += 1
            if 0 < self.lease.left_s() < LEASE_S / 2:
                await self.lease.claim()
        if count:
            metrics.LONG_BODIES.labels("swept").inc(count)
            log.info("bodies.swept", objects=count)
        return count

    async def _can_delete(self, key: str) -> bool:
        """Return whether an orphaned object may be deleted.

        If TTL removed an item before it was archived, the Stream reader restores the item
        (`workers.archive.ttl_removal_checks`). The restored item needs the object.
        """
        archive, position = self._container.settings.archive, parse_object_key(key)
        if position is None or archive.removal != "ttl" or not archive.retention_s:
            return True
        chat, ts = position
        if ts / 1e6 > self._container.clock.time() - archive.retention_s:
            return True
        return await self._container.manifests.find_at(chat, ts) is not None

    async def _find_horizon(self) -> float:
        """Return a Unix time (s). The items of body objects from before that time are stored."""
        oldest = self._container.clock.time()
        for partition in range(self._container.hot.keys.partitions):
            entry = await Backlog(self._container.hot, partition).find_oldest_ms()
            if entry is not None:
                oldest = min(oldest, entry / 1000)
        return oldest - self._settle_s
