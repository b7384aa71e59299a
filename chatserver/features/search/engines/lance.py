"""Distributed engine: LanceDB tables in the S3 bucket, one per index partition.

Any number of API processes read the bucket; the indexer is the only writer. A table has a row per
document, and one row with the indexer state. Queries find new rows immediately, because LanceDB
scans the rows that are not yet in the full-text index. `maintain` adds these rows to the index.

| column                                | index                            |
|---------------------------------------|----------------------------------|
| `id`: ``<chat>/<seq>``                | scalar                           |
| `chat`, `ts`                          | scalar                           |
| `body`: the tokens                    | full text, with positions        |
| `prefixes`: prefixes of the tokens    | full text, for incomplete words  |
| `seq sender has_file expires_at generation state` | none                 |

One commit upserts the documents and the state. Documents are deleted in an earlier commit, so the
state is never newer than the documents. LanceDB returns the most relevant matches; `_list_window`
finds the newest ones.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from typing import Final

import msgspec
from lancedb.query import FullTextQuery

from chatserver.config import Cold
from chatserver.errors import LostRace
from chatserver.features.search.engines.lance_table import (
    LanceRow,
    LanceTable,
    Match,
    is_in,
    match_all,
    match_phrase,
    match_word,
    quote_sql,
)
from chatserver.features.search.model import (
    Document,
    DocumentRef,
    Hit,
    HitCursor,
    HitPage,
    IndexChanges,
    IndexerState,
    IndexQuery,
    Order,
    Stats,
)
from chatserver.features.search.query import Query, Term
from chatserver.features.search.work_budget import WorkBudget
from chatserver.telemetry.failpoints import failpoint

RANKED_MAX: Final = 500  # maximum matches of a search sorted by relevance
MATCHES_MAX: Final = 1_000  # maximum matches per table query
WINDOWS_MAX: Final = 12  # maximum table queries to find the newest matches
PREFIX_CHARS_MAX: Final = 8  # maximum characters of a prefix in a query
STATE_ID: Final = "#state"  # document ids contain no "#"
MAINTENANCE_INTERVAL_S: Final = 60.0
UNINDEXED_ROWS_MAX: Final = 20_000  # after this many changed rows, `maintain` ignores the interval
OLD_VERSIONS_RETENTION: Final = datetime.timedelta(minutes=10)  # for queries in progress


class LanceEngine:
    """An index partition in the S3 bucket."""

    def __init__(self, settings: Cold, number: int) -> None:
        self._table = LanceTable(settings, f"messages-{number}")
        self._changed = 0
        self._maintained_at = float("-inf")

    # state

    def load(self) -> IndexerState:
        """See `Engine`."""
        self._table.create()
        return self._load()

    def _load(self) -> IndexerState:
        rows = self._table.list_rows(f"id = {quote_sql(STATE_ID)}", 1)
        stored = rows[0].state if rows else None
        return IndexerState() if stored is None else msgspec.json.decode(stored, type=IndexerState)

    # changes

    def apply(self, changes: IndexChanges, state: IndexerState) -> None:
        """See `Engine`."""
        self._table.create()
        if self._load().token > state.token:
            raise LostRace("search: another process is writing to the index")
        if changes.removed:
            self._table.delete(is_in("id", map(_build_id, changes.removed)))
            failpoint("search.in_apply")
        rows = [_build_row(document, state.generation) for document in changes.documents.values()]
        rows += self._list_edited(changes.edits)
        rows.append(LanceRow(STATE_ID, state=msgspec.json.encode(state).decode()))
        self._table.upsert(rows)
        self._changed += len(rows) - 1

    def _list_edited(self, edits: dict[DocumentRef, str]) -> list[LanceRow]:
        if not edits:
            return []
        tokens = {_build_id(ref): text for ref, text in edits.items()}
        return [
            msgspec.structs.replace(
                row, body=tokens[row.id], prefixes=_list_prefixes(tokens[row.id])
            )
            for row in self._table.list_rows(is_in("id", tokens), len(tokens))
        ]

    def expire(self, now_s: int) -> int:
        """See `Engine`."""
        return self._table.delete(f"expires_at > 0 AND expires_at <= {now_s}")

    def erase_sender(self, sender: str) -> int:
        """See `Engine`."""
        return self._table.delete(f"sender = {quote_sql(sender)}")

    def drop_older(self, generation: int, limit: int) -> int:
        """See `Engine`. Ignores `limit`: deletes all in one commit."""
        return self._table.delete(f"generation < {generation}")

    def compact(self, *, is_first: bool) -> bool:
        """See `Engine`. Rewrites all rows, rebuilds the indexes and deletes old table versions."""
        self._table.rewrite()
        return True

    def maintain(self) -> None:
        """See `Engine`. Merges small files and adds new rows to the indexes."""
        now = time.monotonic()
        is_due = now - self._maintained_at > MAINTENANCE_INTERVAL_S and self._changed
        if not is_due and self._changed < UNINDEXED_ROWS_MAX:
            return
        self._table.optimize(OLD_VERSIONS_RETENTION)
        self._changed, self._maintained_at = 0, now

    # queries

    def find(self, request: IndexQuery) -> HitPage:
        """See `Engine`."""
        query = request.query
        conditions = [
            is_in("chat", request.chats),
            f"(expires_at = 0 OR expires_at > {request.now_s})",
            f"ts >= {query.after_ts or 0}",
        ]
        if query.sender is not None:
            conditions.append(f"sender = {quote_sql(query.sender)}")
        if query.has_file:
            conditions.append("has_file")
        search = _Search(self._table, query, conditions, request.budget)
        if request.order is Order.RELEVANCE and query.terms:
            return search.list_ranked(request.limit, request.start)
        return search.list_newest(request.limit, request.start)

    def measure(self) -> Stats:
        """See `Engine`."""
        rows, size = self._table.measure()
        return Stats(max(0, rows - 1), size)

    def close(self) -> None:
        """See `Engine`."""
        self._table.close()


class _Search:
    """One query in an index partition."""

    def __init__(
        self, table: LanceTable, query: Query, conditions: Sequence[str], budget: WorkBudget
    ) -> None:
        self._table = table
        self._budget = budget
        self._conditions = conditions
        self._words = _build_full_text_query(query.terms)
        self._high = query.before_ts if query.before_ts is not None else (1 << 62)

    def _read(self, low: int, high: int, limit: int = MATCHES_MAX) -> list[Match]:
        """Return at most `limit` + 1 matches with `low <= ts < high`, in any order."""
        condition = " AND ".join([*self._conditions, f"ts >= {low} AND ts < {high}"])
        self._budget.check()
        return self._table.find(self._words, condition, limit + 1, self._budget.left_s)

    def _list_window(self, high: int, limit: int) -> tuple[list[Match], bool]:
        """Return all matches in a time range up to `high`, and True if there are no older ones.

        If a range has more than `MATCHES_MAX` matches, the query returns only some of them, which
        need not be the newest. The range is then shortened to begin near the newest of these, so
        it still contains at least `limit` matches.
        """
        low, hits = 0, self._read(0, high)
        for _ in range(WINDOWS_MAX):
            if len(hits) <= MATCHES_MAX:
                break
            newest = sorted((hit.ts for hit in hits), reverse=True)
            low = newest[min(2 * limit, len(newest) - 1)]
            hits = self._read(low, high)
        return hits, low == 0

    def list_newest(self, limit: int, start: HitCursor | None) -> HitPage:
        high = self._high if start is None else min(self._high, start.ts + 1)
        skipped = 0 if start is None else start.offset
        hits, is_all = self._list_window(high, limit + skipped)
        hits.sort(key=lambda hit: (-hit.ts, hit.id))
        page = hits[skipped : skipped + limit]
        cursors: list[HitCursor] = []
        for index, match in enumerate(page, skipped):
            same = sum(1 for hit in hits[: index + 1] if hit.ts == match.ts)
            cursors.append(HitCursor(match.ts, same))
        has_more = bool(page) and (not is_all or len(hits) > skipped + limit)
        return HitPage(
            [_build_hit(hit) for hit in page], cursors, cursors[-1] if has_more else None
        )

    def list_ranked(self, limit: int, start: HitCursor | None) -> HitPage:
        skipped = 0 if start is None else start.offset
        high = self._high if start is None else min(self._high, start.ts)
        ranked = self._read(0, high, RANKED_MAX)[:RANKED_MAX]
        top = max((match.ts for match in ranked), default=0) + 1 if start is None else start.ts
        ranked.sort(key=lambda match: (-match.score, -match.ts, match.id))
        page = ranked[skipped : skipped + limit]
        cursors = [HitCursor(top, skipped + index + 1) for index in range(len(page))]
        has_more = len(ranked) > skipped + limit
        hits = [_build_hit(match)._replace(score=match.score) for match in page]
        return HitPage(hits, cursors, cursors[-1] if has_more else None)


def _build_full_text_query(terms: Sequence[Term]) -> FullTextQuery | None:
    parts: list[FullTextQuery] = []
    for term in terms:
        whole = term.tokens[:-1] if term.is_prefix else term.tokens
        if len(whole) == 1:
            parts.append(match_word(whole[0], "body"))
        elif whole:
            parts.append(match_phrase(" ".join(whole), "body"))
        if term.is_prefix:
            parts.append(match_word(term.tokens[-1][:PREFIX_CHARS_MAX], "prefixes"))
    return match_all(parts)


def _build_hit(match: Match) -> Hit:
    return Hit(match.chat, match.seq, match.ts)


def _build_row(document: Document, generation: int) -> LanceRow:
    return LanceRow(
        id=_build_id(DocumentRef(document.chat, document.seq)),
        chat=document.chat,
        seq=document.seq,
        ts=document.ts,
        sender=document.sender,
        has_file=document.has_file,
        expires_at=document.expires_at,
        generation=generation,
        body=document.tokens,
        prefixes=_list_prefixes(document.tokens),
    )


def _list_prefixes(tokens: str) -> str:
    prefixes = {
        word[:size]
        for word in set(tokens.split())
        for size in range(1, min(len(word), PREFIX_CHARS_MAX) + 1)
    }
    return " ".join(sorted(prefixes))


def _build_id(ref: DocumentRef) -> str:
    return f"{ref.chat}/{ref.seq}"
