"""Typed requests on one table.

`Table` builds requests from conditions, changes and key ranges (`conditions`, `paging.Span`), so
repositories contain no expressions. Methods that end with ``_action`` return an action for
`DynamoClient.transact`.

A key is a tuple of partition and sort key, or an item that contains both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack

from chatserver.warm.dynamo import batches
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.conditions import (
    Attributes,
    Changes,
    Condition,
    Expressions,
    encode_item,
)
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema import tables

Key: TypeAlias = tuple[str, str | int] | Item
_RETURNED: Final = {"old": "ALL_OLD", "new": "ALL_NEW"}


class WriteOptions(TypedDict, total=False):
    """Options of a write.

    If the condition `if_` is not met, the write raises `ConditionFailed`. With `keeps_stored`,
    `ConditionFailed.stored` contains the existing item.
    """

    if_: Condition | None
    keeps_stored: bool


class Selection(TypedDict, total=False):
    """Options of a Query or Scan, except its limits.

    `only` is the attributes to return; the default is all. By default, a Query of a table is
    strongly consistent, and a Scan is not.
    """

    where: Condition | None
    only: Sequence[str]
    is_newest_first: bool
    is_consistent: bool


class ReadOptions(Selection, total=False):
    """Options of a Query or Scan."""

    limit: int | None
    start: Item | None


class Table:
    """Reads and writes items of one table. See `DynamoClient.call` for guarantees and errors."""

    def __init__(self, client: DynamoClient, schema: tables.TableSchema) -> None:
        self.client = client
        self.schema = schema
        self.name = schema.name_in(client.settings)

    # Single items.

    async def find(self, key: Key, *, only: Sequence[str] = ()) -> Item | None:
        """Return an item, or its attributes `only`; None if it does not exist.

        Strongly consistent.
        """
        expressions = Expressions()
        expressions.add_projection(only)
        request = {**self._build(key, expressions, {}), "ConsistentRead": True}
        return (await self.client.call("get_item", request)).get("Item")

    async def get_items(self, keys: Sequence[Key]) -> list[Item]:
        """Return the existing items, in any order. See `batches.get_items`."""
        return await batches.get_items(self.client, self.name, list(map(self.encode_key, keys)))

    async def put(
        self, key: Key, attributes: Attributes | None = None, **options: Unpack[WriteOptions]
    ) -> None:
        """Put an item: `key` (which may be a whole item) with `attributes` that are not None."""
        await self._write("put_item", self.put_action(key, attributes, **options))

    async def update(
        self,
        key: Key,
        changes: Changes,
        returns: Literal["old", "new"] | None = None,
        **options: Unpack[WriteOptions],
    ) -> Item:
        """Update an item, or create it; return the old or new item, by default no attributes."""
        return await self._write(
            "update_item", self.update_action(key, changes, **options), returns
        )

    async def delete(
        self, key: Key, returns: Literal["old"] | None = None, **options: Unpack[WriteOptions]
    ) -> Item:
        """Delete an item if it exists; return the old item, by default no attributes."""
        return await self._write("delete_item", self.delete_action(key, **options), returns)

    async def _write(
        self, operation: str, action: Action, returns: Literal["old", "new"] | None = None
    ) -> Item:
        (request,) = action.values()
        if returns is not None:
            request["ReturnValues"] = _RETURNED[returns]
        return (await self.client.call(operation, request)).get("Attributes") or {}

    # Actions of transactions.

    def put_action(
        self, key: Key, attributes: Attributes | None = None, **options: Unpack[WriteOptions]
    ) -> Action:
        item = self.encode_key(key) | encode_item(attributes or {})
        return {"Put": {"TableName": self.name, "Item": item, **_render(Expressions(), options)}}

    def update_action(self, key: Key, changes: Changes, **options: Unpack[WriteOptions]) -> Action:
        expressions = Expressions()
        expressions.add_update(changes)
        return {"Update": self._build(key, expressions, options)}

    def delete_action(self, key: Key, **options: Unpack[WriteOptions]) -> Action:
        return {"Delete": self._build(key, Expressions(), options)}

    def check_action(self, key: Key, **options: Unpack[WriteOptions]) -> Action:
        return {"ConditionCheck": self._build(key, Expressions(), options)}

    # Queries and scans.

    def build_query(self, span: Span, **options: Unpack[ReadOptions]) -> dict[str, Any]:
        """Return the Query of a key range. Reads of an index are eventually consistent."""
        expressions = Expressions()
        expressions.add_condition("KeyConditionExpression", span.condition)
        request = self._build_read(expressions, options)
        if span.index is None:
            request["ConsistentRead"] = options.get("is_consistent", True)
        else:
            request["IndexName"] = span.index.name
        return request

    async def query(self, span: Span, **options: Unpack[ReadOptions]) -> list[Item]:
        """Return the items of one Query."""
        response = await self.client.call("query", self.build_query(span, **options))
        items: list[Item] = response["Items"]
        return items

    def iter_query(self, span: Span, **options: Unpack[ReadOptions]) -> AsyncIterator[list[Item]]:
        """Yield the pages of a Query; a page may be empty."""
        return self._iter_pages("query", self.build_query(span, **options))

    async def count(self, span: Span, **options: Unpack[ReadOptions]) -> int:
        """Return the number of items in a key range, at most `limit`. Reads all that it counts."""
        count, count_max = 0, options.get("limit")
        if count_max == 0:
            return 0
        request = self.build_query(span, **options) | {"Select": "COUNT"}
        while True:
            response = await self.client.call("query", request)
            count += int(response["Count"])
            last = response.get("LastEvaluatedKey")
            if last is None or (count_max is not None and count >= count_max):
                return count
            request["ExclusiveStartKey"] = last
            if count_max is not None:
                request["Limit"] = count_max - count

    def build_scan(
        self, part: int = 0, parts: int = 1, **options: Unpack[ReadOptions]
    ) -> dict[str, Any]:
        """Return the Scan of part `part` of `parts`. It is eventually consistent by default."""
        request = self._build_read(Expressions(), options)
        request |= {"Segment": part, "TotalSegments": parts}
        request["ConsistentRead"] = options.get("is_consistent", False)
        return request

    def iter_scan(
        self, part: int = 0, parts: int = 1, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[list[Item]]:
        """Yield the pages of a Scan; a page may be empty. See `build_scan`."""
        return self._iter_pages("scan", self.build_scan(part, parts, **options))

    async def _iter_pages(
        self, operation: str, request: dict[str, Any]
    ) -> AsyncIterator[list[Item]]:
        start: Item | None = None
        while True:
            page = request if start is None else request | {"ExclusiveStartKey": start}
            response = await self.client.call(operation, page)
            yield response["Items"]
            if (start := response.get("LastEvaluatedKey")) is None:
                return

    def _build_read(self, expressions: Expressions, options: ReadOptions) -> dict[str, Any]:
        expressions.add_condition("FilterExpression", options.get("where"))
        expressions.add_projection(options.get("only", ()))
        request: dict[str, Any] = {"TableName": self.name, **expressions.build()}
        if (limit := options.get("limit")) is not None:
            request["Limit"] = limit
        if (start := options.get("start")) is not None:
            request["ExclusiveStartKey"] = start
        if options.get("is_newest_first"):
            request["ScanIndexForward"] = False
        return request

    def get_key(self, item: Item) -> Item:
        """Return the key of an item, or of a row of an index."""
        return {name: item[name] for name in self.schema.key.names}

    def encode_key(self, key: Key) -> Item:
        """Return a key in DynamoDB's format."""
        if not isinstance(key, tuple):
            return key
        names = self.schema.key.names
        return {
            name: {self.schema.get_type(name): str(value)}
            for name, value in zip(names, key, strict=True)
        }

    def _build(self, key: Key, expressions: Expressions, options: WriteOptions) -> dict[str, Any]:
        rendered = _render(expressions, options)
        return {"TableName": self.name, "Key": self.encode_key(key), **rendered}


def _render(expressions: Expressions, options: WriteOptions) -> dict[str, Any]:
    expressions.add_condition("ConditionExpression", options.get("if_"))
    request = expressions.build()
    if options.get("keeps_stored"):
        request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return request


async def try_write(write: Awaitable[object]) -> bool:
    """Await a write; return False if its condition is not met and nothing was written."""
    try:
        await write
    except ConditionFailed:
        return False
    return True
