"""Embedded engine: SQLite with FTS5, one file per index partition.

| table   | content                                                                            |
|---------|------------------------------------------------------------------------------------|
| `doc`   | chat, seq, sender, expiry and generation of each document                          |
| `words` | FTS5: tokens and scopes (chat, sender, file) of each document, by its id in `doc`  |
| `name`  | the number that stands for each chat and user in the other tables                  |
| `state` | the state of the indexer                                                           |

The rowid of a document is its `ts` times `SLOTS`, plus a number that differs for documents with the
same `ts`. SQLite can therefore list matches by time and stop when a page is full. Scopes are words
with a colon, such as ``c:7``; tokens have no colons. Scopes are in the same column as the tokens,
because with a column filter, FTS5 would read the positions of each match.

Changes and the new state are written in one transaction, in WAL mode, so readers see all or none.
SQLite overwrites deleted content (`secure_delete`). Deleted tokens stay in the FTS5 segments until
`compact` merges the segments.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from chatserver.errors import SEARCH_DOWN, LostRace, Unavailable
from chatserver.features.search.engines.sqlite_query import (
    SLOTS,
    SqliteSearch,
    build_scopes,
    build_terms,
    find_chat_numbers,
    find_number,
)
from chatserver.features.search.model import (
    Document,
    HitPage,
    IndexChanges,
    IndexerState,
    IndexQuery,
    Order,
    Stats,
)
from chatserver.features.search.work_budget import WorkBudget
from chatserver.telemetry.failpoints import failpoint

BUSY_TIMEOUT_S: Final = 10.0
CACHE_KB: Final = 32_768
MERGE_PAGES: Final = 200
STEPS_PER_CHECK: Final = 1_000  # instructions of SQLite's virtual machine
_SCHEMA_VERSION: Final = 2
_SCHEMA: Final = """
CREATE TABLE name (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL,
    UNIQUE (kind, name));
CREATE TABLE doc (id INTEGER PRIMARY KEY, chat INTEGER NOT NULL, seq INTEGER NOT NULL,
    sender INTEGER NOT NULL, expires_at INTEGER NOT NULL, generation INTEGER NOT NULL,
    UNIQUE (chat, seq));
CREATE INDEX expiring ON doc (expires_at) WHERE expires_at > 0;
CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), value BLOB NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(body, prefix = '2 3',
    tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'");
"""


class SqliteEngine:
    """An index partition in a file. A writer creates the file if it does not exist."""

    def __init__(self, path: Path, *, is_writer: bool) -> None:
        self._path = path
        self._is_writer = is_writer
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    # connections: one per thread

    def _connect(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            if self._is_writer or self._local.inode == self._find_inode():
                return connection
            with self._lock:  # the file was deleted or replaced
                self._connections.remove(connection)
            connection.close()
            self._local.connection = None
        if self._is_writer:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        elif not self._path.exists():
            raise Unavailable(
                f"search: {self._path} does not exist; run `chatserver worker search` on this "
                "machine; if it runs in another container, both must mount this folder",
                public=SEARCH_DOWN,
            )
        mode = "rwc" if self._is_writer else "rw"
        with _translate_errors(self._path):
            opened = sqlite3.connect(
                f"{self._path.resolve().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                timeout=BUSY_TIMEOUT_S,
                check_same_thread=False,
            )
            opened.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            if self._is_writer:
                opened.execute("PRAGMA journal_mode = WAL")
                opened.execute("PRAGMA synchronous = FULL")
                opened.execute("PRAGMA secure_delete = ON")
                _create_tables(opened)
            else:
                opened.execute("PRAGMA query_only = ON")
                if _get_version(opened) != _SCHEMA_VERSION:
                    opened.close()
                    raise Unavailable(
                        f"search: {self._path} has another schema version; restart `chatserver "
                        "worker search` to rebuild the index",
                        public=SEARCH_DOWN,
                    )
        self._local.connection, self._local.inode = opened, self._find_inode()
        self._local.chats = {}
        with self._lock:
            self._connections.append(opened)
        return opened

    def _find_inode(self) -> int:
        try:
            return self._path.stat().st_ino
        except FileNotFoundError:
            return 0

    @contextlib.contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        connection = self._connect()
        with _translate_errors(self._path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    # state

    def load(self) -> IndexerState:
        """See `Engine`."""
        connection = self._connect()
        with _translate_errors(self._path):
            return _load(connection)

    # changes

    def apply(self, changes: IndexChanges, state: IndexerState) -> None:
        """See `Engine`. Uses one transaction."""
        with self._write() as connection:
            stored = _load(connection)
            if stored.token > state.token:
                raise LostRace("search: another process is writing to the index")
            names = _Names(connection)
            for ref in {*changes.removed, *changes.documents}:
                number = names.find("chat", ref.chat)
                if number is not None:
                    _delete(connection, "chat = ? AND seq = ?", (number, ref.seq))
            if changes.removed:
                failpoint("search.in_apply")
            for document in changes.documents.values():
                _insert(connection, names, document, state.generation)
            for ref, tokens in changes.edits.items():
                number = names.find("chat", ref.chat)
                connection.execute(
                    "UPDATE words SET body = ? || substr(body, instr(body, ' c:')) WHERE rowid = "
                    "(SELECT id FROM doc WHERE chat = ? AND seq = ?)",
                    (tokens, number, ref.seq),
                )
            connection.execute(
                "INSERT INTO state VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET value = ?",
                (value := msgspec.json.encode(state), value),
            )

    def expire(self, now_s: int) -> int:
        """See `Engine`."""
        connection = self._connect()
        condition = "expires_at > 0 AND expires_at <= ?"
        with _translate_errors(self._path):
            expired = connection.execute(
                f"SELECT 1 FROM doc WHERE {condition} LIMIT 1",  # noqa: S608  # constants
                (now_s,),
            ).fetchone()
        if expired is None:
            return 0
        with self._write() as writing:
            return _delete(writing, condition, (now_s,))

    def erase_sender(self, sender: str) -> int:
        """See `Engine`."""
        with self._write() as connection:
            number = _Names(connection).find("user", sender)
            if number is None:
                return 0
            count = _delete(connection, "sender = ?", (number,))
            connection.execute("DELETE FROM name WHERE id = ?", (number,))
            return count

    def drop_older(self, generation: int, limit: int) -> int:
        """See `Engine`."""
        with self._write() as connection:
            return _delete(
                connection,
                "id IN (SELECT id FROM doc WHERE generation < ? LIMIT ?)",
                (generation, limit),
            )

    def compact(self, *, is_first: bool) -> bool:
        """See `Engine`. Merges all FTS5 segments, then empties the write-ahead log."""
        pages = -MERGE_PAGES if is_first else MERGE_PAGES
        with self._write() as connection:
            before = connection.total_changes
            connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
            if connection.total_changes - before >= 2 or is_first:  # else all is merged
                return False
        connection = self._connect()
        with _translate_errors(self._path):
            connection.execute(
                "DELETE FROM name WHERE kind = 'user' AND id NOT IN (SELECT sender FROM doc)"
            )
            is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return not is_busy

    def maintain(self) -> None:
        """See `Engine`. Nothing to do: FTS5 merges segments on each write."""

    # queries

    def find(self, request: IndexQuery) -> HitPage:
        """See `Engine`. SQLite interrupts the query when the budget is over."""
        connection = self._connect()
        with _translate_errors(self._path), _interrupt_when_over(connection, request.budget):
            numbers = find_chat_numbers(connection, request.chats, self._local.chats)
            scopes = build_scopes(connection, request.query, numbers)
            if not numbers or scopes is None:
                return HitPage([], [], None)
            match = " AND ".join([*build_terms(request.query), *scopes]) or None
            search = SqliteSearch(connection, request, match, numbers)
            if request.order is Order.RELEVANCE:
                return search.list_ranked(request.limit, request.start)
            return search.list_newest(request.limit, request.start)

    def measure(self) -> Stats:
        """See `Engine`."""
        connection = self._connect()
        with _translate_errors(self._path):
            (count,) = connection.execute("SELECT count(*) FROM doc").fetchone()
        files = (self._path.with_name(self._path.name + suffix) for suffix in ("", "-wal"))
        return Stats(count, sum(file.stat().st_size for file in files if file.exists()))

    def close(self) -> None:
        """See `Engine`. Call it only when no other call is in progress."""
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._local = threading.local()


def _get_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables; drop tables of another schema version, so that the index is rebuilt."""
    connection.execute("BEGIN IMMEDIATE")
    if _get_version(connection) != _SCHEMA_VERSION:
        for table in ("words", "doc", "name", "state"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _SCHEMA.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _load(connection: sqlite3.Connection) -> IndexerState:
    row = connection.execute("SELECT value FROM state").fetchone()
    return IndexerState() if row is None else msgspec.json.decode(row[0], type=IndexerState)


class _Names:
    """The numbers that stand for chats and users, cached for one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._cached: dict[tuple[str, str], int] = {}

    def find(self, kind: str, name: str) -> int | None:
        if (kind, name) in self._cached:
            return self._cached[kind, name]
        number = find_number(self._connection, kind, name)
        if number is not None:
            self._cached[kind, name] = number
        return number

    def get(self, kind: str, name: str) -> int:
        number = self.find(kind, name)
        if number is None:
            cursor = self._connection.execute(
                "INSERT INTO name (kind, name) VALUES (?, ?)", (kind, name)
            )
            number = int(cursor.lastrowid or 0)
            self._cached[kind, name] = number
        return number


def _insert(
    connection: sqlite3.Connection, names: _Names, document: Document, generation: int
) -> None:
    chat, sender = names.get("chat", document.chat), names.get("user", document.sender)
    first = document.ts * SLOTS
    for number in range(first, first + SLOTS):
        cursor = connection.execute(
            "INSERT OR IGNORE INTO doc VALUES (?, ?, ?, ?, ?, ?)",
            (number, chat, document.seq, sender, document.expires_at, generation),
        )
        if cursor.rowcount:
            break
    else:
        raise Unavailable(f"search: more than {SLOTS} messages have ts {document.ts}")
    scopes = f" c:{chat} u:{sender}" + (" f:" if document.has_file else "")
    connection.execute(
        "INSERT OR REPLACE INTO words (rowid, body) VALUES (?, ?)",
        (number, document.tokens + scopes),
    )


def _delete(connection: sqlite3.Connection, condition: str, values: Sequence[object]) -> int:
    numbers_query = f"SELECT id FROM doc WHERE {condition}"  # noqa: S608  # constants
    ids = connection.execute(numbers_query, values).fetchall()
    connection.executemany("DELETE FROM words WHERE rowid = ?", ids)
    connection.executemany("DELETE FROM doc WHERE id = ?", ids)
    return len(ids)


@contextlib.contextmanager
def _interrupt_when_over(connection: sqlite3.Connection, budget: WorkBudget) -> Iterator[None]:
    connection.set_progress_handler(budget.is_over, STEPS_PER_CHECK)
    try:
        yield
    except sqlite3.OperationalError:
        budget.check()  # raises the error of an interrupted query
        raise
    finally:
        connection.set_progress_handler(None, 0)


@contextlib.contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as exc:
        raise Unavailable(f"search: {path}: {exc}", public=SEARCH_DOWN) from exc
