"""Encoding and decoding of Parquet files. CPU-bound: do not call it on an event loop.

A file contains the rows of one export batch for one date (after compaction, of several batches),
ordered by chat and seq. `date` and `tenant` are in the object key, not in columns. The metadata
keys `chatserver.contains`, `chatserver.moves_to` and `chatserver.is_moved` store `model.FileFacts`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # no type information
import pyarrow.compute as pc  # type: ignore[import-untyped]  # no type information
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # no type information

from chatserver.errors import CorruptData
from chatserver.features.analytics.model import (
    COLUMNS,
    PARTITIONS,
    ColumnType,
    FileFacts,
    MessageRow,
    Unit,
    get_date,
)

_TYPES: Final[dict[ColumnType, pa.DataType]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
}
FILE_SCHEMA: Final = pa.schema(
    [pa.field(column.name, _TYPES[column.type], column.is_nullable) for column in COLUMNS]
)
PARTITION_SCHEMA: Final = pa.schema(
    [pa.field(column.name, _TYPES[column.type]) for column in PARTITIONS]
)
NO_FACTS: Final = FileFacts()
NO_ROWS: Final = FILE_SCHEMA.empty_table()
TABLE_SCHEMA: Final = pa.schema([*FILE_SCHEMA, *PARTITION_SCHEMA])
_ORDER: Final = [("chat", "ascending"), ("seq", "ascending")]
_CONTAINS: Final = b"chatserver.contains"  # metadata key; value: file ids, separated by commas
_MOVES_TO: Final = b"chatserver.moves_to"
_IS_MOVED: Final = b"chatserver.is_moved"  # metadata key; value: `1`
_MAGIC: Final = b"PAR1"
_END_BYTES: Final = 8  # bytes at the end of a file that have the footer length and the magic number


def build_table(rows: Sequence[MessageRow]) -> pa.Table:
    """Convert rows to an Arrow table."""
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    arrays = [
        pa.array(values, field.type) for values, field in zip(columns, FILE_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=FILE_SCHEMA)


def list_dates(rows: Iterable[MessageRow]) -> list[str]:
    """Return the distinct dates of the rows, ascending."""
    return sorted({get_date(row.ts) for row in rows})


def split_by_date(tables: Sequence[pa.Table]) -> dict[str, pa.Table]:
    """Return the rows of the tables, grouped by date."""
    table = pa.concat_tables(tables)
    dates = pc.strftime(table["ts"], format="%Y-%m-%d")
    ordered = table.append_column("date", dates).sort_by([("date", "ascending"), *_ORDER])
    tables_by_date: dict[str, pa.Table] = {}
    start = 0
    runs = pc.run_end_encode(ordered["date"].combine_chunks()) if len(ordered) else None
    if runs is None:
        return tables_by_date
    for date, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        tables_by_date[date] = ordered.slice(start, end - start).drop_columns(["date"])
        start = end
    return tables_by_date


def replace_rows(data: bytes | None, units: Iterable[Unit], rows: pa.Table) -> bytes | None:
    """Replace the rows of `units` (ranges of entries); return the new file, None if unchanged.

    `data` is None if the file does not exist yet. Of the metadata, only `contains` is kept.

    Raises:
        CorruptData: `data` is not a Parquet file with the columns of this table.
    """
    if data is None:
        return encode(rows)
    before = decode(data)
    ranges: dict[str, list[tuple[int, int]]] = {}
    for unit in units:
        ranges.setdefault(unit.chat, []).append((unit.first, unit.last))
    messages = zip(before["chat"].to_pylist(), before["seq"].to_pylist(), strict=True)
    keep = [
        not any(first <= seq <= last for first, last in ranges.get(chat, ()))
        for chat, seq in messages
    ]
    after = pa.concat_tables([before.filter(pa.array(keep, pa.bool_())), rows]).sort_by(_ORDER)
    if after.equals(before):
        return None
    return encode(after, FileFacts(decode_facts(data).contains))


def encode(table: pa.Table, facts: FileFacts = NO_FACTS) -> bytes:
    """Encode a table as a Parquet file."""
    texts = {
        _CONTAINS: ",".join(sorted(facts.contains)),
        _MOVES_TO: facts.moves_to,
        _IS_MOVED: "1" if facts.is_moved else "",
    }
    metadata = {name: text for name, text in texts.items() if text}
    content = io.BytesIO()
    ordered = table.sort_by(_ORDER).replace_schema_metadata(metadata or None)
    pq.write_table(ordered, content, compression="zstd")
    return content.getvalue()


def get_footer_bytes(tail: bytes) -> int:
    """Return how many bytes from the end of the file `decode_facts` needs.

    `tail` is the end of the file: at least its last 8 bytes.

    Raises:
        CorruptData: the file is not a Parquet file.
    """
    if tail[-len(_MAGIC) :] != _MAGIC:
        raise CorruptData("analytics: not a Parquet file")
    return int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little") + _END_BYTES


def decode_facts(tail: bytes) -> FileFacts:
    """Decode a file's metadata.

    `tail` is the end of the file: at least as many bytes as `get_footer_bytes` returns.

    Raises:
        CorruptData: the file is not a Parquet file.
    """
    footer = _MAGIC + tail[-get_footer_bytes(tail) :]
    try:
        metadata = pq.read_metadata(pa.BufferReader(footer))
    except (pa.ArrowInvalid, OSError) as exc:
        raise CorruptData(f"analytics: not a Parquet file: {exc}") from exc
    texts = metadata.metadata or {}
    contains = texts.get(_CONTAINS, b"").decode()
    return FileFacts(
        contains=frozenset(contains.split(",") if contains else ()),
        moves_to=texts.get(_MOVES_TO, b"").decode(),
        is_moved=_IS_MOVED in texts,
    )


def decode(data: bytes) -> pa.Table:
    """Decode a file. Columns that the file does not have are filled with nulls.

    Raises:
        CorruptData: the data is not a Parquet file with the columns of this table.
    """
    try:
        table = pq.read_table(pa.BufferReader(data))
        for field in FILE_SCHEMA:
            if field.name not in table.column_names:
                table = table.append_column(field, pa.nulls(len(table), field.type))
        return table.select(FILE_SCHEMA.names).cast(FILE_SCHEMA)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as exc:
        raise CorruptData(f"analytics: not a Parquet file of this table: {exc}") from exc
