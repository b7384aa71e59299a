"""One page of a Query: bounded, never short while more exists, and where to go on.

DynamoDB counts its limit before it filters and a page may be cut anywhere, so a page of ours may
take several Queries. `Page.next` is there exactly when at least one more item is, or when the page
has done as much work as one may (`read_page`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from chatserver.config import Warm
from chatserver.errors import BadRequest
from chatserver.protocol.frames import PAGE_MAX
from chatserver.warm.client import DynamoClient, Item
from chatserver.warm.tables import Index, Table

T = TypeVar("T")
# A key in plain values: {"chatid": "d-x", "ts": 17}. Whoever hands it to a client must seal it.
Token = Mapping[str, str | int]

# Of the rows that one Query looks at while it passes a run of filtered ones: 1 MB ends it anyway.
EVALUATED_MAX = 4096
# Of the rows that a page looks at, and of those whose items it loads, before it ends short: at most
# some 2 MB of an index and 2,000 items, if a caller asks for what is all but absent.
LOOKED_AT_MAX = 10_000
LOADED_MAX = 2_000
CHUNK_MIN = 100  # rows loaded at once: what one BatchGetItem takes


@dataclasses.dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items, and the token of the page after them."""

    items: list[T]
    next: Token | None


class Chunk(NamedTuple):
    """What one step of a Query found: rows, how many it looked at, and where to go on."""

    rows: list[Item]
    looked_at: int
    after: Token | None


class Rows(Protocol):
    """A Query under way."""

    async def read(self, limit: int) -> Chunk:
        """Return what is next among about `limit` rows; not to be asked again at the end."""

    def token_of(self, row: Item) -> Token:
        """Return the token of the page that begins after `row`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one partition of a table or index, by the range or the prefix of its sort key.

    With neither, the whole partition. Both ends of a range belong to it.
    """

    table: Table
    partition: str
    index: Index | None = None
    between: tuple[int, int] | tuple[str, str] | None = None
    prefix: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes that say where in the span an item stands."""
        keys = (self.index.key.names if self.index else ()) + self.table.key.names
        return tuple(dict.fromkeys(keys))

    def query(self, settings: Warm) -> dict[str, Any]:
        """Return the Query for the span, without limit, filter, direction and start."""
        key = self.index.key if self.index else self.table.key
        condition = "#partition = :partition"
        names = {"#partition": key.partition}
        values = {":partition": {"S": self.partition}}
        if key.sort is not None and self.between is not None:
            condition = "#partition = :partition AND #sort BETWEEN :low AND :high"
            kind = self.table.type_of(key.sort)
            names["#sort"] = key.sort
            values |= {
                ":low": {kind: str(self.between[0])},
                ":high": {kind: str(self.between[1])},
            }
        elif key.sort is not None and self.prefix is not None:
            condition = "#partition = :partition AND begins_with(#sort, :prefix)"
            names["#sort"] = key.sort
            values[":prefix"] = {"S": self.prefix}
        request: dict[str, Any] = {
            "TableName": self.table.name_in(settings),
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        if self.index is not None:
            request["IndexName"] = self.index.name
        return request

    def token_of(self, row: Item) -> Token:
        """Return the token of the page that begins after `row`."""
        return {
            name: int(row[name]["N"]) if self.table.type_of(name) == "N" else row[name]["S"]
            for name in self.names
        }

    def start_of(self, token: Token) -> Item:
        """Return the key to start after.

        Raises:
            BadRequest: the token is not one of this span.
        """
        start: Item = {}
        for name in self.names:
            value = token.get(name)
            kind = self.table.type_of(name)
            if type(value) is not (int if kind == "N" else str):
                raise BadRequest("page token: not one of this query")
            start[name] = {kind: str(value)}
        if len(token) != len(self.names) or not self._holds(token):
            raise BadRequest("page token: not one of this query")
        return start

    def _holds(self, token: Token) -> bool:
        key = self.index.key if self.index else self.table.key
        if token[key.partition] != self.partition:
            return False
        sort = None if key.sort is None else token[key.sort]
        if self.between is not None:
            return self.between[0] <= sort <= self.between[1]  # type: ignore[operator]  # one type, see start_of
        return self.prefix is None or str(sort).startswith(self.prefix)


class PlainRows:
    """The rows of a span as its one partition has them."""

    def __init__(
        self, client: DynamoClient, span: Span, query: Mapping[str, Any], start: Token | None
    ) -> None:
        """Raises BadRequest: the token is of another query."""
        self._client = client
        self._query = query
        self._after = None if start is None else span.start_of(start)
        self._span = span
        self.token_of = span.token_of

    async def read(self, limit: int) -> Chunk:
        """Return what one Query finds."""
        request = {**self._query, "Limit": limit}
        if self._after is not None:
            request["ExclusiveStartKey"] = self._after
        answer = await self._client.call("query", request)
        found: list[Item] = answer["Items"]
        self._after = answer.get("LastEvaluatedKey")
        after = None if self._after is None else self._span.token_of(self._after)
        return Chunk(found, answer.get("ScannedCount", len(found)), after)


async def read_page(
    client: DynamoClient,
    span: Span,
    query: Mapping[str, Any],
    load: Callable[[list[Item]], Awaitable[Sequence[T | None]]],
    *,
    limit: int,
    start: Token | None,
    choose: Callable[[list[Item]], Awaitable[list[Item]]] | None = None,
    source: Rows | None = None,
) -> Page[T]:
    """Return the next `limit` things of `query`, over as many Queries as that takes.

    `source`: what runs the query from `start` on, if not a Query of one partition does.
    `choose` returns those of some rows that are worth loading. `load` makes the things of them, in
    their order, None for a row that stands for nothing.

    Guarantees:
        The page is full while more exists. The one exception is the bound on its work: when
        `LOOKED_AT_MAX` rows were looked at, or `LOADED_MAX` of them loaded, the page ends there,
        short or empty, and `next` goes on behind the last of them. Nothing is left out by that.
        Cost: no row is read twice for a page.

    Raises:
        BadRequest: the limit is out of its bound, or the token is of another query.
        Unavailable: DynamoDB did not answer in `call_timeout_s`, all Queries together.
    """
    check_limit(limit)
    source = source or PlainRows(client, span, query, start)
    rows: list[Item] = []
    things: list[T] = []
    evaluated, looked_at, loaded = limit + 1, 0, 0
    async with client.deadline():
        while True:
            found, count, after = await source.read(min(evaluated, LOOKED_AT_MAX - looked_at))
            looked_at += count
            while found:
                # One more than the page holds: that tells whether there is a next one.
                size = max(limit + 1 - len(things), CHUNK_MIN)
                taken, found = found[:size], found[size:]
                chosen = taken if choose is None else await choose(taken)
                loaded += len(chosen)
                for row, thing in zip(chosen, await load(chosen) if chosen else [], strict=True):
                    if thing is not None:
                        rows.append(row)
                        things.append(thing)
                if len(things) > limit:
                    return Page(things[:limit], source.token_of(rows[limit - 1]))
                if loaded >= LOADED_MAX and (found or after is not None):
                    return Page(things, source.token_of(taken[-1]))
            if after is None:
                return Page(things, None)
            if looked_at >= LOOKED_AT_MAX:
                return Page(things, after)
            evaluated = min(evaluated * 2, EVALUATED_MAX)


def check_limit(limit: int) -> None:
    """Refuse a page size out of its bound.

    Raises:
        BadRequest: it is.
    """
    if not 1 <= limit <= PAGE_MAX:
        raise BadRequest(f"limit: must be 1 to {PAGE_MAX}")
