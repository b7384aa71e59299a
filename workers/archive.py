"""Moves what is older than `archive.retention_s` to S3: goes through the chats that are due.

One worker for each partition: it has a lease, and looks at its part of the directory, so several
processes share the work. The lease saves work; that nothing is lost or doubled rests on conditional
writes (`workers.archiver`). Beside it runs what sees to what TTL removes: the reader of the Stream,
or where there is no TTL a sweeper. Chats of which an archived entry changed are looked at in each
pass, also where nothing moves any more.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from chatserver.domain.ids import ChatId
from chatserver.errors import ChatError, Conflict, CorruptData, Unavailable
from chatserver.hot.leases import Lease
from chatserver.telemetry import metrics
from chatserver.warm.client import Item
from workers.archiver import US, Visit
from workers.expiry import run_expiry
from workers.partitions import keep_running, run_partitions
from workers.parts import WorkerParts
from workers.rounds import make_rounds
from workers.streamreader import run_stream

log = structlog.get_logger()

# A change is written within `persist.write_timeout_s` after it was noted; clocks differ a little.
LATE_SETTLE_S: Final = 60.0


class ArchiveWorker:
    """The archiver of one partition."""

    def __init__(self, parts: WorkerParts, partition: int, owner: str) -> None:
        self._parts = parts
        self._settings = parts.settings.archive
        self._partition = partition
        self._lease = Lease(
            parts.hot, partition, "archive", owner, self._settings.lease_s, parts.clock
        )

    async def run(self) -> None:
        """Archive until cancelled.

        Raises:
            Unavailable: a store went away; start again.
        """
        await make_rounds(self._lease, self._settings.sweep_interval_s, self.sweep)

    async def sweep(self) -> int:
        """Look at all chats that are due; return how many entries moved.

        Raises:
            Unavailable: a store went away, or the lease is lost; start again.
        """
        await self._fold_late()
        await self._end_restored()
        moved, stuck_ts = 0, None
        if self._settings.retention_s:
            before = int((self._parts.clock.time() - self._settings.retention_s) * US)
            start: Item | None = None
            while True:
                chats, start = await self._parts.manifests.list_due_chats(
                    self._partition, self._parts.hot.keys.partitions, before, start
                )
                for chat in chats:
                    visit = await self._visit(chat)
                    moved += visit.moved
                    if visit.stuck_ts is not None:
                        stuck_ts = min(visit.stuck_ts, stuck_ts or visit.stuck_ts)
                if start is None:
                    break
            lag_s = 0.0 if stuck_ts is None else max(0.0, (before - stuck_ts) / US)
            metrics.ARCHIVE_LAG.labels(str(self._partition)).set(lag_s)
        metrics.ARCHIVE_PASS.labels(str(self._partition)).set(self._parts.clock.time())
        if moved:
            log.info("archive.moved", entries=moved, partition=self._partition)
        return moved

    async def _visit(self, chat: ChatId) -> Visit:
        await self._keep_lease()
        try:
            return await self._parts.archiver.visit(chat)
        except Conflict:
            log.info("archive.busy", chat=chat)
        except CorruptData as exc:
            # One chat that cannot be archived must not keep the others from it.
            log.error("archive.refused", chat=chat, error=exc.message)
            metrics.HISTORY_GAPS.labels("archive").inc()
        return Visit(0, 0, None)

    async def _fold_late(self) -> None:
        for late in await self._parts.manifests.list_late():
            if self._parts.hot.keys.partition_of(late.chat) != self._partition:
                continue
            await self._keep_lease()
            is_settled = late.at_ms / 1000 < self._parts.clock.time() - LATE_SETTLE_S
            try:
                await self._parts.archiver.fold(late.chat)
                if self._settings.retention_s:
                    # What was put back may lie above what is archived (`workers.removals`).
                    await self._parts.archiver.visit(late.chat)
            except Conflict:
                continue
            except CorruptData as exc:
                log.error("archive.refused", chat=late.chat, error=exc.message)
                metrics.HISTORY_GAPS.labels("archive").inc()
                continue
            if is_settled:
                await self._parts.manifests.drop_late(late)

    async def _end_restored(self) -> None:
        """Take away what was restored for a time that is over."""
        for due in await self._parts.restored.list_due():
            if self._parts.hot.keys.partition_of(due.chat) != self._partition:
                continue
            await self._keep_lease()
            try:
                is_over = await self._parts.archiver.end_restored(due.chat)
            except Conflict:
                continue
            except CorruptData as exc:
                log.error("archive.refused", chat=due.chat, error=exc.message)
                metrics.HISTORY_GAPS.labels("archive").inc()
                continue
            if is_over:
                await self._parts.restored.drop_due(due)

    async def _keep_lease(self) -> None:
        if not await self._lease.hold():
            raise Unavailable("archive: another worker has the lease")


async def run_archive(parts: WorkerParts, owner: str) -> None:
    """Archive the chats of every partition that is free, until cancelled; see to what TTL removes.

    Raises:
        Unavailable: a store went away; start again.
    """

    async def archive(partition: int) -> None:
        await ArchiveWorker(parts, partition, owner).run()

    async def sweep(_: int) -> None:
        await run_expiry(parts, owner)

    async def read(_: int) -> None:
        await run_stream(parts, owner)

    settings = parts.settings
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(run_partitions(parts.hot, "archive", archive), name="archive")
            if settings.archive.ttl_sweep:
                group.create_task(keep_running(parts.hot, "expiry", 0, sweep), name="expiry")
            elif settings.archive.removal == "ttl" or settings.warm.stream:
                # Also after TTL was given up: what was written before has its `ttl`.
                group.create_task(keep_running(parts.hot, "stream", 0, read), name="stream")
    except* ChatError as failures:
        raise failures.exceptions[0] from failures
