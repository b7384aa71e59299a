"""Archive worker: moves entries older than `archive.retention_s` to S3, chat by chat.

For each partition, one process holds the lease and scans its part of table `directory` for chats to
archive. The lease only prevents duplicate work; conditional writes prevent loss and duplicates
(`workers.archive.archiver`). Each pass also processes chats whose archived entries have changed.
The same processes check TTL removals by reading the Stream, or emulate TTL on servers without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.errors import Conflict, CorruptData, Unavailable
from chatserver.task_groups import open_task_group
from chatserver.telemetry import metrics
from chatserver.warm.dynamo.client import Item
from workers.archive import LEASE_S
from workers.archive.archiver import US
from workers.archive.container import ArchiveContainer
from workers.archive.ttl_emulation import run_expiry
from workers.archive.ttl_stream_reader import run_stream
from workers.partition_workers import run_partitions, run_with_restarts
from workers.periodic_work import run_periodically

log = structlog.get_logger()

# Minimum age of a late record (`record_late`) when it is deleted. The change that it announces is
# written at most `persist.write_timeout_s` later; the rest allows for clock differences.
LATE_SETTLE_S: Final = 60.0


class ArchiveWorker:
    """The archive worker of one partition."""

    def __init__(self, container: StorageContainer, partition: int, owner: str) -> None:
        self._container = container
        self._settings = container.settings.archive
        self._partition = partition
        self._archiver = container.get(ArchiveContainer).archiver
        self._lease = container.make_lease("archive", owner, LEASE_S, partition)

    async def run(self) -> None:
        """Archive until cancelled.

        Raises:
            Unavailable: a store is unavailable; restart the worker.
        """
        await run_periodically(self._lease, self._settings.sweep_interval_s, self.sweep)

    async def sweep(self) -> int:
        """Archive all chats that have entries to archive; return the number of entries moved.

        Raises:
            Unavailable: a store is unavailable, or the lease is lost; restart the worker.
        """
        await self._merge_late()
        await self._end_restored()
        moved, stuck_ts = 0, None
        if self._settings.retention_s:
            before = int((self._container.clock.time() - self._settings.retention_s) * US)
            start: Item | None = None
            while True:
                chats, start = await self._container.manifests.list_due_chats(
                    self._partition, self._container.hot.keys.partitions, before, start
                )
                for chat in chats:
                    await self._hold_lease()
                    with _skip_failed_chat(chat):
                        result = await self._archiver.archive_chat(chat)
                        moved += result.moved
                        if result.stuck_ts is not None:
                            stuck_ts = min(result.stuck_ts, stuck_ts or result.stuck_ts)
                if start is None:
                    break
            lag_s = 0.0 if stuck_ts is None else max(0.0, (before - stuck_ts) / US)
            metrics.ARCHIVE_LAG.labels(str(self._partition)).set(lag_s)
        metrics.ARCHIVE_PASS.labels(str(self._partition)).set(self._container.clock.time())
        if moved:
            log.info("archive.moved", entries=moved, partition=self._partition)
        return moved

    async def _merge_late(self) -> None:
        for late in await self._container.manifests.late.list_all():
            if self._container.hot.keys.get_partition(late.chat) != self._partition:
                continue
            await self._hold_lease()
            is_settled = late.at_ms / 1000 < self._container.clock.time() - LATE_SETTLE_S
            with _skip_failed_chat(late.chat):
                await self._archiver.merge_changes(late.chat)
                if self._settings.retention_s:
                    # Archive the chat, too: items restored after a TTL removal can be newer than
                    # the newest archived entry (`workers.archive.ttl_removal_checks`).
                    await self._archiver.archive_chat(late.chat)
                if is_settled:
                    await self._container.manifests.late.delete(late)

    async def _end_restored(self) -> None:
        for due in await self._container.restored.due.list_all():
            if self._container.hot.keys.get_partition(due.chat) != self._partition:
                continue
            await self._hold_lease()
            with _skip_failed_chat(due.chat):
                if await self._archiver.end_restored(due.chat):
                    await self._container.restored.due.delete(due)

    async def _hold_lease(self) -> None:
        if not await self._lease.hold():
            raise Unavailable("archive: another worker holds the lease")


@contextlib.contextmanager
def _skip_failed_chat(chat: str) -> Iterator[None]:
    """Log the error if a chat cannot be archived, and continue, so that other chats do not wait."""
    try:
        yield
    except Conflict:
        log.info("archive.chat_skipped", chat=chat)
    except CorruptData as exc:
        log.error("archive.refused", chat=chat, error=exc.message)
        metrics.HISTORY_GAPS.labels("archive").inc()


async def run_archive(container: StorageContainer, owner: str) -> None:
    """Archive all partitions that no other worker holds, and handle TTL removals, until cancelled.

    Raises:
        Unavailable: a store is unavailable; restart the worker.
    """

    settings = container.settings
    async with open_task_group() as group:
        archive = run_partitions(
            container.hot,
            "archive",
            lambda partition: ArchiveWorker(container, partition, owner).run(),
        )
        group.create_task(archive, name="archive")
        if settings.archive.ttl_sweep:
            sweep = run_with_restarts(
                container.hot, "expiry", 0, lambda _: run_expiry(container, owner)
            )
            group.create_task(sweep, name="expiry")
        elif settings.archive.removal == "ttl" or settings.warm.stream:
            # Read the Stream even if TTL removal is disabled now: older items still have a `ttl`.
            read = run_with_restarts(
                container.hot, "stream", 0, lambda _: run_stream(container, owner)
            )
            group.create_task(read, name="stream")
