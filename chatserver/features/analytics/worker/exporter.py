"""Exporter: reads units (ranges of a chat's entries) and writes their rows to Parquet files.

::

    claim ─► read entries ─► ETags of the files ─► source unchanged? ─► files ─► state ─► segments
      │                                                                   │ one conditional PUT each
      └── remains after a crash: the next pass reads the unit again and replaces its rows

Crash safety: before its files are written, a unit is assigned to a batch, whose id is in the keys
of the files. A repeated export replaces the rows of the unit in the same files, or in the files to
which compaction has moved them (`file_locations`). So each message is exported exactly once.
Finally, the archive segments are marked as exported.

Concurrent changes: another process (an erasure, or a second exporter) may rewrite the same files.
The exporter reads the ETags of the files first, then checks that the source is unchanged, and
replaces a file only if its ETag is unchanged. So a process that was paused cannot overwrite newer
rows.

Memory: at most `ROWS_MAX` rows and `CHARS_MAX` characters of message text, plus one unit. This also
limits the size of a new file.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from chatserver.domain.ids import ChatId, new_id
from chatserver.errors import Conflict, CorruptData, TooLarge
from chatserver.features.analytics.cold import ParquetFiles
from chatserver.features.analytics.model import Changes, Unit
from chatserver.features.analytics.warm import ExportRows, NewSegment
from chatserver.features.analytics.worker.export_unit_reader import (
    NO_CHANGES,
    ExportUnitReader,
    UnitRows,
)
from chatserver.features.analytics.worker.file_locations import FileLocations
from chatserver.task_groups import map_concurrently
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information

log = structlog.get_logger()

ROWS_MAX = 100_000
CHARS_MAX = 33_554_432
UNITS_MAX: Final = 5_000
CALLS_IN_FLIGHT_MAX: Final = 16
FILES_IN_FLIGHT_MAX: Final = 2  # maximum files rewritten concurrently; each is decoded in memory

S = TypeVar("S")
T = TypeVar("T")


@dataclasses.dataclass
class ExportTally:
    units: int = 0
    rows: int = 0  # number of rows of the exported units, including unchanged ones
    files: int = 0
    bytes: int = 0
    postponed: int = 0  # number of units and chats left for the next pass


class Exporter:
    """Collects units and writes them in batches. Not safe for concurrent use."""

    def __init__(
        self, *, source: ExportUnitReader, state: ExportRows, files: ParquetFiles, tenant: str
    ) -> None:
        self.tally = ExportTally()
        self._source = source
        self._state = state
        self._files = files
        self._locations = FileLocations(files, tenant)
        self._batch = ""
        self._pending: dict[tuple[str, int], UnitRows] = {}
        self._segments: list[tuple[NewSegment, list[Unit]]] = []
        self._rows = self._chars = 0

    async def claim(self, chat: ChatId, first: int, last: int) -> Unit:
        """Claim a range of entries as a new unit. Raises LostRace (see `ExportRows.claim`)."""
        self._batch = self._batch or new_id().lower()
        unit = Unit(chat, first, last, self._batch)
        await self._state.claim(unit)
        failpoint("analytics.after_claim")
        return unit

    async def add(self, unit: Unit, changes: Changes = NO_CHANGES) -> None:
        """Read a unit (a range of entries); `flush` writes it.

        `changes`: entries of other units that change messages of this unit. If there are none, a
        unit that has already been added is ignored.

        Raises:
            Unavailable: a store does not respond, or some entries cannot be read now.
            CorruptData: a file or an item is invalid.
        """
        key = (unit.chat, unit.first)
        existing = self._pending.get(key)
        if existing is not None and not changes:
            return  # if the unit has changed since it was added, `flush` postpones it
        merged = _merge(existing.changes, changes) if existing is not None else changes
        loaded = await self._source.load(unit, merged)
        self._pending[key] = loaded
        self._rows += len(loaded.rows)
        self._chars += sum(len(row.body or "") for row in loaded.rows)
        self.tally.units += 1

    def mark(self, segment: NewSegment, units: Iterable[Unit]) -> None:
        """Let `flush` mark a segment as exported after it has written these units of it."""
        self._segments.append((segment, list(units)))

    @property
    def is_full(self) -> bool:
        """True if the added units (ranges of entries) reach the limits of a batch; call `flush`."""
        return self._rows >= ROWS_MAX or self._chars >= CHARS_MAX or len(self._pending) >= UNITS_MAX

    async def flush(self) -> set[ChatId]:
        """Write all added units (ranges of entries); return the chats with postponed units.

        A unit is postponed if it changed during the export, or if a file of its batch cannot be
        read or written now. New units of the same chat are then not recorded, so that the next pass
        reads them again and applies their changes to the postponed unit.
        """
        pending, segments = self._pending, self._segments
        self._pending, self._segments, self._batch = {}, [], ""
        self._rows = self._chars = 0
        batches: dict[str, list[UnitRows]] = {}
        for loaded in pending.values():
            if loaded.sha256 != loaded.unit.sha256:
                batches.setdefault(loaded.unit.batch, []).append(loaded)
        written = {key for key, result in pending.items() if result.sha256 == result.unit.sha256}
        for batch, units in batches.items():
            written |= await self._write_batch(batch, units)
        postponed = {pending[key].unit.chat for key in pending.keys() - written}
        done = {
            key: pending[key]
            for key in written
            if pending[key].unit.sha256 or pending[key].unit.chat not in postponed
        }
        failpoint("analytics.before_record")
        await _for_each(
            [
                result
                for result in done.values()
                if (result.sha256, result.version) != (result.unit.sha256, result.unit.version)
            ],
            lambda result: self._state.record(result.unit, result.sha256, result.version),
        )
        failpoint("analytics.after_record")
        marked = [
            segment
            for segment, units in segments
            if all((unit.chat, unit.first) in done for unit in units)
        ]
        await _for_each(marked, self._state.mark_exported)
        failpoint("analytics.after_mark")
        rows = sum(len(result.rows) for result in done.values())
        self.tally.rows += rows
        metrics.ANALYTICS_ROWS.inc(rows)
        self.tally.postponed += len(pending) - len(done)
        metrics.ANALYTICS_POSTPONED.inc(len(pending) - len(done))
        return postponed

    async def _write_batch(self, batch: str, units: Sequence[UnitRows]) -> set[tuple[str, int]]:
        """Write the files of a batch; return the keys of the units that were written."""
        from chatserver.features.analytics.parquet import build_table, list_dates, split_by_date

        dates = list_dates(row for written in units for row in written.rows)
        try:
            found = await _for_each(dates, lambda date: self._locations.locate(date, batch))
        except (Conflict, CorruptData) as exc:
            log.warning("analytics.batch_postponed", batch=batch, reason=exc.message)
            return set()
        locations = dict(zip(dates, found, strict=True))
        checks = await _for_each(units, self._is_current)
        current = [unit for unit, is_current in zip(units, checks, strict=True) if is_current]
        if not current:
            return set()
        tables = await asyncio.to_thread(
            lambda: [build_table(unit_result.rows) for unit_result in current]
        )
        parts = await asyncio.to_thread(split_by_date, tables)

        async def write(date: str) -> None:
            await self._write_file(*locations[date], current, parts[date])

        try:
            await _for_each(list(parts), write, FILES_IN_FLIGHT_MAX)
        except (Conflict, CorruptData, TooLarge) as exc:
            # A file that cannot be read or written must not block other batches.
            log.warning("analytics.batch_postponed", batch=batch, reason=exc.message)
            return set()
        return {(unit_result.unit.chat, unit_result.unit.first) for unit_result in current}

    async def _is_current(self, loaded: UnitRows) -> bool:
        version = await self._source.find_version(loaded.unit, loaded.changes)
        return version == loaded.version

    async def _write_file(
        self, key: str, etag: str | None, units: Sequence[UnitRows], rows: pa.Table
    ) -> None:
        from chatserver.features.analytics.parquet import replace_rows

        # If the file has changed since its ETag was read, the conditional write fails.
        existing = await self._files.read(key) if etag is not None else None
        data = await asyncio.to_thread(replace_rows, existing, [unit.unit for unit in units], rows)
        if data is None:
            return
        failpoint("analytics.before_file")
        await self._files.put(key, data, etag)
        failpoint("analytics.after_file")
        metrics.ANALYTICS_FILES.labels("written" if etag is None else "rewritten").inc()
        self.tally.files += 1
        self.tally.bytes += len(data)


def _merge(earlier: Changes, added: Changes) -> Changes:
    """Merge two sets of changes. The entries for each message are unique and in seq order."""
    merged = {}
    for seq in {*earlier, *added}:
        by_seq = {entry.seq: entry for entry in (*earlier.get(seq, ()), *added.get(seq, ()))}
        merged[seq] = [by_seq[entry_seq] for entry_seq in sorted(by_seq)]
    return merged


async def _for_each(
    items: Sequence[S],
    work: Callable[[S], Awaitable[T]],
    in_flight_max: int = CALLS_IN_FLIGHT_MAX,
) -> list[T]:
    return await map_concurrently(work, items, in_flight_max=in_flight_max, name="analytics")
