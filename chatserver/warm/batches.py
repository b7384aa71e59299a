"""Many items in one call: BatchWriteItem and BatchGetItem, and what they leave undone.

DynamoDB may do a part of a batch and hand back the rest. The rest alone is tried again, with the
backoff that a failed call gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from chatserver.errors import Unavailable
from chatserver.warm.client import DynamoClient, Item

WRITES_MAX: Final = 25  # AWS: BatchWriteItem takes 25 items, 16 MB in all
READS_MAX: Final = 100  # AWS: BatchGetItem takes 100 keys and returns at most 16 MB


async def put_items(
    client: DynamoClient, table: str, items: Sequence[Item], timeout_s: float | None = None
) -> None:
    """Put at most `WRITES_MAX` items, no two of one key.

    Guarantees:
        All items are stored when it returns; some of them may be when it raises.

    Raises:
        Unavailable: items are left after `attempts_max` tries or `timeout_s`.
        CorruptData: DynamoDB refuses one of the items, and with it all.
    """
    left: dict[str, Any] = {table: [{"PutRequest": {"Item": item}} for item in items]}

    async def attempt() -> None:
        nonlocal left
        answer = await client.call_once("batch_write_item", {"RequestItems": left})
        left = answer.get("UnprocessedItems") or {}
        if left:
            raise Unavailable(
                f"DynamoDB at {client.endpoint}: {len(left[table])} of {len(items)} items of "
                f"{table} not written: over its capacity"
            )

    await client.retry(attempt, timeout_s)


async def get_items(client: DynamoClient, table: str, keys: Sequence[Item]) -> list[Item]:
    """Return the items that exist of `keys`, in no order. Consistent: what was stored is seen.

    Raises:
        Unavailable: keys are left after `attempts_max` tries or `call_timeout_s`.
    """
    found: list[Item] = []
    for at in range(0, len(keys), READS_MAX):
        found += await _get_batch(client, table, keys[at : at + READS_MAX])
    return found


async def _get_batch(client: DynamoClient, table: str, keys: Sequence[Item]) -> list[Item]:
    found: list[Item] = []
    left: dict[str, Any] = {table: {"Keys": list(keys), "ConsistentRead": True}}

    async def attempt() -> None:
        nonlocal left
        answer = await client.call_once("batch_get_item", {"RequestItems": left})
        found.extend(answer["Responses"].get(table, []))
        left = answer.get("UnprocessedKeys") or {}
        if left:
            raise Unavailable(
                f"DynamoDB at {client.endpoint}: {len(left[table]['Keys'])} of {len(keys)} items "
                f"of {table} not read: over its capacity"
            )

    await client.retry(attempt)
    return found
