"""Typed wrapper around a LanceDB table in the S3 bucket. Converts LanceDB errors to Unavailable."""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, cast

import lancedb
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]  # no type information
from lancedb import query as lance_query
from lancedb.index import FTS, BTree
from lancedb.query import FullTextQuery, Occur
from lancedb.table import Table

from chatserver.config import Cold
from chatserver.errors import SEARCH_DOWN, Unavailable

PREFIX: Final = "search/v1"
SCALAR_COLUMNS: Final = ("id", "chat", "ts")
LATEST: Final = datetime.timedelta(0)
_TOKEN_BYTES_MAX: Final = 256
_TABLES_MAX: Final = 1000
_SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("chat", pa.string()),
        ("seq", pa.int64()),
        ("ts", pa.int64()),
        ("sender", pa.string()),
        ("has_file", pa.bool_()),
        ("expires_at", pa.int64()),
        ("generation", pa.int64()),
        ("body", pa.string()),
        ("prefixes", pa.string()),
        ("state", pa.string()),
    ]
)
# The type stubs of LanceDB declare optional arguments as required.
match_word: Callable[..., FullTextQuery] = lance_query.MatchQuery
match_phrase: Callable[..., FullTextQuery] = lance_query.PhraseQuery
_boolean_query: Callable[..., FullTextQuery] = lance_query.BooleanQuery

os.environ.setdefault("LANCE_LOG", "error")


class LanceRow(msgspec.Struct, frozen=True):
    """A row of the table: a document, or the state of the indexer."""

    id: str
    chat: str | None = None
    seq: int | None = None
    ts: int | None = None
    sender: str | None = None
    has_file: bool | None = None
    expires_at: int | None = None
    generation: int | None = None
    body: str | None = None
    prefixes: str | None = None
    state: str | None = None


class Match(msgspec.Struct, frozen=True):
    """A row that matches a query. `score`: relevance; 0 if the query has no words."""

    id: str
    chat: str
    seq: int
    ts: int
    score: float = msgspec.field(default=0.0, name="_score")


class LanceTable:
    """A table, opened on first use. Methods raise Unavailable."""

    def __init__(self, settings: Cold, name: str) -> None:
        self._settings = settings
        self._name = name
        tenant = f"{settings.tenant}/" if settings.tenant else ""
        self._url = f"s3://{settings.bucket}/{tenant}{PREFIX}"
        self._table: Table | None = None
        self._lock = threading.Lock()

    def create(self) -> None:
        """Create the table and its indexes, unless the table exists."""
        with _translate_errors():
            self._open(creates=True)

    def _open(self, *, creates: bool = False) -> Table:
        with self._lock:
            if self._table is None:
                database = lancedb.connect(
                    self._url,
                    storage_options=_build_storage_options(self._settings),
                    read_consistency_interval=LATEST,
                )
                if creates and self._name not in database.table_names(limit=_TABLES_MAX):
                    table = database.create_table(self._name, schema=_SCHEMA, exist_ok=True)
                    _create_indexes(table)
                self._table = database.open_table(self._name)
            return self._table

    def close(self) -> None:
        """Close the table; the next call opens it again."""
        with self._lock:
            self._table = None

    # writes: one commit each

    def upsert(self, rows: Sequence[LanceRow]) -> None:
        """Insert rows, or replace existing rows with the same id."""
        with _translate_errors():
            data = pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rows], _SCHEMA)
            merge = self._open().merge_insert("id").when_matched_update_all()
            merge.when_not_matched_insert_all().execute(data)

    def delete(self, condition: str) -> int:
        """Delete the rows that meet a condition; return how many there were."""
        with _translate_errors():
            table = self._open()
            count = table.count_rows(condition)
            if count:
                table.delete(condition)
            return count

    def rewrite(self) -> None:
        """Rewrite all rows and indexes, and delete all old table versions."""
        with _translate_errors():
            table = self._open()
            table.update(values_sql={"generation": "generation + 0"})
            table.optimize()
            _create_indexes(table)
            table.optimize(cleanup_older_than=LATEST)

    def optimize(self, retention: datetime.timedelta) -> None:
        """Merge small files, index new rows, and delete versions older than `retention`."""
        with _translate_errors():
            self._open().optimize(cleanup_older_than=retention)

    # reads

    def list_rows(self, condition: str, limit: int) -> list[LanceRow]:
        """Return the rows that meet a condition, with all columns."""
        with _translate_errors():
            query = self._open().search().where(condition).select(_SCHEMA.names).limit(limit)
            return msgspec.convert(query.to_list(), list[LanceRow])

    def find(
        self, words: FullTextQuery | None, condition: str, limit: int, time_s_max: float
    ) -> list[Match]:
        """Return up to `limit` matching rows; if more rows match, the most relevant ones.

        LanceDB cancels the query after `time_s_max`.
        """
        timeout = datetime.timedelta(seconds=time_s_max)
        columns = list(Match.__struct_encode_fields__[:-1])
        with _translate_errors():
            table = self._open()
            if words is None:
                found = table.search().where(condition).select(columns)
            else:
                matches = table.search(words, query_type="fts").where(condition, prefilter=True)
                found = matches.select([*columns, "_score"])
            rows = found.limit(limit).to_list(timeout=timeout)
            return msgspec.convert(rows, list[Match])

    def measure(self) -> tuple[int, int]:
        """Return the number of rows, and the size in bytes."""
        with _translate_errors():
            table = self._open()
            stats = cast("dict[str, int]", table.stats())  # the stubs declare a class
            return table.count_rows(), stats["total_bytes"]


# full-text queries


def match_all(parts: Sequence[FullTextQuery]) -> FullTextQuery | None:
    """Return a query that requires all parts; None if there are no parts."""
    if len(parts) > 1:
        return _boolean_query([(Occur.MUST, part) for part in parts])
    return parts[0] if parts else None


# conditions


def is_in(column: str, values: Iterable[str]) -> str:
    """Return an SQL condition: `column` has one of `values`."""
    return f"{column} IN ({', '.join(map(quote_sql, values)) or 'NULL'})"


def quote_sql(value: str) -> str:
    """Return `value` as an SQL string literal."""
    return "'" + value.replace("'", "''") + "'"


def _create_indexes(table: Table) -> None:
    for column in SCALAR_COLUMNS:
        table.create_index(column, config=BTree(), replace=True)
    for column in ("body", "prefixes"):
        words = FTS(
            base_tokenizer="whitespace",
            with_position=column == "body",
            max_token_length=_TOKEN_BYTES_MAX,
            lower_case=False,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
        )
        table.create_index(column, config=words, replace=True)


def _build_storage_options(settings: Cold) -> dict[str, str]:
    options = {"aws_region": settings.region, "timeout": f"{settings.call_timeout_s:g}s"}
    if settings.endpoint is not None:
        is_plain = settings.endpoint.startswith("http://")
        options |= {"aws_endpoint": settings.endpoint, "allow_http": str(is_plain).lower()}
    if settings.access_key is not None and settings.secret_key is not None:
        options |= {
            "aws_access_key_id": settings.access_key,
            "aws_secret_access_key": settings.secret_key.get_secret_value(),
        }
    return options


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, ValueError) as exc:  # raised by LanceDB
        raise Unavailable(f"search: LanceDB: {str(exc)[:300]}", public=SEARCH_DOWN) from exc
