"""Counters: coalesce the likes and follows of a few seconds into one write per post or user.

::

    {pN}:counts ─► coalesce by item ─► ADD, unless an entry is already counted ─► trim the queue
                                        │ partly counted: a worker crashed here
                                        └─► add the rest

One worker, the lease holder, counts the changes of a partition. Each count item stores the last
queue entry that it includes, so no entry counts twice, even if a worker crashes or two workers
overlap for a moment. The queue is trimmed only after counting, so no entry is missed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.jitter import add_jitter
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.hot import Count, CountBatches, CountEntry, get_age_s
from chatserver.features.social.model import PostId
from chatserver.features.social.warm.counts import CountResult
from chatserver.task_groups import map_concurrently
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from workers.partition_workers import run_partitions

log = structlog.get_logger()

FLUSH_S = 2.0  # target for the delay until a like or follow is counted
IDLE_MS = 3000  # maximum wait for changes; shorter than the renewal interval of the lease

BATCH_MAX = 5000  # maximum changes counted per call of `step`
WRITES_IN_FLIGHT_MAX = 16
LEASE_S = 10.0


class CountersWorker:
    """Counts the queued likes and follows of one partition."""

    def __init__(self, container: StorageContainer, partition: int, owner: str) -> None:
        self._clock = container.clock
        social = container.get(SocialContainer)
        self._likes, self._counts = social.likes, social.counts
        self._queue = CountBatches(container.hot, partition)
        self._lag = metrics.COUNTERS_LAG.labels(str(partition))
        self._lease = container.make_lease("counters", owner, LEASE_S, partition)

    async def run(self) -> None:
        """Count queued likes and follows until cancelled.

        Raises:
            Unavailable: a data store became unavailable; start the worker again.
        """
        async with self._lease.release_on_exit():
            try:
                while True:
                    if not await self._lease.hold():
                        await asyncio.sleep(add_jitter(LEASE_S / 5))
                        continue
                    if not await self._queue.wait(IDLE_MS):
                        self._lag.set(0.0)
                        continue
                    await asyncio.sleep(min(FLUSH_S, LEASE_S) / 2)
                    while await self.step():
                        await self._lease.claim()
            finally:
                await self._queue.close()

    async def step(self) -> bool:
        """Count up to `BATCH_MAX` queued changes; return whether there may be more.

        Guarantees:
            Idempotent: no entry is counted twice.
        """
        waiting = await self._queue.list_waiting(BATCH_MAX)
        self._lag.set(get_age_s(waiting[0], self._clock.time()) if waiting else 0.0)
        if not waiting:
            return False
        await map_concurrently(
            self._count_item,
            group_by_item(waiting),
            in_flight_max=WRITES_IN_FLIGHT_MAX,
            name="count-changes",
        )
        failpoint("counters.before_trim")
        await self._queue.trim(waiting[-1])
        metrics.COUNTERS_CHANGES.inc(len(waiting))
        return len(waiting) == BATCH_MAX

    async def _count_item(self, entries: list[CountEntry]) -> None:
        """Add queue entries, which all belong to the same count item, to this item."""
        while entries:
            failpoint("counters.before_write")
            metrics.COUNTERS_WRITES.inc()
            done = await self._add(entries)
            failpoint("counters.after_write")
            if done.outcome != "already_counted":
                return  # The changes are counted, or the post or user was deleted.
            entries = [entry for entry in entries if entry.position > done.upto]

    async def _add(self, entries: Sequence[CountEntry]) -> CountResult:
        subject, first, last = entries[0].subject, entries[0].position, entries[-1].position
        changes = Counter[Count]()
        for entry in entries:
            changes[entry.kind] += entry.change
        if entries[0].kind == "likes":
            return await self._likes.add_likes(PostId(subject), changes["likes"], first, last)
        return await self._counts.add_follows(
            subject,
            followers=changes["followers"],
            following=changes["following"],
            first=first,
            last=last,
        )


def group_by_item(entries: Sequence[CountEntry]) -> list[list[CountEntry]]:
    """Group entries by the item that holds their count, in order."""
    groups: dict[tuple[bool, str], list[CountEntry]] = {}
    for entry in entries:
        groups.setdefault((entry.kind == "likes", entry.subject), []).append(entry)
    return list(groups.values())


async def run_counters(container: StorageContainer, owner: str) -> None:
    """Count the likes and follows of all partitions until cancelled.

    Raises:
        Unavailable: all of Redis is unavailable; start the worker again.
    """
    await run_partitions(
        container.hot,
        "counters",
        lambda partition: CountersWorker(container, partition, owner).run(),
    )
