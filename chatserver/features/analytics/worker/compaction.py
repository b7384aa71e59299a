"""Compaction: moves the rows of a date's small files into one file.

::

    small files ─► freeze each ─► create the compacted file ─► delete the rows ─► delete the files
                   │              │ lists the ids it `contains`; (empty files    a day later
                   │              │ readers ignore these files    remain)
                   │              └── in one PUT, only if it does not exist
                   └── rewritten with the same rows and `moves_to`: earlier ETags become invalid

Readers see each row exactly once. They read the small files until the compacted file exists, and
then only the compacted file. If the rows of a file have been deleted since a reader listed the
files, the reader lists the files again.

Writers (an export, an erasure) use `file_locations` to find the file to write. If a writer finds a
frozen file whose compacted file does not exist, it cancels the move: it creates the compacted file
without rows. The compaction then cannot create it, and the small files keep their rows.

Crash safety: a later pass finds frozen files and completes the move. A later pass or a writer
deletes rows that have moved. A file without rows is kept for `KEEP_S`, so that a process that was
paused cannot create it again with outdated rows.

Memory: the files of one move, which have at most `MOVE_BYTES_MAX` (compressed).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from chatserver.cold.client import ObjectMissing
from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.errors import Conflict, CorruptData, Unavailable
from chatserver.features.analytics.cold import ParquetFiles, StoredFile
from chatserver.features.analytics.model import (
    FileFacts,
    compacted_key,
    get_file_id,
    is_compacted,
    list_moved,
)
from chatserver.features.analytics.worker.file_locations import delete_rows
from chatserver.hot.worker_leases import Lease
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information

log = structlog.get_logger()

FILES_MIN = 16  # a date with fewer small files is not compacted
FILES_MAX: Final = 200  # maximum files per move
SMALL_BYTES: Final = 8_388_608
MOVE_BYTES_MAX: Final = 33_554_432
CONTAINED_MAX: Final = 5_000  # maximum file ids in the metadata of a compacted file
KEEP_S = 86_400.0


@dataclasses.dataclass
class CompactionTally:
    moved: int = 0  # number of files whose rows were moved
    created: int = 0
    deleted: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class _Move:
    """A move of the rows of `files` to the compacted file `id`."""

    prefix: str
    id: str
    files: Sequence[StoredFile]

    @property
    def key(self) -> str:
        return compacted_key(self.prefix, self.id)


@dataclasses.dataclass(frozen=True, slots=True)
class _Frozen:
    key: str
    etag: str
    facts: FileFacts
    rows: pa.Table


class Compactor:
    """Compacts the files of one tenant. Concurrent compactors are safe, but wasteful."""

    def __init__(self, *, files: ParquetFiles, lease: Lease, clock: Clock) -> None:
        self._files = files
        self._lease = lease
        self._clock = clock
        self._tally = CompactionTally()

    async def run(self) -> CompactionTally:
        """Compact all dates.

        Guarantees:
            Idempotent and resumable. Readers see each row exactly once at any time.
            Cost: a LIST per 1,000 files, and a GET of 64 KB per compacted file. Each file whose
                rows move costs two GETs, two PUTs and a DELETE.

        Raises:
            Unavailable: S3 does not respond, or another process holds the lease.
        """
        async for prefix, files in self._iter_dates():
            await self._renew_lease()
            try:
                await self._compact_date(prefix, files)
            except CorruptData as exc:
                # A corrupt file must not block the other dates.
                log.warning("analytics.compaction_postponed", prefix=prefix, reason=exc.message)
        return self._tally

    async def _compact_date(self, prefix: str, files: Sequence[StoredFile]) -> None:
        while (move := await self._find_move(prefix, files)) is not None:
            if not await self._run_move(move):
                return
            files = [file async for page in self._files.iter_files(prefix) for file in page]

    async def _renew_lease(self) -> None:
        if not await self._lease.hold():
            raise Unavailable(
                "analytics: another process is exporting; try again when it has finished"
            )

    async def _iter_dates(self) -> AsyncIterator[tuple[str, list[StoredFile]]]:
        files: list[StoredFile] = []
        async for page in self._files.iter_files():
            for file in page:
                if files and _get_prefix(file) != _get_prefix(files[0]):
                    yield _get_prefix(files[0]), files
                    files = []
                files.append(file)
        if files:
            yield _get_prefix(files[0]), files

    async def _find_move(self, prefix: str, files: Sequence[StoredFile]) -> _Move | None:
        """Clean up after earlier compactions of a date; return the next move of rows, if any."""
        compacted = [file for file in files if is_compacted(file.key)]
        if not compacted and len(files) < FILES_MIN:
            return None
        all_facts = await self._files.list_facts(file.key for file in compacted)
        moved = list_moved(all_facts.values())
        await self._clean_up([file for file in files if get_file_id(file.key) in moved])
        small = [
            file
            for file in files
            if file.size <= SMALL_BYTES and get_file_id(file.key) not in moved
        ]
        if len(small) < FILES_MIN and not any(fact.moves_to for fact in all_facts.values()):
            return None
        facts = await self._files.list_facts(file.key for file in small)
        if any(fact.is_moved for fact in facts.values()):
            return None  # another process has created a compacted file since the listing
        small = [file for file in small if file.key in facts]
        ids = {get_file_id(file.key) for file in compacted}
        target_ids = sorted({fact.moves_to for fact in facts.values()} - ids - {""})
        if target_ids:
            move_files = [file for file in small if facts[file.key].moves_to == target_ids[0]]
            return _Move(prefix, target_ids[0], move_files)
        move_files = _choose(small, facts)
        return _Move(prefix, new_id().lower(), move_files) if len(move_files) >= FILES_MIN else None

    async def _clean_up(self, files: Sequence[StoredFile]) -> None:
        """Delete the moved rows from these files; delete files emptied at least `KEEP_S` ago."""
        now_s = self._clock.time()
        for file in files:
            facts = await self._files.find_facts(file.key)
            if facts is None:
                continue
            if not facts.is_moved:
                await self._delete_rows(file.key, file.etag)
            elif file.modified_s + KEEP_S <= now_s:
                await self._files.remove(file.key)
                self._tally.deleted += 1
                failpoint("analytics.after_compacted_delete")

    async def _delete_rows(self, key: str, etag: str) -> None:
        try:
            await delete_rows(self._files, key, etag)
        except Conflict:
            return  # the file has changed since it was listed; the next pass retries
        failpoint("analytics.after_compacted_rows")

    async def _run_move(self, move: _Move) -> bool:
        """Move the rows into the compacted file; return False if the move was cancelled."""
        import pyarrow as pa

        from chatserver.features.analytics.parquet import encode

        frozen = []
        for file in move.files:
            await self._renew_lease()
            if (frozen_file := await self._freeze(file, move.id)) is not None:
                frozen.append(frozen_file)
        if not frozen:
            return False
        contains = {get_file_id(kept_file.key) for kept_file in frozen}
        contains = contains.union(*(each.facts.contains for each in frozen))
        rows = await asyncio.to_thread(pa.concat_tables, [each.rows for each in frozen])
        data = await asyncio.to_thread(encode, rows, FileFacts(frozenset(contains)))
        failpoint("analytics.before_compacted")
        try:
            await self._files.put(move.key, data, None)
        except Conflict:
            # Either a writer cancelled the move, or an earlier attempt of this PUT had succeeded.
            new_facts = await self._files.find_facts(move.key)
            if new_facts is None or not contains <= new_facts.contains:
                log.info("analytics.compaction_given_up", key=move.key)
                return False
        failpoint("analytics.after_compacted")
        metrics.ANALYTICS_FILES.labels("compacted").inc()
        self._tally.created += 1
        self._tally.moved += len(frozen)
        for frozen_file in frozen:
            await self._delete_rows(frozen_file.key, frozen_file.etag)
        return True

    async def _freeze(self, file: StoredFile, target: str) -> _Frozen | None:
        """Set `moves_to` of a file to `target`; return None if it has changed since the listing."""
        from chatserver.features.analytics.parquet import decode, decode_facts, encode

        try:
            data = await self._files.read(file.key)
        except ObjectMissing:
            return None
        facts, rows = decode_facts(data), await asyncio.to_thread(decode, data)
        if facts.is_moved:
            return None
        etag = file.etag
        if facts.moves_to != target:
            marked = await asyncio.to_thread(encode, rows, FileFacts(facts.contains, target))
            try:
                etag = await self._files.put(file.key, marked, etag)
            except Conflict:
                return None
            failpoint("analytics.after_freeze")
        return _Frozen(file.key, etag, facts, rows)


def _choose(small: Sequence[StoredFile], facts: dict[str, FileFacts]) -> list[StoredFile]:
    """Choose the small files whose rows move next, up to the limits of one move."""
    files: list[StoredFile] = []
    size = contained = 0
    for file in small[:FILES_MAX]:
        ids = 1 + len(facts[file.key].contains)
        if size + file.size <= MOVE_BYTES_MAX and contained + ids <= CONTAINED_MAX:
            size, contained = size + file.size, contained + ids
            files.append(file)
    return files


def _get_prefix(file: StoredFile) -> str:
    return file.key.rpartition("/")[0] + "/"
