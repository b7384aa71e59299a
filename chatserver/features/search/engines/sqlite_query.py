"""Queries for the SQLite engine; see `sqlite_fts` for the tables.

Matches are read newest first, in descending order of their rowids. For the order by relevance, the
newest `RANKED_MAX` matches are read and then sorted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from chatserver.features.search.model import Hit, HitCursor, HitPage, IndexQuery
from chatserver.features.search.query import Query, Term

RANKED_MAX: Final = 500  # matches sorted by relevance: the newest ones
SCOPED_CHATS_MAX: Final = 64  # with more chats, the FTS5 query has no chat filter
SCAN_SIZES: Final = (512, 2_048, 8_192)  # matches read per query without a chat filter
KNOWN_CHATS_MAX: Final = 100_000  # maximum chats in a connection's cache of the table `name`
SCORED_AT_ONCE: Final = 32  # texts read into memory at once for the order by relevance
SLOTS: Final = 1024  # maximum number of documents with the same `ts`
Row = tuple[int, int, int]  # rowid, chat number, seq
_ALL: Final = "SELECT id FROM doc WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT ?"
_MATCHING: Final = (
    "SELECT rowid AS id FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ? "
    "ORDER BY rowid DESC LIMIT ?"
)
_IS_CURRENT: Final = "(doc.expires_at = 0 OR doc.expires_at > ?)"


class SqliteSearch:
    """One query. `match` is the FTS5 expression; None matches all documents."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        request: IndexQuery,
        match: str | None,
        numbers: dict[int, str],
    ) -> None:
        query = request.query
        self._connection = connection
        self._budget = request.budget
        self._match = match
        self._numbers = numbers
        self._now_s = request.now_s
        self._low = (query.after_ts or 0) * SLOTS
        self._high = (1 << 62) if query.before_ts is None else query.before_ts * SLOTS
        self._words = query.terms
        self._is_scoped = len(numbers) <= SCOPED_CHATS_MAX
        self._chats = msgspec.json.encode(list(numbers)).decode()

    def _read(self, limit: int, high: int) -> tuple[list[Row], int | None]:
        """Return `(rows, last)`: at most `limit` matches with a rowid below `high`, newest first.

        `last` is the `high` of the next read, or None if there are no more matches.
        """
        if self._is_scoped:
            rows, count, last = self._scan(limit + 1, high)
            if len(rows) > limit:
                return rows[:limit], rows[limit - 1][0]
            return rows, last if count > limit else None
        rows, last = [], high
        for size in SCAN_SIZES:
            hits, count, end = self._scan(size, last)
            rows += hits
            if len(rows) > limit:
                return rows[:limit], rows[limit - 1][0]
            if count < size:
                return rows, None
            last = end
        return rows, last

    def _scan(self, size: int, high: int) -> tuple[list[Row], int, int]:
        """Read the newest `size` matches below rowid `high`; return `(rows, count, last)`.

        `rows` are the matches that are in the searched chats and have not expired. `count` is the
        number of all matches that were read, and `last` is their lowest rowid. SQLite returns the
        rows as one JSON value, so the scan acquires the interpreter lock only once.
        """
        values: list[int | str] = [self._now_s]
        condition = _IS_CURRENT
        if not self._is_scoped:
            condition += " AND doc.chat IN (SELECT value FROM json_each(?))"
            values.append(self._chats)
        statement = _ALL
        if self._match is not None:
            statement = _MATCHING
            values.append(self._match)
        matches, count, last = self._connection.execute(
            "SELECT json_group_array(json_array(doc.id, doc.chat, doc.seq)) "  # noqa: S608  # constants
            f"FILTER (WHERE {condition}), count(*), min(doc.id) "
            f"FROM ({statement}) AS found CROSS JOIN doc ON doc.id = found.id",
            [*values, self._low, high, size],
        ).fetchone()
        rows = sorted(msgspec.json.decode(matches, type=list[Row]), reverse=True)
        return rows, count, last

    def list_newest(self, limit: int, start: HitCursor | None) -> HitPage:
        high = self._high if start is None else min(self._high, start.offset)
        rows, last = self._read(limit, high)
        hits = [self._build_hit(row) for row in rows]
        cursors = [HitCursor(row[0] // SLOTS, offset=row[0]) for row in rows]
        return HitPage(
            hits, cursors, None if last is None else HitCursor(last // SLOTS, offset=last)
        )

    def list_ranked(self, limit: int, start: HitCursor | None) -> HitPage:
        skipped = 0 if start is None else start.offset
        high = self._high if start is None else min(self._high, start.ts * SLOTS)
        rows, _ = self._read(RANKED_MAX, high)
        newest = (rows[0][0] // SLOTS + 1) if rows else 0
        top = newest if start is None else start.ts
        scored: list[tuple[float, Row]] = []
        for first in range(0, len(rows), SCORED_AT_ONCE):
            self._budget.check()
            part = rows[first : first + SCORED_AT_ONCE]
            bodies = self._list_bodies([row[0] for row in part])
            scored += [(score(self._words, bodies[row[0]]), row) for row in part]
        ranked = sorted(scored, key=lambda row: (-row[0], -row[1][0]))
        page = ranked[skipped : skipped + limit]
        cursors = [HitCursor(top, offset=skipped + index + 1) for index in range(len(page))]
        has_more = len(ranked) > skipped + limit
        hits = [self._build_hit(row)._replace(score=points) for points, row in page]
        return HitPage(hits, cursors, cursors[-1] if has_more else None)

    def _list_bodies(self, ids: Sequence[int]) -> dict[int, str]:
        (rows_json,) = self._connection.execute(
            "SELECT json_group_array(json_array(rowid, body)) FROM words "
            "WHERE rowid IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode(ids).decode(),),
        ).fetchone()
        return dict(msgspec.json.decode(rows_json, type=list[tuple[int, str]]))

    def _build_hit(self, row: Row) -> Hit:
        return Hit(self._numbers[row[1]], row[2], row[0] // SLOTS)


def score(terms: Sequence[Term], tokens: str) -> float:
    """Return the relevance of a document that has all terms.

    The score is higher if the terms are frequent and the text is short. It is BM25 without the
    inverse document frequency.
    """
    text = tokens.partition(" c:")[0]
    # Two spaces between words, because `str.count` counts matches that do not overlap.
    words, size, total = f" {text.replace(' ', '  ')} ", text.count(" ") + 1, 0.0
    for term in terms:
        count = words.count(f" {term.tokens[-1]}" + ("" if term.is_prefix else " "))
        total += count / (count + 1.2 * (0.25 + 0.75 * size / 10))
    return total


def find_chat_numbers(
    connection: sqlite3.Connection, chats: Collection[str], numbers: dict[str, int]
) -> dict[int, str]:
    """Return `{number: chat}` for the indexed chats. `numbers` caches the table `name`."""
    missing = [chat for chat in chats if chat not in numbers]
    if missing:
        if len(numbers) > KNOWN_CHATS_MAX:
            numbers.clear()
            missing = list(chats)
        (rows_json,) = connection.execute(
            "SELECT json_group_array(json_array(name, id)) FROM name "
            "WHERE kind = 'chat' AND name IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode(missing).decode(),),
        ).fetchone()
        numbers.update(msgspec.json.decode(rows_json, type=list[tuple[str, int]]))
    return {numbers[chat]: chat for chat in chats if chat in numbers}


def build_scopes(
    connection: sqlite3.Connection, query: Query, numbers: Collection[int]
) -> list[str] | None:
    """Return the FTS5 expressions for the filters; None if no message can match."""
    scopes: list[str] = []
    if query.sender is not None:
        sender = find_number(connection, "user", query.sender)
        if sender is None:
            return None
        scopes.append(f'"u:{sender}"')
    if query.has_file:
        scopes.append('"f:"')
    if len(numbers) <= SCOPED_CHATS_MAX:
        scopes.append("(" + " OR ".join(f'"c:{number}"' for number in numbers) + ")")
    return scopes


def build_terms(query: Query) -> list[str]:
    """Return the FTS5 expressions for the words and phrases."""
    return [
        '"' + " ".join(term.tokens).replace('"', "") + ('"*' if term.is_prefix else '"')
        for term in query.terms
    ]


def find_number(connection: sqlite3.Connection, kind: str, name: str) -> int | None:
    """Return the number that stands for a chat or user; None if it is not in the index."""
    row = connection.execute(
        "SELECT id FROM name WHERE kind = ? AND name = ?", (kind, name)
    ).fetchone()
    return None if row is None else int(row[0])
