"""Finds the file that contains the rows of an export batch: its own or a compacted file.

A file's ETag is read before its metadata. Before compaction moves a file's rows, it rewrites the
file, which changes the ETag. So if the rows move after the ETag was read, a conditional write with
that ETag fails.
"""

from __future__ import annotations

from typing import NamedTuple

from chatserver.errors import Conflict
from chatserver.features.analytics.cold import ParquetFiles
from chatserver.features.analytics.model import (
    FileFacts,
    compacted_key,
    compacted_prefix,
    day_prefix,
    get_file_id,
    list_moved,
    object_key,
)


class Location(NamedTuple):
    """A file to write. `etag` is None if the file does not exist."""

    key: str
    etag: str | None


class _Compacted(NamedTuple):
    key: str
    etag: str
    facts: FileFacts


class FileLocations:
    """Finds the files of a tenant's export batches."""

    def __init__(self, files: ParquetFiles, tenant: str) -> None:
        self._files = files
        self._tenant = tenant

    async def locate(self, date: str, batch: str) -> Location:
        """Return the file to which an export batch's rows for one date must be written.

        Cancels an unfinished compaction of these rows. If the rows have moved, deletes them
        from their old files, so that no file contains erased text after an erasure.

        Guarantees:
            Cost: a HEAD, a LIST, and a GET of 64 KB per compacted file of the date.

        Raises:
            Conflict: the rows are being compacted; retry.
        """
        key = object_key(date, self._tenant, batch)
        etag = await self._files.find_etag(key)
        compacted = await self._list_compacted(day_prefix(date, self._tenant))
        holders = [file for file in compacted if batch in file.facts.contains]
        if not holders:
            return await self._check_own(key, etag, compacted)
        moved = list_moved(file.facts for file in compacted)
        current = [file for file in holders if get_file_id(file.key) not in moved]
        if len(current) != 1 or current[0].facts.is_moved:
            raise Conflict(f"{key}: its rows are being moved; try again")
        (holder,) = current
        if etag is not None:
            await delete_rows(self._files, key, etag)
        for each in holders:
            if each is not holder:
                await delete_rows(self._files, each.key, each.etag)
        await self._cancel_move(holder.facts.moves_to, holder.key, compacted)
        return Location(holder.key, holder.etag)

    async def _list_compacted(self, prefix: str) -> list[_Compacted]:
        compacted = []
        async for page in self._files.iter_files(compacted_prefix(prefix)):
            for file in page:
                facts = await self._files.find_facts(file.key)
                if facts is None:
                    raise Conflict(f"{file.key}: was deleted concurrently; try again")
                compacted.append(_Compacted(file.key, file.etag, facts))
        return compacted

    async def _check_own(self, key: str, etag: str | None, compacted: list[_Compacted]) -> Location:
        if etag is None:
            return Location(key, None)
        facts = await self._files.find_facts(key)
        if facts is None:
            raise Conflict(f"{key}: was deleted concurrently; try again")
        await self._cancel_move(facts.moves_to, key, compacted)
        if facts.is_moved:
            raise Conflict(f"{key}: its rows are being moved; try again")
        return Location(key, etag)

    async def _cancel_move(self, target: str, key: str, compacted: list[_Compacted]) -> None:
        """Cancel an unfinished compaction by creating the compacted file without rows."""
        if not target or any(get_file_id(file.key) == target for file in compacted):
            return
        from chatserver.features.analytics.parquet import NO_ROWS, encode

        prefix = key.rpartition("/")[0] + "/"
        await self._files.put(compacted_key(prefix, target), encode(NO_ROWS), None)


async def delete_rows(files: ParquetFiles, key: str, etag: str) -> None:
    """Delete the rows of a file after compaction has moved them. Idempotent.

    The file remains without rows, so that a process that was paused cannot create it again.

    Raises:
        Conflict: the ETag of the file has changed.
    """
    from chatserver.features.analytics.parquet import NO_ROWS, encode

    facts = await files.find_facts(key)
    if facts is not None and not facts.is_moved:
        moved = FileFacts(contains=facts.contains, moves_to=facts.moves_to, is_moved=True)
        await files.put(key, encode(NO_ROWS, moved), etag)
