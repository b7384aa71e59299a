"""BatchWriteItem and BatchGetItem, with retries for unprocessed items.

DynamoDB may process part of a batch and return the rest. Only the rest is retried, with backoff.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from chatserver.warm.dynamo.client import DynamoClient, Item, Throttled

WRITES_MAX: Final = 25  # AWS: BatchWriteItem takes 25 items, 16 MB in total
READS_MAX: Final = 100  # AWS: BatchGetItem takes 100 keys and returns at most 16 MB


async def put_items(
    client: DynamoClient, table: str, items: Sequence[Item], timeout_s: float | None = None
) -> None:
    """Put at most `WRITES_MAX` items with distinct keys.

    Guarantees:
        All items are stored when this returns; some may have been stored if it raises.

    Raises:
        Unavailable: unprocessed items remain after `timeout_s`.
        CorruptData: DynamoDB rejected an item, and with it the whole batch.
    """
    unprocessed: dict[str, Any] = {table: [{"PutRequest": {"Item": item}} for item in items]}

    async def attempt() -> None:
        nonlocal unprocessed
        response = await client.call_once("batch_write_item", {"RequestItems": unprocessed})
        unprocessed = response.get("UnprocessedItems") or {}
        if unprocessed:
            raise Throttled(
                f"DynamoDB at {client.endpoint}: {len(unprocessed[table])} of {len(items)} items "
                f"of {table} not written: capacity exceeded"
            )

    await client.retry(attempt, timeout_s)


async def get_items(client: DynamoClient, table: str, keys: Sequence[Item]) -> list[Item]:
    """Return the existing items of `keys`, in any order. Strongly consistent.

    Raises:
        Unavailable: unprocessed keys remain after `call_timeout_s`.
    """
    items: list[Item] = []
    for start in range(0, len(keys), READS_MAX):
        items += await _get_batch(client, table, keys[start : start + READS_MAX])
    return items


async def _get_batch(client: DynamoClient, table: str, keys: Sequence[Item]) -> list[Item]:
    items: list[Item] = []
    unprocessed: dict[str, Any] = {table: {"Keys": list(keys), "ConsistentRead": True}}

    async def attempt() -> None:
        nonlocal unprocessed
        response = await client.call_once("batch_get_item", {"RequestItems": unprocessed})
        items.extend(response["Responses"].get(table, []))
        unprocessed = response.get("UnprocessedKeys") or {}
        if unprocessed:
            raise Throttled(
                f"DynamoDB at {client.endpoint}: {len(unprocessed[table]['Keys'])} of {len(keys)} "
                f"items of {table} not read: capacity exceeded"
            )

    await client.retry(attempt)
    return items
