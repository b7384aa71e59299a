"""Sweep worker: deletes unsent uploads, and files whose messages have been deleted.

Each of these files has a due item: a DynamoDB item with the deletion time. The worker deletes the
metadata in Redis, the objects in S3, and then the DynamoDB items. After a crash the due item still
exists, and the worker repeats the deletion, so no S3 object is orphaned.

A committed message that references a file may not have been persisted yet. A file with deletion
time t is therefore deleted only when all messages committed before t + `SETTLE_S` have been
persisted.
"""

from __future__ import annotations

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.warm import SHARDS, DueFile
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.task_groups import open_task_group
from chatserver.telemetry.failpoints import failpoint
from workers.archive.long_body_sweep import BODIES_SWEEP_S, LongBodySweeper
from workers.periodic_work import run_periodically

log = structlog.get_logger()

# Longer than any send: a send in progress at the deletion time can still reference the file.
SETTLE_S = 60.0
SWEEP_INTERVAL_S = 60.0

PAGE_MAX = 100
LEASE_S = 60.0


class Sweeper:
    """Deletes files whose deletion time has passed, under a lease."""

    def __init__(self, container: StorageContainer, owner: str) -> None:
        self._container = container
        self._attachments = container.get(AttachmentContainer)
        self.lease = container.make_lease("sweep", owner, LEASE_S)

    async def sweep(self) -> int:
        """Delete all files whose deletion time has passed; return how many were deleted.

        Guarantees:
            Idempotent, and safe to run concurrently.
        """
        before = await self._find_cutoff()
        count = 0
        for shard in range(SHARDS):
            while dues := await self._attachments.rows.list_due(shard, before, PAGE_MAX):
                removed = [await self._remove(due) for due in dues]
                count += sum(removed)
                if 0 < self.lease.left_s() < LEASE_S / 2:
                    await self.lease.claim()
        if count:
            log.info("sweep.removed", files=count)
        return count

    async def _find_cutoff(self) -> int:
        """Return the cutoff: files that were due for deletion before it can be deleted now."""
        oldest = self._container.clock.time()
        for partition in range(self._container.hot.keys.partitions):
            entry = await Backlog(self._container.hot, partition).find_oldest_ms()
            if entry is not None:
                oldest = min(oldest, entry / 1000)
        return int(oldest - SETTLE_S)

    async def _remove(self, due: DueFile) -> bool:
        """Delete a file if its deletion time is still `due.at`; otherwise delete only `due`."""
        file = await self._attachments.rows.find_file(due.file)
        if file is None or file.due != due.at:
            await self._attachments.rows.delete_due(due)
            return False
        await self._attachments.sendable.drop([file.id])
        failpoint("sweep.before_objects")
        await self._attachments.objects.remove(file)
        failpoint("sweep.before_rows")
        return await self._attachments.rows.remove_file(file)


async def run_sweep(container: StorageContainer, owner: str) -> None:
    """Sweep until cancelled.

    Raises:
        Unavailable: a data store is unavailable; restart the worker.
    """
    async with open_task_group() as group:
        files, bodies = Sweeper(container, owner), LongBodySweeper(container, owner)
        file_sweep = run_periodically(files.lease, SWEEP_INTERVAL_S, files.sweep)
        group.create_task(file_sweep, name="sweep-files")
        body_sweep = run_periodically(bodies.lease, BODIES_SWEEP_S, bodies.sweep_if_bucket_exists)
        group.create_task(body_sweep, name="sweep-bodies")
