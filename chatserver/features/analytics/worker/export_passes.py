"""Export passes: find the entries that have not been exported, and export them.

A pass scans the `directory` table for archive segments that are new or have changed. Units (ranges
of entries) that were exported before are read again; the rest of a segment becomes a new unit. On
request, the pass also exports entries that are not archived yet. If these include edits, deletions
or reactions, the units of the changed messages are read again.

A lease ensures that only one process exports at a time, but correctness does not depend on it
(`chatserver.features.analytics.worker.exporter`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId
from chatserver.errors import CorruptData, LostRace, Unavailable
from chatserver.features.analytics.container import AnalyticsContainer
from chatserver.features.analytics.model import Unit, list_changes
from chatserver.features.analytics.package_check import check_extra
from chatserver.features.analytics.settings import Analytics
from chatserver.features.analytics.warm import NewSegment
from chatserver.features.analytics.worker.compaction import Compactor
from chatserver.features.analytics.worker.export_unit_reader import ExportUnitReader
from chatserver.features.analytics.worker.exporter import Exporter, ExportTally
from chatserver.hot.worker_leases import Lease
from chatserver.protocol.frames import Message
from chatserver.telemetry import metrics
from chatserver.warm.chats.chat_scan import iter_chats
from chatserver.warm.dynamo.client import Item
from workers.partition_workers import run_with_restarts
from workers.periodic_work import run_periodically

log = structlog.get_logger()

LEASE_S: Final = 60.0
INTERVAL_S: Final = 3600.0  # pause between two passes of the worker
FAILURES_MAX: Final = 10  # a pass ends with an error after this many failures in a row
# Maximum entries that are exported as one unit if they are not archived yet.
UNIT_ENTRIES_MAX = 500

OnProgress = Callable[[ExportTally], Awaitable[None]]


async def ignore_progress(_: ExportTally) -> None:
    """Ignore progress reports."""


def make_lease(container: StorageContainer, owner: str) -> Lease:
    return container.make_lease("analytics", owner, LEASE_S)


def make_source(container: StorageContainer) -> ExportUnitReader:
    return ExportUnitReader(
        state=container.get(AnalyticsContainer).state,
        tiers=container.older_tiers,
        cold=container.cold_log,
        manifests=container.manifests,
        directory=container.directory,
        with_bodies=container.settings.get(Analytics).has_texts,
    )


def make_exporter(container: StorageContainer, source: ExportUnitReader) -> Exporter:
    analytics = container.get(AnalyticsContainer)
    tenant = container.settings.cold.tenant
    return Exporter(source=source, state=analytics.state, files=analytics.files, tenant=tenant)


def make_compactor(container: StorageContainer, lease: Lease) -> Compactor:
    """Return a compactor that uses the exporter's lease."""
    files = container.get(AnalyticsContainer).files
    return Compactor(files=files, lease=lease, clock=container.clock)


class ExportPass:
    """One pass over all entries that have not been exported."""

    def __init__(
        self,
        container: StorageContainer,
        lease: Lease,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        self._container = container
        self._state = container.get(AnalyticsContainer).state
        self._source = make_source(container)
        self._exporter = make_exporter(container, self._source)
        self._lease = lease
        self._on_progress = on_progress
        self._failures = 0  # number of failures in a row

    async def run(self, *, with_warm: bool, is_all: bool = False) -> ExportTally:
        """Export new and changed archive segments.

        `with_warm`: also export entries that are not archived yet.
        `is_all`: compare all archived entries with the files, and repair the files.

        Guarantees:
            Idempotent and resumable: each message is exported exactly once.
            Memory: see `chatserver.features.analytics.worker.exporter`.

        Raises:
            Unavailable: a store does not respond, or another process holds the lease.
            CorruptData, LostRace: `FAILURES_MAX` segments or chats have failed in a row.
        """
        start: Item | None = None
        while True:
            segments, start = await self._state.list_segments(start, is_all=is_all)
            for segment in segments:
                add = functools.partial(self._add_segment, segment, is_all=is_all)
                await self._run_part(segment.chat, add)
            if start is None:
                break
        if with_warm:
            client = self._container.dynamodb.for_feature("analytics")
            async for chats in iter_chats(client):
                for chat in chats:
                    await self._run_part(chat, functools.partial(self._add_stored, chat))
        await self._exporter.flush()
        tally = self._exporter.tally
        await self._on_progress(tally)
        metrics.ANALYTICS_PASS.set(self._container.clock.time())
        return tally

    async def _run_part(self, chat: ChatId, work: Callable[[], Awaitable[None]]) -> None:
        """Export a segment or new entries of a chat; on failure, postpone the chat and continue."""
        if not await self._lease.hold():
            raise Unavailable(
                "analytics: another process is exporting; try again when it has finished"
            )
        try:
            await work()
        except (LostRace, Unavailable, CorruptData) as exc:
            self._failures += 1
            if self._failures >= FAILURES_MAX:
                raise  # after so many failures, a store is probably unavailable
            self._postpone(chat, exc.message)
        else:
            self._failures = 0
        await self._flush_if_full()
        await self._on_progress(self._exporter.tally)

    async def _flush_if_full(self) -> set[ChatId]:
        return await self._exporter.flush() if self._exporter.is_full else set()

    def _postpone(self, chat: ChatId, reason: str) -> None:
        metrics.ANALYTICS_POSTPONED.inc()
        self._exporter.tally.postponed += 1
        log.warning("analytics.chat_postponed", chat=chat, reason=reason)

    async def _add_segment(self, segment: NewSegment, *, is_all: bool) -> None:
        chat, first, last = segment.chat, segment.first, segment.last
        units = await self._state.list_units(chat, first, last)
        end = units[-1].last if units else await self._state.find_last(chat)
        if end < first - 1:
            raise Unavailable(f"entries {end + 1} to {first - 1} have not been exported yet")
        if end < last:
            units.append(await self._exporter.claim(chat, end + 1, last))
        for unit in units:
            # If `sha256` is empty, `flush` compares the rows with the files.
            await self._exporter.add(dataclasses.replace(unit, sha256="") if is_all else unit)
        self._exporter.mark(segment, units)

    async def _add_stored(self, chat: ChatId) -> None:
        """Export all entries after the chat's last unit, from any tier."""
        for unit in await self._list_unwritten(chat):
            await self._add_with_targets(unit, await self._source.read(unit))
        after = await self._state.find_last(chat)
        while entries := await self._source.list_new(chat, after, UNIT_ENTRIES_MAX):
            unit = await self._exporter.claim(chat, entries[0].seq, entries[-1].seq)
            await self._add_with_targets(unit, entries)
            after = unit.last
            if chat in await self._flush_if_full():
                return  # the next pass starts with the postponed units of this chat

    async def _list_unwritten(self, chat: ChatId) -> list[Unit]:
        """Return the newest units (ranges) that were claimed, but not recorded as exported."""
        units: list[Unit] = []
        async for page in self._state.iter_units_down(chat):
            unwritten = [unit for unit in page if not unit.sha256]
            units += unwritten
            if len(unwritten) < len(page):
                break
        return units[::-1]

    async def _add_with_targets(self, unit: Unit, entries: Sequence[Message]) -> None:
        """Export a unit (range of entries), and earlier units whose messages its entries change."""
        await self._exporter.add(unit)
        changed = {seq: change for seq, change in list_changes(entries).items() if seq < unit.first}
        while changed:
            seq = min(changed)
            for target in await self._state.list_units(unit.chat, seq, seq):
                own = {
                    change_seq: change
                    for change_seq, change in changed.items()
                    if change_seq <= target.last
                }
                await self._exporter.add(target, own)
                changed = {
                    change_seq: change
                    for change_seq, change in changed.items()
                    if change_seq > target.last
                }
            changed.pop(seq, None)


async def run_analytics(container: StorageContainer, owner: str) -> None:
    """Export archived messages and compact the files every `INTERVAL_S`, until cancelled.

    Raises:
        ConfigError: the extra `analytics` is not installed.
        Unavailable: a store is unavailable; restart the worker.
    """
    check_extra()

    async def export(_: int) -> None:
        lease = make_lease(container, owner)

        async def run_pass() -> None:
            tally = await ExportPass(container, lease).run(with_warm=False)
            compaction = await make_compactor(container, lease).run()
            if compaction.created:
                log.info("analytics.compacted", files=compaction.moved, into=compaction.created)
            if tally.files or tally.postponed:
                log.info(
                    "analytics.exported",
                    rows=tally.rows,
                    files=tally.files,
                    postponed=tally.postponed,
                )
            await lease.release()  # so that `chatserver analytics export` can run between passes

        await run_periodically(lease, INTERVAL_S, run_pass)

    await run_with_restarts(container.hot, "analytics", 0, export)
