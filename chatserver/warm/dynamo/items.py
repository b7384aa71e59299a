"""Reads one item or all pages of a query or scan, and writes conditionally."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item


async def find_item(client: DynamoClient, table: str, key: Item) -> Item | None:
    """Return the item with this key, or None. Strongly consistent."""
    request = {"TableName": table, "Key": key, "ConsistentRead": True}
    return (await client.call("get_item", request)).get("Item")


async def iter_pages(
    client: DynamoClient, operation: Literal["query", "scan"], request: dict[str, Any]
) -> AsyncIterator[list[Item]]:
    """Yield the items of each page as a list, which may be empty."""
    start: dict[str, Any] = {}
    while True:
        response = await client.call(operation, {**request, **start})
        yield response["Items"]
        if (last := response.get("LastEvaluatedKey")) is None:
            return
        start = {"ExclusiveStartKey": last}


async def write_conditionally(
    client: DynamoClient, operation: str, request: dict[str, Any]
) -> bool:
    """Call a write operation; return False if its condition is not met and nothing was written."""
    try:
        await client.call(operation, request)
    except ConditionFailed:
        return False
    return True
