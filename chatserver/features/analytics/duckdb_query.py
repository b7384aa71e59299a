"""SQL queries over the Parquet files with DuckDB, in this process.

The view `messages` reads the files as an Arrow dataset, so DuckDB loads only the columns and dates
that a query needs. Each file is read with one GET: if a file is replaced during a query, the query
sees either its old or its new version. Files whose rows have moved into a compacted file are
ignored. If rows move during a query, the query must be repeated (`FileSnapshot.is_outdated`).

Read-only: only a single SELECT or EXPLAIN statement is accepted. DuckDB has no access to files, the
network, extensions, or Python objects of this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]  # no type information
import pyarrow.dataset as ds  # type: ignore[import-untyped]  # no type information
import pyarrow.fs as pafs  # type: ignore[import-untyped]  # no type information

from chatserver.cold.client import ObjectMissing
from chatserver.errors import BadRequest, NotFound, Unavailable
from chatserver.features.analytics.cold import ParquetFiles
from chatserver.features.analytics.model import (
    COLUMNS,
    TABLE,
    FileFacts,
    get_file_id,
    is_compacted,
    list_moved,
)
from chatserver.features.analytics.parquet import (
    PARTITION_SCHEMA,
    TABLE_SCHEMA,
    decode_facts,
)

TRIES_MAX: Final = 5  # maximum attempts that compaction may interrupt
MEMORY_BYTES_MAX: Final = 2_147_483_648  # of DuckDB; files that Arrow loads are not counted
_READING: Final = ("SELECT", "EXPLAIN")
_FILES: Final = "parquet_files"
# As in Athena, the view returns UTC timestamps without a time zone.
_TIMES: Final = [column.name for column in COLUMNS if column.type == "timestamp"]
_REPLACED: Final = ", ".join(f"timezone('UTC', {name}) AS {name}" for name in _TIMES)
_VIEW: Final = f"CREATE VIEW {TABLE} AS SELECT * REPLACE ({_REPLACED}) FROM {_FILES}"  # noqa: S608  # constants
NOTHING_EXPORTED: Final = (
    "analytics: nothing has been exported yet; run `chatserver analytics export` or `chatserver "
    "worker analytics`"
)

ReadFile = Callable[[str], bytes]


class QueryResult(NamedTuple):
    """The result of a query. `is_cut`: the query found more rows than `rows`."""

    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]]
    is_cut: bool


def open_folder(folder: Path) -> ds.Dataset:
    """Open a local copy of the files as a dataset.

    Raises:
        NotFound: the folder has no files, or a compacted file is missing.
        CorruptData: a file is corrupt.
    """
    paths = [str(path) for path in folder.rglob("date=*/tenant=*/*.parquet")]
    if not paths:
        raise NotFound(f"analytics: {folder} has no files date=*/tenant=*/*.parquet")
    facts = {path: decode_facts(Path(path).read_bytes()) for path in paths}
    files = select_files(
        facts, {path: file_facts for path, file_facts in facts.items() if is_compacted(path)}
    )
    if any(facts[path].is_moved for path in files):
        raise NotFound(f"analytics: {folder} is incomplete; copy the files again")
    return _open(files, str(folder), pafs.LocalFileSystem())


def select_files(keys: Iterable[str], compacted: Mapping[str, FileFacts]) -> list[str]:
    """Return the files with current rows. `compacted`: all compacted files with their metadata."""
    moved = list_moved(compacted.values())
    return sorted(key for key in keys if get_file_id(key) not in moved)


class FileSnapshot:
    """The files that existed at the time of one listing."""

    def __init__(
        self, keys: Sequence[str], compacted: Mapping[str, FileFacts], read: ReadFile
    ) -> None:
        """`read` is called from other threads. For `compacted`, see `select_files`."""
        self._keys = select_files(keys, compacted)
        self._read = read
        self._has_moved = any(compacted[key].is_moved for key in self._keys if key in compacted)

    def is_outdated(self) -> bool:
        """Return whether compaction has moved rows since the listing; if so, repeat the query."""
        return self._has_moved

    def open(self) -> ds.Dataset:
        """Open the files as a dataset. Raises NotFound if there are no files."""
        if not self._keys:
            raise NotFound(NOTHING_EXPORTED)
        return _open(self._keys, "", pafs.PyFileSystem(_Objects(self._read_current)))

    def _read_current(self, key: str) -> bytes:
        try:
            data = self._read(key)
        except ObjectMissing:
            self._has_moved = True
            raise
        if decode_facts(data).is_moved:
            self._has_moved = True
        return data


def _open(files: list[str], base: str, filesystem: pafs.FileSystem) -> ds.Dataset:
    partitioning = ds.partitioning(PARTITION_SCHEMA, flavor="hive")
    return ds.dataset(
        files,
        schema=TABLE_SCHEMA,
        format="parquet",
        filesystem=filesystem,
        partitioning=partitioning,
        partition_base_dir=base or None,
    )


def run_query(dataset: ds.Dataset, sql: str, rows_max: int) -> QueryResult:
    """Run a statement and return up to `rows_max` rows.

    Raises:
        BadRequest: `sql` is invalid, is not one SELECT or EXPLAIN, or needs too much memory.
    """
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{MEMORY_BYTES_MAX // 1_048_576}MiB",
        "python_enable_replacements": False,
        "temp_directory": "",
    }
    with duckdb.connect(":memory:", config=settings) as connection:
        connection.register(_FILES, dataset)
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(_VIEW)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type.name not in _READING:
                raise BadRequest("analytics: must be exactly one SELECT or EXPLAIN statement")
            connection.execute(statements[0])
            columns = [column[0] for column in connection.description or ()]
            rows = connection.fetchmany(rows_max + 1)
        except duckdb.Error as exc:
            raise BadRequest(f"analytics: {exc}") from exc
    return QueryResult(columns, rows[:rows_max], len(rows) > rows_max)


async def query_exported_files(files: ParquetFiles, sql: str, rows_max: int) -> QueryResult:
    """Run a statement on the files in S3 and return its first `rows_max` rows.

    Concurrent compaction does not affect the result.

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

    def run(snapshot: FileSnapshot) -> QueryResult:
        return run_query(snapshot.open(), sql, rows_max)

    for _ in range(TRIES_MAX):
        keys = [file.key async for page in files.iter_files() for file in page]
        compacted = await files.list_facts(key for key in keys if is_compacted(key))
        snapshot = FileSnapshot(keys, compacted, read)
        if snapshot.is_outdated():
            continue
        try:
            result = await asyncio.to_thread(run, snapshot)
        except (BadRequest, NotFound, OSError):
            if not snapshot.is_outdated():
                raise
            continue
        if not snapshot.is_outdated():
            return result
    raise Unavailable("analytics: the files are being compacted; run the query again")


class _Objects(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no type information
    """Read-only file system over S3 objects. Paths are object keys."""

    def __init__(self, read: ReadFile) -> None:
        self._read = read

    def get_type_name(self) -> str:
        return "chatserver"

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._read(path))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        return [pafs.FileInfo(path, pafs.FileType.File) for path in paths]

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotImplementedError("this file system is read-only, and cannot list objects")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refuse
    delete_root_dir_contents = delete_file = move = copy_file = _refuse
    open_output_stream = open_append_stream = _refuse
