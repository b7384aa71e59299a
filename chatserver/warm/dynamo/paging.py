"""Query pagination: bounded pages that are full while more items exist.

DynamoDB applies its limit before the filter and may end a page anywhere, so one `QueryPage` may
take several Queries. `QueryPage.next` is set if at least one more item exists, or if the page
reached its work limit (`read_page`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from chatserver.errors import BadRequest
from chatserver.protocol.frames import PAGE_MAX
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr, Condition
from chatserver.warm.schema.tables import Index, TableSchema

T = TypeVar("T")
# A key as plain values: {"chatid": "d-x", "ts": 17}. Sign or encrypt it before clients get it.
Token = Mapping[str, str | int]

# Maximum `Limit` of one Query when most rows are filtered out; a Query ends after 1 MB in any case.
EVALUATED_MAX = 4096
# Limits of the work for a page: rows evaluated, and rows whose items are loaded. A page with hardly
# any matches reads at most about 2 MB of an index and 2,000 items.
SCANNED_MAX = 10_000
LOADED_MAX = 2_000
CHUNK_MIN = 100  # load the items of at least this many rows at a time: one BatchGetItem


@dataclasses.dataclass(frozen=True, slots=True)
class QueryPage(Generic[T]):
    """A page of items, and the token for the next page."""

    items: list[T]
    next: Token | None


class RowChunk(NamedTuple):
    """Rows, the number evaluated, and the token for the next page."""

    rows: list[Item]
    scanned: int
    after: Token | None


class RowSource(Protocol):
    """A Query in progress."""

    async def read(self, limit: int) -> RowChunk:
        """Evaluate about `limit` rows; return the matches. `RowChunk.after` is None at the end."""

    def build_token(self, row: Item) -> Token:
        """Return the token for the page that begins after `row`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """Key range in one partition of a table or index: bounds or a prefix of the sort key.

    Without bounds or a prefix, the range is the whole partition. The bounds `between` are
    inclusive, and the upper bound `before` is exclusive.
    """

    table: TableSchema
    partition: str
    index: Index | None = None
    between: tuple[int, int] | tuple[str, str] | None = None
    prefix: str | None = None
    before: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The key attributes that identify an item's position in the key range."""
        keys = (self.index.key.names if self.index else ()) + self.table.key.names
        return tuple(dict.fromkeys(keys))

    @property
    def condition(self) -> Condition:
        """The key condition of a Query."""
        key = self.index.key if self.index else self.table.key
        condition = Attr(key.partition) == self.partition
        if key.sort is None:
            return condition
        if self.between is not None:
            return condition & Attr(key.sort).between(*self.between)
        if self.prefix is not None:
            return condition & Attr(key.sort).begins_with(self.prefix)
        if self.before is not None:
            return condition & (Attr(key.sort) < self.before)
        return condition

    def build_token(self, row: Item) -> Token:
        """Return the token for the page that begins after `row`."""
        return {
            name: int(row[name]["N"]) if self.table.get_type(name) == "N" else row[name]["S"]
            for name in self.names
        }

    def build_start_key(self, token: Token) -> Item:
        """Return the ExclusiveStartKey for a token.

        Raises:
            BadRequest: the token does not belong to this key range.
        """
        start: Item = {}
        for name in self.names:
            value = token.get(name)
            kind = self.table.get_type(name)
            if type(value) is not (int if kind == "N" else str):
                raise BadRequest("page token: belongs to another query")
            start[name] = {kind: str(value)}
        if len(token) != len(self.names) or not self._contains(token):
            raise BadRequest("page token: belongs to another query")
        return start

    def _contains(self, token: Token) -> bool:
        key = self.index.key if self.index else self.table.key
        if token[key.partition] != self.partition:
            return False
        sort = None if key.sort is None else token[key.sort]
        if self.between is not None:
            return self.between[0] <= sort <= self.between[1]  # type: ignore[operator]  # one type, see build_start_key
        if self.before is not None:
            return str(sort) < self.before
        return self.prefix is None or str(sort).startswith(self.prefix)


class PartitionRows:
    """Rows of a key range in a single partition."""

    def __init__(
        self, client: DynamoClient, span: Span, query: Mapping[str, Any], start: Token | None
    ) -> None:
        """Start a Query. Raises BadRequest if the token belongs to another query."""
        self._client = client
        self._query = query
        self._after = None if start is None else span.build_start_key(start)
        self._span = span
        self.build_token = span.build_token

    async def read(self, limit: int) -> RowChunk:
        """Return the rows of one Query."""
        request = {**self._query, "Limit": limit}
        if self._after is not None:
            request["ExclusiveStartKey"] = self._after
        response = await self._client.call("query", request)
        items: list[Item] = response["Items"]
        self._after = response.get("LastEvaluatedKey")
        after = None if self._after is None else self._span.build_token(self._after)
        return RowChunk(items, response.get("ScannedCount", len(items)), after)


async def read_page(
    client: DynamoClient,
    span: Span,
    query: Mapping[str, Any],
    load: Callable[[list[Item]], Awaitable[Sequence[T | None]]],
    *,
    limit: int,
    start: Token | None,
    choose: Callable[[list[Item]], Awaitable[list[Item]]] | None = None,
    source: RowSource | None = None,
) -> QueryPage[T]:
    """Return the next `limit` results of `query`, with as many Queries as needed.

    `source` runs the query from `start` on; the default is a Query on one partition. `choose`
    returns the rows that are worth loading. `load` converts rows to results in the same order, with
    None for a row without a result.

    Guarantees:
        If more results exist, the page is full, with one exception: after evaluating
        `SCANNED_MAX` rows or loading `LOADED_MAX` rows, the page ends early, possibly empty, and
        `next` continues after the last row. No result is skipped.
        Cost: no row is read twice for a page.

    Raises:
        BadRequest: the limit is out of range, or the token belongs to another query.
        Unavailable: DynamoDB did not respond, or all calls together exceeded `call_timeout_s`.
    """
    check_limit(limit)
    source = source or PartitionRows(client, span, query, start)
    rows: list[Item] = []
    things: list[T] = []
    evaluated, scanned, loaded = limit + 1, 0, 0
    async with client.deadline():
        while True:
            page_rows, count, after = await source.read(min(evaluated, SCANNED_MAX - scanned))
            scanned += count
            while page_rows:
                # Load one result more than the page size, to detect whether there is a next page.
                size = max(limit + 1 - len(things), CHUNK_MIN)
                batch, page_rows = page_rows[:size], page_rows[size:]
                selected = batch if choose is None else await choose(batch)
                loaded += len(selected)
                for row, thing in zip(
                    selected, await load(selected) if selected else [], strict=True
                ):
                    if thing is not None:
                        rows.append(row)
                        things.append(thing)
                if len(things) > limit:
                    return QueryPage(things[:limit], source.build_token(rows[limit - 1]))
                if loaded >= LOADED_MAX and (page_rows or after is not None):
                    return QueryPage(things, source.build_token(batch[-1]))
            if after is None:
                return QueryPage(things, None)
            if scanned >= SCANNED_MAX:
                return QueryPage(things, after)
            evaluated = min(evaluated * 2, EVALUATED_MAX)


def check_limit(limit: int) -> None:
    """Check that a page size is in range.

    Raises:
        BadRequest: the size is out of range.
    """
    if not 1 <= limit <= PAGE_MAX:
        raise BadRequest(f"limit: must be 1 to {PAGE_MAX}")
