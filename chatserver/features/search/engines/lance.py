"""Distributed engine: LanceDB tables in the S3 bucket, one per index partition.

Any number of API processes read the bucket; the indexer is the only writer, on any machine. A table
has a row per document, and one row with the state. New rows are found at once, by a scan of what
the full-text index lacks; `maintain` adds them to it.

| column                                | index                            |
|---------------------------------------|----------------------------------|
| `id`: ``<chat>/<seq>``                | scalar                           |
| `chat`, `ts`                          | scalar                           |
| `body`: the tokens                    | full text, with positions        |
| `prefixes`: beginnings of the tokens  | full text, for incomplete words  |
| `seq sender has_file expires_at generation state` | none                 |

Rows are upserted with the state in one commit. Deletions are a commit before it, so the state is
never newer than the documents. LanceDB finds the best matches and not the newest ones; see
`_list_window`.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import lancedb
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]  # no type information
from lancedb import query as lance_query
from lancedb.query import Occur

from chatserver.config import Cold
from chatserver.errors import LostRace, Unavailable
from chatserver.features.search.model import (
    Changes,
    Cursor,
    Document,
    Found,
    Hit,
    Order,
    Place,
    State,
    Stats,
)
from chatserver.features.search.query import Query, Term

PREFIX: Final = "search/v1"
STATE_ID: Final = "#state"  # no document has it: ids contain no "#"
PREFIX_CHARS_MAX: Final = 8  # longer beginnings of words are compared with the message itself
MATCHES_MAX: Final = 1_000  # of one query of the table
WINDOWS_MAX: Final = 12
MAINTAIN_S: Final = 60.0
UNINDEXED_MAX: Final = 20_000  # changes after which the index is extended sooner
KEPT: Final = datetime.timedelta(minutes=10)  # old versions, for queries in progress
LATEST: Final = datetime.timedelta(0)
_TOKEN_BYTES_MAX: Final = 256
# Without the types of their optional arguments, which mypy takes for required ones.
BooleanQuery: Any = lance_query.BooleanQuery
MatchQuery: Any = lance_query.MatchQuery
PhraseQuery: Any = lance_query.PhraseQuery
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

os.environ.setdefault("LANCE_LOG", "error")


class LanceEngine:
    """An index partition in the bucket."""

    def __init__(self, settings: Cold, number: int) -> None:
        self._settings = settings
        self._name = f"messages-{number}"
        self._where = f"s3://{settings.bucket}/{_folder(settings)}"
        self._table: Any = None
        self._lock = threading.Lock()
        self._changed = 0
        self._maintained_at = float("-inf")

    def _open(self, *, creates: bool = False) -> Any:
        with self._lock:
            if self._table is None:
                database = lancedb.connect(
                    self._where,
                    storage_options=_storage_options(self._settings),
                    read_consistency_interval=LATEST,
                )
                if creates and self._name not in database.table_names(limit=1000):
                    made = database.create_table(self._name, schema=_SCHEMA, exist_ok=True)
                    _index(made)
                self._table = database.open_table(self._name)
            return self._table

    # state

    def load(self) -> State:
        """See `Engine`."""
        with _translated():
            return _load(self._open(creates=True))

    # changes

    def apply(self, changes: Changes, state: State) -> None:
        """See `Engine`."""
        with _translated():
            table = self._open(creates=True)
            if _load(table).token > state.token:
                raise LostRace("search: another process writes the index")
            if changes.removed:
                _delete(table, _is_in("id", map(_id_of, changes.removed)))
            rows = [_row_of(each, state.generation) for each in changes.documents.values()]
            rows += _edit(table, changes.edits)
            rows.append({"id": STATE_ID, "state": msgspec.json.encode(state).decode()})
            data = pa.Table.from_pylist(rows, schema=_SCHEMA)
            merge = table.merge_insert("id").when_matched_update_all()
            merge.when_not_matched_insert_all().execute(data)
            self._changed += len(rows) - 1

    def expire(self, now_s: int) -> int:
        """See `Engine`."""
        with _translated():
            return _delete(self._open(), f"expires_at > 0 AND expires_at <= {now_s}")

    def erase_sender(self, sender: str) -> int:
        """See `Engine`."""
        with _translated():
            return _delete(self._open(), f"sender = {_quoted(sender)}")

    def drop_older(self, generation: int, limit: int) -> int:
        """See `Engine`; all of them, in one commit."""
        with _translated():
            return _delete(self._open(), f"generation < {generation}")

    def compact(self, *, is_first: bool) -> bool:
        """See `Engine`: writes all rows again, trains the indexes, and deletes old versions."""
        with _translated():
            table = self._open()
            table.update(values_sql={"generation": "generation + 0"})
            table.optimize()
            _index(table)
            table.optimize(cleanup_older_than=LATEST)
        return True

    def maintain(self) -> None:
        """See `Engine`: merges small files, and adds new rows to the indexes."""
        now = time.monotonic()
        is_due = now - self._maintained_at > MAINTAIN_S and self._changed
        if not is_due and self._changed < UNINDEXED_MAX:
            return
        with _translated():
            self._open().optimize(cleanup_older_than=KEPT)
        self._changed, self._maintained_at = 0, now

    # queries

    def find(
        self,
        query: Query,
        chats: Collection[str],
        order: Order,
        limit: int,
        start: Cursor | None,
        now_s: int,
    ) -> Found:
        """See `Engine`."""
        with _translated():
            conditions = [
                _is_in("chat", chats),
                f"(expires_at = 0 OR expires_at > {now_s})",
                f"ts >= {query.after_ts or 0}",
            ]
            if query.sender is not None:
                conditions.append(f"sender = {_quoted(query.sender)}")
            if query.has_file:
                conditions.append("has_file")
            search = _Search(self._open(), query, conditions)
            if order is Order.RELEVANCE and query.terms:
                return search.list_ranked(limit, start)
            return search.list_newest(limit, start)

    def measure(self) -> Stats:
        """See `Engine`."""
        with _translated():
            table = self._open()
            return Stats(max(0, table.count_rows() - 1), int(table.stats()["total_bytes"]))

    def close(self) -> None:
        """See `Engine`."""
        with self._lock:
            self._table = None


class _Search:
    """One query."""

    def __init__(self, table: Any, query: Query, conditions: Sequence[str]) -> None:
        self._table = table
        self._query = query
        self._conditions = conditions
        self._words = _match_of(query.terms)
        self._high = query.before_ts if query.before_ts is not None else (1 << 62)

    def _read(self, low: int, high: int) -> list[dict[str, Any]]:
        """Return at most `MATCHES_MAX` + 1 matches in a range of time, in any order."""
        where = " AND ".join([*self._conditions, f"ts >= {low} AND ts < {high}"])
        columns = ["id", "chat", "seq", "ts"]
        if self._words is None:
            found = self._table.search().where(where).select(columns)
        else:
            found = self._table.search(self._words, query_type="fts")
            found = found.where(where, prefilter=True).select([*columns, "_score"])
        rows: list[dict[str, Any]] = found.limit(MATCHES_MAX + 1).to_list()
        return rows

    def _list_window(self, high: int, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """Return `(rows, is_all)`: all matches of the newest range with at least `limit` of them.

        If a range has more matches than one query returns, those that were returned are a sample:
        a range that begins at one of the newest of them has enough matches, and far fewer.
        """
        low, rows = 0, self._read(0, high)
        for _ in range(WINDOWS_MAX):
            if len(rows) <= MATCHES_MAX:
                break
            newest = sorted((row["ts"] for row in rows), reverse=True)
            low = newest[min(2 * limit, len(newest) - 1)]
            rows = self._read(low, high)
        return rows, low == 0

    def list_newest(self, limit: int, start: Cursor | None) -> Found:
        high = self._high if start is None else min(self._high, start.ts + 1)
        skipped = 0 if start is None else start.offset
        rows, is_all = self._list_window(high, limit + skipped)
        rows.sort(key=lambda row: (-row["ts"], row["id"]))
        page = rows[skipped : skipped + limit]
        cursors: list[Cursor] = []
        for index, row in enumerate(page, skipped):
            same = sum(1 for each in rows[: index + 1] if each["ts"] == row["ts"])
            cursors.append(Cursor(row["ts"], same))
        has_more = bool(page) and (not is_all or len(rows) > skipped + limit)
        return Found([_hit_of(row) for row in page], cursors, cursors[-1] if has_more else None)

    def list_ranked(self, limit: int, start: Cursor | None) -> Found:
        skipped = 0 if start is None else start.offset
        high = self._high if start is None else min(self._high, start.ts)
        rows = self._read(0, high)[:MATCHES_MAX]
        top = max((row["ts"] for row in rows), default=0) + 1 if start is None else start.ts
        rows.sort(key=lambda row: (-row["_score"], -row["ts"], row["id"]))
        page = rows[skipped : skipped + limit]
        cursors = [Cursor(top, skipped + index + 1) for index in range(len(page))]
        has_more = len(rows) > skipped + limit
        hits = [_hit_of(row)._replace(score=row["_score"]) for row in page]
        return Found(hits, cursors, cursors[-1] if has_more else None)


def _match_of(terms: Sequence[Term]) -> Any:
    """Return the full-text query; None without terms."""
    parts: list[Any] = []
    for term in terms:
        whole = term.tokens[:-1] if term.is_prefix else term.tokens
        if len(whole) == 1:
            parts.append(MatchQuery(whole[0], "body"))
        elif whole:
            parts.append(PhraseQuery(" ".join(whole), "body"))
        if term.is_prefix:
            parts.append(MatchQuery(term.tokens[-1][:PREFIX_CHARS_MAX], "prefixes"))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else BooleanQuery([(Occur.MUST, each) for each in parts])


def _hit_of(row: dict[str, Any]) -> Hit:
    return Hit(row["chat"], row["seq"], row["ts"])


def _row_of(document: Document, generation: int) -> dict[str, Any]:
    return {
        "id": _id_of(Place(document.chat, document.seq)),
        "chat": document.chat,
        "seq": document.seq,
        "ts": document.ts,
        "sender": document.sender,
        "has_file": document.has_file,
        "expires_at": document.expires_at,
        "generation": generation,
        "body": document.tokens,
        "prefixes": _prefixes_of(document.tokens),
    }


def _edit(table: Any, edits: dict[Place, str]) -> list[dict[str, Any]]:
    """Return the rows of edited documents, with their new tokens."""
    if not edits:
        return []
    tokens = {_id_of(place): text for place, text in edits.items()}
    rows: list[dict[str, Any]] = (
        table.search()
        .where(_is_in("id", tokens))
        .select(_SCHEMA.names)
        .limit(len(tokens))
        .to_list()
    )
    return [
        {**row, "body": tokens[row["id"]], "prefixes": _prefixes_of(tokens[row["id"]])}
        for row in rows
    ]


def _prefixes_of(tokens: str) -> str:
    found = {
        word[:size]
        for word in set(tokens.split())
        for size in range(1, min(len(word), PREFIX_CHARS_MAX) + 1)
    }
    return " ".join(sorted(found))


def _delete(table: Any, condition: str) -> int:
    count = int(table.count_rows(condition))
    if count:
        table.delete(condition)
    return count


def _index(table: Any) -> None:
    """Create the indexes, or train them again."""
    for column in ("id", "chat", "ts"):
        table.create_scalar_index(column, replace=True)
    for column in ("body", "prefixes"):
        table.create_fts_index(
            column,
            base_tokenizer="whitespace",
            with_position=column == "body",
            max_token_length=_TOKEN_BYTES_MAX,
            lower_case=False,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
            replace=True,
        )


def _load(table: Any) -> State:
    found = table.search().where(f"id = '{STATE_ID}'").select(["state"]).limit(1).to_list()
    return msgspec.json.decode(found[0]["state"], type=State) if found else State()


def _id_of(place: Place) -> str:
    return f"{place.chat}/{place.seq}"


def _is_in(column: str, values: Iterable[str]) -> str:
    return f"{column} IN ({', '.join(map(_quoted, values)) or 'NULL'})"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _folder(settings: Cold) -> str:
    return f"{settings.tenant}/{PREFIX}" if settings.tenant else PREFIX


def _storage_options(settings: Cold) -> dict[str, str]:
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
def _translated() -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, ValueError) as exc:  # the errors of LanceDB
        raise Unavailable(f"search: LanceDB: {str(exc)[:300]}") from exc
