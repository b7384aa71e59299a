"""Reads all pages of a query or scan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

from chatserver.warm.dynamo.client import DynamoClient, Item


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
