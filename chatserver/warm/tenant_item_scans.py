"""Scans and batch writes of all stored items of one tenant, or of all tenants.

There is no reliable list of a tenant's partition keys, so these operations scan the tables. A scan
costs a read unit per 8 KB of the whole table, including the items of other tenants. A consistent
scan costs twice as much.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from chatserver.errors import DYNAMODB_DOWN, Unavailable
from chatserver.warm.dynamo.batches import WRITES_MAX
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema import tables
from chatserver.warm.schema.active_version import SCHEMA_KEY, build_key
from chatserver.warm.schema.directory_attributes import SchemaField
from chatserver.warm.schema.tables import DIRECTORY, Index

SCAN_ITEMS_MAX: Final = 10_000  # maximum items per page; a page also ends at 1 MB
BATCHES_AT_ONCE: Final = 16
INDEX_ROW_BYTES: Final = 100  # storage overhead that AWS adds to each index entry
PAGE_TIMEOUT_S: Final = 60.0  # timeout of a batch, including retries when capacity is exceeded
BATCH_BYTES_MAX: Final = 2_000_000  # AWS accepts 16 MB per batch, other servers less


class ScanPage(NamedTuple):
    """The items of a page, how many items were read for it, and the start key of the next page."""

    items: list[Item]
    scanned: int
    next: Item | None


class TenantItems:
    """Scans and batch writes for the tenant in the settings; without a tenant, for all items."""

    def __init__(self, client: DynamoClient, pace: RateLimiter) -> None:
        self._client = client
        self._pace = pace
        self.units = 0.0

    async def iter_pages(
        self,
        table: tables.TableSchema,
        *,
        start: Item | None = None,
        is_keys_only: bool = False,
        is_consistent: bool = True,
    ) -> AsyncIterator[ScanPage]:
        """Yield all items of the table in pages. At most 1 MB is read for each page."""
        stored, only = Table(self._client, table), table.key.names if is_keys_only else ()
        while True:
            request = stored.build_scan(
                only=only, limit=SCAN_ITEMS_MAX, start=start, is_consistent=is_consistent
            )
            request["ReturnConsumedCapacity"] = "TOTAL"
            await self._pace.acquire(0.0)
            response = await self._client.call("scan", request)
            self._record_units(response)
            start = response.get("LastEvaluatedKey")
            yield ScanPage(response["Items"], response["ScannedCount"], start)
            if start is None:
                return

    async def delete(self, table: tables.TableSchema, items: Sequence[Item]) -> int:
        """Delete items by their keys, and return how many. Idempotent."""
        keys = [{name: item[name] for name in table.key.names} for item in items]
        await self._write(table, [{"DeleteRequest": {"Key": key}} for key in keys])
        return len(keys)

    async def put(self, table: tables.TableSchema, items: Sequence[Item]) -> int:
        """Put items, and return how many. Idempotent."""
        await self._write(table, [{"PutRequest": {"Item": item}} for item in items])
        return len(items)

    async def put_block(self, reason: str) -> None:
        """Block the tenant: replace its schema version item with one that has only the `reason`."""
        directory = Table(self._client, DIRECTORY)
        await directory.put(build_key(SCHEMA_KEY), {SchemaField.BLOCKED: reason})

    async def _write(self, table: tables.TableSchema, writes: Sequence[dict[str, Any]]) -> None:
        batches = _split(writes)
        for start in range(0, len(batches), BATCHES_AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for batch in batches[start : start + BATCHES_AT_ONCE]:
                    group.create_task(self._write_batch(table, batch))

    async def _write_batch(self, table: tables.TableSchema, writes: list[dict[str, Any]]) -> None:
        name = table.name_in(self._client.settings)
        unprocessed: dict[str, Any] = {name: writes}

        async def attempt() -> None:
            nonlocal unprocessed
            await self._pace.acquire(0.0)
            response = await self._client.call_once(
                "batch_write_item", {"RequestItems": unprocessed}
            )
            self._record_units(response)
            unprocessed = response.get("UnprocessedItems") or {}
            if unprocessed:
                raise Unavailable(
                    f"DynamoDB at {self._client.endpoint}: {len(unprocessed[name])} of "
                    f"{len(writes)} writes to {name} not done: capacity exceeded",
                    public=DYNAMODB_DOWN,
                )

        await self._client.retry(attempt, PAGE_TIMEOUT_S)

    def _record_units(self, response: dict[str, Any]) -> None:
        consumed = response.get("ConsumedCapacity", [])
        listed = consumed if isinstance(consumed, list) else [consumed]
        units = sum(usage["CapacityUnits"] for usage in listed)
        self.units += units
        self._pace.adjust(units)


def _split(writes: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Split `writes` into batches that are limited in length and size."""
    batches: list[list[dict[str, Any]]] = []
    size = 0
    for write in writes:
        ((_, operation),) = write.items()
        bytes_count = compute_item_bytes(operation.get("Item") or operation["Key"])
        if not batches or len(batches[-1]) == WRITES_MAX or size + bytes_count > BATCH_BYTES_MAX:
            batches.append([])
            size = 0
        batches[-1].append(write)
        size += bytes_count
    return batches


def is_block(table: tables.TableSchema, item: Item) -> bool:
    """Return whether an item only blocks a deleted tenant. Its keys have no tenant prefix."""
    if table is not DIRECTORY or any(item[name]["S"] != SCHEMA_KEY for name in table.key.names):
        return False
    return item.keys() <= {*table.key.names, SchemaField.BLOCKED}


def compute_item_bytes(item: Item) -> int:
    """Return an item's size as DynamoDB counts it for storage, without the overhead of 100 bytes.

    Names and strings count as their UTF-8 bytes, numbers as about half a byte per digit.
    """
    return sum(len(name.encode()) + _compute_value_bytes(value) for name, value in item.items())


def _compute_value_bytes(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(str(content).encode())
        case "N":
            digits = str(content).strip("-").replace(".", "")
            return len(digits) // 2 + 1 + str(content).startswith("-")
        case "B":
            return len(content) if isinstance(content, bytes) else len(str(content)) * 3 // 4
        case "SS":
            return sum(len(element.encode()) for element in content)
        case "NS":
            return sum(_compute_value_bytes({"N": element}) for element in content)
        case "L":
            return 3 + sum(1 + _compute_value_bytes(element) for element in content)
        case "M":
            return 3 + sum(
                1 + len(n.encode()) + _compute_value_bytes(v) for n, v in content.items()
            )
        case _:
            return 1


def index_bytes(table: tables.TableSchema, index: Index, item: Item) -> int:
    """Return the size of an item's index entry, including overhead; 0 if it has no entry."""
    if any(name not in item for name in index.key.names):
        return 0
    names = {*index.key.names, *table.key.names, *index.includes}
    entry = {name: item[name] for name in names if name in item}
    return INDEX_ROW_BYTES + compute_item_bytes(entry)
