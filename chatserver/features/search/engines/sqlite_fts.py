"""Embedded engine: SQLite with FTS5, one file per index partition.

| table   | content                                                                            |
|---------|------------------------------------------------------------------------------------|
| `doc`   | place, sender, expiry and generation of each document                              |
| `words` | FTS5: `scope` (chat, sender, file) and `body` (the tokens); rowid is that of `doc` |
| `name`  | chats and users, to small numbers                                                  |
| `state` | the state of the indexer                                                           |

The rowid of a document is its `ts` times `SLOTS`, so SQLite lists matches in the order of time and
stops when a page is full. A write is one transaction with the state, in WAL mode: readers of other
processes see all of it or nothing. Deleted content is overwritten (`secure_delete`), and leaves the
FTS5 segments when they are merged (`compact`).
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from chatserver.errors import LostRace, Unavailable
from chatserver.features.search.model import (
    Changes,
    Cursor,
    Document,
    Found,
    Hit,
    Order,
    State,
    Stats,
)
from chatserver.features.search.query import Query, Term

SLOTS: Final = 1024  # documents of different chats with the same `ts`
SCOPED_CHATS_MAX: Final = 64  # more chats are a filter on the matches
SCAN_MAX: Final = 10_000  # matches that one call compares with a filter of chats
RANKED_MAX: Final = 500  # newest matches that are sorted by relevance
BUSY_S: Final = 10.0
CACHE_KB: Final = 32_768
MERGE_PAGES: Final = 200
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS name (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL,
    UNIQUE (kind, name));
CREATE TABLE IF NOT EXISTS doc (id INTEGER PRIMARY KEY, chat INTEGER NOT NULL, seq INTEGER NOT NULL,
    sender INTEGER NOT NULL, expires_at INTEGER NOT NULL, generation INTEGER NOT NULL,
    UNIQUE (chat, seq));
CREATE INDEX IF NOT EXISTS expiring ON doc (expires_at) WHERE expires_at > 0;
CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY CHECK (id = 1), value BLOB NOT NULL);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(scope, body, prefix = '2 3',
    tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'");
"""


class SqliteEngine:
    """An index partition in a file. `is_writer`: the file is created and may be changed."""

    def __init__(self, path: Path, *, is_writer: bool) -> None:
        self._path = path
        self._is_writer = is_writer
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    # connections: one per thread

    def _connect(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is not None:
            if self._is_writer or self._local.inode == self._find_inode():
                return found
            with self._lock:  # the file was deleted, and maybe built again
                self._connections.remove(found)
            found.close()
            self._local.connection = None
        if self._is_writer:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        elif not self._path.exists():
            raise Unavailable(
                f"search: {self._path} does not exist; run `chatserver worker search` on this "
                "machine, or share the folder"
            )
        mode = "rwc" if self._is_writer else "rw"
        with _translated(self._path):
            made = sqlite3.connect(
                f"{self._path.resolve().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                timeout=BUSY_S,
                check_same_thread=False,
            )
            made.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            if self._is_writer:
                made.execute("PRAGMA journal_mode = WAL")
                made.execute("PRAGMA synchronous = FULL")
                made.execute("PRAGMA secure_delete = ON")
                made.executescript(_SCHEMA)
            else:
                made.execute("PRAGMA query_only = ON")
        self._local.connection, self._local.inode = made, self._find_inode()
        with self._lock:
            self._connections.append(made)
        return made

    def _find_inode(self) -> int:
        try:
            return self._path.stat().st_ino
        except FileNotFoundError:
            return 0

    @contextlib.contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        connection = self._connect()
        with _translated(self._path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    # state

    def load(self) -> State:
        """See `Engine`."""
        connection = self._connect()
        with _translated(self._path):
            return _load(connection)

    # changes

    def apply(self, changes: Changes, state: State) -> None:
        """See `Engine`: one transaction."""
        with self._write() as connection:
            stored = _load(connection)
            if stored.token > state.token:
                raise LostRace("search: another process writes the index")
            names = _Names(connection)
            for place in {*changes.removed, *changes.documents}:
                number = names.find("chat", place.chat)
                if number is not None:
                    _delete(connection, "chat = ? AND seq = ?", (number, place.seq))
            for document in changes.documents.values():
                _insert(connection, names, document, state.generation)
            for place, tokens in changes.edits.items():
                number = names.find("chat", place.chat)
                connection.execute(
                    "UPDATE words SET body = ? WHERE rowid = "
                    "(SELECT id FROM doc WHERE chat = ? AND seq = ?)",
                    (tokens, number, place.seq),
                )
            connection.execute(
                "INSERT INTO state VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET value = ?",
                (value := msgspec.json.encode(state), value),
            )

    def expire(self, now_s: int) -> int:
        """See `Engine`."""
        connection = self._connect()
        condition = "expires_at > 0 AND expires_at <= ?"
        with _translated(self._path):
            found = connection.execute(
                f"SELECT 1 FROM doc WHERE {condition} LIMIT 1",  # noqa: S608
                (now_s,),
            ).fetchone()
        if found is None:
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
        """See `Engine`: merges all FTS5 segments, then empties the write-ahead log."""
        pages = -MERGE_PAGES if is_first else MERGE_PAGES
        with self._write() as connection:
            before = connection.total_changes
            connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
            if connection.total_changes - before >= 2 or is_first:  # SQLite: less is no work
                return False
        connection = self._connect()
        with _translated(self._path):
            connection.execute(
                "DELETE FROM name WHERE kind = 'user' AND id NOT IN (SELECT sender FROM doc)"
            )
            is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return not is_busy

    def maintain(self) -> None:
        """See `Engine`: SQLite merges segments with each write."""

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
        """See `Engine`. Newest first, matches are read in the order of their rowid."""
        connection = self._connect()
        with _translated(self._path):
            numbers = _numbers_of(connection, chats)
            match = _match_of(connection, query, numbers)
            if not numbers or match is None:
                return Found([], [], None)
            search = _Search(connection, match, numbers, query, now_s)
            if order is Order.RELEVANCE:
                return search.list_ranked(limit, start)
            return search.list_newest(limit, start)

    def measure(self) -> Stats:
        """See `Engine`."""
        connection = self._connect()
        with _translated(self._path):
            (count,) = connection.execute("SELECT count(*) FROM doc").fetchone()
        files = (self._path.with_name(self._path.name + suffix) for suffix in ("", "-wal"))
        return Stats(count, sum(file.stat().st_size for file in files if file.exists()))

    def close(self) -> None:
        """See `Engine`. No call may be in progress."""
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._local = threading.local()


class _Search:
    """One query. `match` is the FTS5 expression."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        match: str,
        numbers: dict[int, str],
        query: Query,
        now_s: int,
    ) -> None:
        self._connection = connection
        self._match = match
        self._numbers = numbers
        self._now_s = now_s
        self._low = (query.after_ts or 0) * SLOTS
        before = query.before_ts
        self._high = (1 << 62) if before is None else before * SLOTS
        self._words = query.terms
        self._is_scoped = len(numbers) <= SCOPED_CHATS_MAX

    def _read(self, limit: int, high: int) -> tuple[list[Any], int | None]:
        """Return `(rows, last)`: the newest matches before rowid `high`.

        `last` is the rowid after which reading continues; None if nothing is left.
        """
        scan = limit + 1 if self._is_scoped else SCAN_MAX
        inner = (
            "SELECT rowid AS id FROM words WHERE words MATCH ? "
            "AND rowid >= ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"
        )
        values: list[Any] = [self._match, self._low, high, scan]
        if self._is_scoped:
            where = ""
        else:
            where = "AND doc.chat IN (SELECT value FROM json_each(?))"
            values.append(msgspec.json.encode(list(self._numbers)).decode())
        rows = self._connection.execute(
            f"SELECT found.id, doc.chat, doc.seq FROM ({inner}) AS found "  # noqa: S608
            "CROSS JOIN doc ON doc.id = found.id "
            f"WHERE (doc.expires_at = 0 OR doc.expires_at > ?) {where} "
            "ORDER BY found.id DESC LIMIT ?",
            [*values[:4], self._now_s, *values[4:], limit + 1],
        ).fetchall()
        if len(rows) > limit:
            return rows[:limit], rows[limit - 1][0]
        count, last = self._connection.execute(
            f"SELECT count(*), min(id) FROM ({inner})",  # noqa: S608
            values[:4],
        ).fetchone()
        return rows, last if count == scan else None

    def list_newest(self, limit: int, start: Cursor | None) -> Found:
        high = self._high if start is None else min(self._high, start.offset)
        rows, last = self._read(limit, high)
        hits = [self._hit(row) for row in rows]
        cursors = [Cursor(row[0] // SLOTS, offset=row[0]) for row in rows]
        return Found(hits, cursors, None if last is None else Cursor(last // SLOTS, offset=last))

    def list_ranked(self, limit: int, start: Cursor | None) -> Found:
        skipped = 0 if start is None else start.offset
        high = self._high if start is None else min(self._high, start.ts * SLOTS)
        rows, _ = self._read(RANKED_MAX, high)
        newest = (rows[0][0] // SLOTS + 1) if rows else 0
        top = newest if start is None else start.ts
        bodies = self._list_bodies([row[0] for row in rows])
        scored = [(score(self._words, bodies[row[0]]), row) for row in rows]
        ranked = sorted(scored, key=lambda each: (-each[0], -each[1][0]))
        page = ranked[skipped : skipped + limit]
        cursors = [Cursor(top, offset=skipped + index + 1) for index in range(len(page))]
        has_more = len(ranked) > skipped + limit
        hits = [self._hit(row)._replace(score=points) for points, row in page]
        return Found(hits, cursors, cursors[-1] if has_more else None)

    def _list_bodies(self, ids: Sequence[int]) -> dict[int, str]:
        return dict(
            self._connection.execute(
                "SELECT rowid, body FROM words WHERE rowid IN (SELECT value FROM json_each(?))",
                (msgspec.json.encode(ids).decode(),),
            ).fetchall()
        )

    def _hit(self, row: Sequence[Any]) -> Hit:
        return Hit(self._numbers[row[1]], row[2], row[0] // SLOTS)


def score(terms: Sequence[Term], tokens: str) -> float:
    """Return the relevance of a document that has all terms: frequent in a short text is best.

    This is BM25 without the weights of words, which are the same for all documents that have all
    of the words.
    """
    words = tokens.split()
    total = 0.0
    for term in terms:
        last, is_prefix = term.tokens[-1], term.is_prefix
        count = sum(1 for each in words if each == last or (is_prefix and each.startswith(last)))
        total += count / (count + 1.2 * (0.25 + 0.75 * len(words) / 10))
    return total


def _load(connection: sqlite3.Connection) -> State:
    row = connection.execute("SELECT value FROM state").fetchone()
    return State() if row is None else msgspec.json.decode(row[0], type=State)


class _Names:
    """Numbers of chats and users, cached for one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[tuple[str, str], int] = {}

    def find(self, kind: str, name: str) -> int | None:
        if (kind, name) in self._known:
            return self._known[kind, name]
        row = self._connection.execute(
            "SELECT id FROM name WHERE kind = ? AND name = ?", (kind, name)
        ).fetchone()
        if row is None:
            return None
        self._known[kind, name] = row[0]
        return int(row[0])

    def get(self, kind: str, name: str) -> int:
        found = self.find(kind, name)
        if found is None:
            cursor = self._connection.execute(
                "INSERT INTO name (kind, name) VALUES (?, ?)", (kind, name)
            )
            found = int(cursor.lastrowid or 0)
            self._known[kind, name] = found
        return found


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
        raise Unavailable(f"search: more than {SLOTS} messages have the time {document.ts}")
    scope = f"c{chat} u{sender} f" if document.has_file else f"c{chat} u{sender}"
    connection.execute(
        "INSERT OR REPLACE INTO words (rowid, scope, body) VALUES (?, ?, ?)",
        (number, scope, document.tokens),
    )


def _delete(connection: sqlite3.Connection, condition: str, values: Sequence[Any]) -> int:
    chosen = f"SELECT id FROM doc WHERE {condition}"  # noqa: S608
    ids = connection.execute(chosen, values).fetchall()
    connection.executemany("DELETE FROM words WHERE rowid = ?", ids)
    connection.executemany("DELETE FROM doc WHERE id = ?", ids)
    return len(ids)


def _numbers_of(connection: sqlite3.Connection, chats: Collection[str]) -> dict[int, str]:
    rows = connection.execute(
        "SELECT id, name FROM name WHERE kind = 'chat' AND name IN "
        "(SELECT value FROM json_each(?))",
        (msgspec.json.encode(list(chats)).decode(),),
    )
    return dict(rows.fetchall())


def _match_of(connection: sqlite3.Connection, query: Query, numbers: Collection[int]) -> str | None:
    """Return the FTS5 expression; None if it matches nothing. Tokens are quoted."""
    scope: list[str] = []
    if query.sender is not None:
        sender = _Names(connection).find("user", query.sender)
        if sender is None:
            return None
        scope.append(f'"u{sender}"')
    if query.has_file:
        scope.append('"f"')
    if len(numbers) <= SCOPED_CHATS_MAX:
        scope.append("(" + " OR ".join(f'"c{number}"' for number in numbers) + ")")
    parts = [f"scope : ({' AND '.join(scope)})"] if scope else []
    if query.terms:
        terms = (
            '"' + " ".join(term.tokens).replace('"', "") + ('"*' if term.is_prefix else '"')
            for term in query.terms
        )
        parts.append(f"body : ({' AND '.join(terms)})")
    # Without words and with many chats: all documents, by the token that each one has.
    return " AND ".join(parts) if parts else 'scope : "c" *'


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as exc:
        raise Unavailable(f"search: {path}: {exc}") from exc
