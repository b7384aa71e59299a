"""SQL queries over the exported files in S3. Concurrent compaction does not affect the results."""

from __future__ import annotations

import asyncio
from typing import Final

from chatserver.errors import BadRequest, NotFound, Unavailable
from chatserver.features.analytics.cold import ParquetFiles
from chatserver.features.analytics.duckdb_query import Result, Snapshot, run_query
from chatserver.features.analytics.model import is_compacted

TRIES_MAX: Final = 5


async def query_exported_files(files: ParquetFiles, sql: str, rows_max: int) -> Result:
    """Run a statement and return its first `rows_max` rows.

    Guarantees:
        Each row that was exported before the call is read exactly once.
        Cost: a LIST per 1,000 files, a GET of 64 KB per compacted file, and a GET per file that
        the statement reads.

    Raises:
        BadRequest: see `run_query`.
        NotFound: there are no files.
        Unavailable: S3 does not respond, or every attempt was interrupted by compaction.
    """
    loop = asyncio.get_running_loop()

    def read(key: str) -> bytes:
        return asyncio.run_coroutine_threadsafe(files.read(key), loop).result()

    for _ in range(TRIES_MAX):
        keys = [file.key async for page in files.iter_files() for file in page]
        compacted = await files.list_facts(key for key in keys if is_compacted(key))
        snapshot = Snapshot(keys, compacted, read)
        if snapshot.is_outdated():
            continue
        try:
            result = await asyncio.to_thread(_run, snapshot, sql, rows_max)
        except (BadRequest, NotFound, OSError):
            if not snapshot.is_outdated():
                raise
            continue
        if not snapshot.is_outdated():
            return result
    raise Unavailable("analytics: the files are being compacted; run the query again")


def _run(snapshot: Snapshot, sql: str, rows_max: int) -> Result:
    return run_query(snapshot.open(), sql, rows_max)
