"""Cost estimates of migrations, from table statistics and a sample of items.

DynamoDB's statistics (items, bytes) are up to six hours old. The sample consists of `SAMPLE_ITEMS`
items from each of `SAMPLE_SEGMENTS` parts of the table. It yields the item size and the fraction of
items to repair. For a table smaller than the sample, the estimate is exact.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from typing import Final

from chatserver.config import Warm
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.schema.migrations.migration import Migration
from chatserver.warm.schema.migrations.online_changes import describe_table
from chatserver.warm.tenant_item_scans import compute_item_bytes

SAMPLE_SEGMENTS: Final = 32
SAMPLE_ITEMS: Final = 32
WRITE_UNIT_BYTES: Final = 1024
READ_UNIT_BYTES: Final = 4096
INDEX_WRITE_UNITS: Final = 1.0  # index entries contain little more than keys: less than 1 KB


@dataclasses.dataclass(frozen=True, slots=True)
class MigrationEstimate:
    """Approximate cost of a migration. `share` is the fraction of items to be written, 0 to 1."""

    migration: Migration
    items: int
    bytes: int
    sampled: int
    is_exact: bool
    share: float
    read_units: float
    write_units: float


async def estimate(
    client: DynamoClient, settings: Warm, migrations: Sequence[Migration]
) -> list[MigrationEstimate]:
    """Estimate the cost of each migration.

    Guarantees:
        Cost: one DescribeTable per migration. For a migration that scans a table, also 32 reads of
        32 items.
    """
    estimates: list[MigrationEstimate] = []
    repairs = set()
    for migration in migrations:
        result = await _estimate(client, settings, migration)
        if migration.repair in repairs:
            # An earlier migration in this list makes the same repair, so no item will be left to
            # repair.
            result = dataclasses.replace(result, share=0.0, write_units=0.0)
        if migration.repair is not None:
            repairs.add(migration.repair)
        estimates.append(result)
    return estimates


async def _estimate(
    client: DynamoClient, settings: Warm, migration: Migration
) -> MigrationEstimate:
    name = migration.table.name_in(settings)
    description = await describe_table(client, name)
    items, size = int(description.get("ItemCount", 0)), int(description.get("TableSizeBytes", 0))
    if migration.repair is None:
        return MigrationEstimate(
            migration=migration,
            items=items,
            bytes=size,
            sampled=0,
            is_exact=False,
            share=0.0,
            read_units=0.0,
            write_units=0.0,
        )
    pages = await asyncio.gather(*(_sample(client, name, n) for n in range(SAMPLE_SEGMENTS)))
    sample = [item for page, _ in pages for item in page]
    is_exact = all(is_whole for _, is_whole in pages)
    sizes = [compute_item_bytes(item) for item in sample]
    missing = [bytes_ for item, bytes_ in zip(sample, sizes, strict=True) if migration.repair(item)]
    if is_exact:
        items, size = len(sample), sum(sizes)
    else:
        items = max(items, len(sample))
        size = max(size, items * sum(sizes) // max(1, len(sizes)))
    share = len(missing) / len(sample) if sample else 0.0
    entry_units = [math.ceil(bytes_ / WRITE_UNIT_BYTES) + INDEX_WRITE_UNITS for bytes_ in missing]
    average = sum(entry_units) / len(entry_units) if entry_units else 0.0
    return MigrationEstimate(
        migration=migration,
        items=items,
        bytes=size,
        sampled=len(sample),
        is_exact=is_exact,
        share=share,
        read_units=float(math.ceil(size / READ_UNIT_BYTES)),
        write_units=items * share * average,
    )


async def _sample(client: DynamoClient, name: str, segment: int) -> tuple[list[Item], bool]:
    """Return the first items of a scan segment, and whether the segment has no more items."""
    request = {
        "TableName": name,
        "Segment": segment,
        "TotalSegments": SAMPLE_SEGMENTS,
        "Limit": SAMPLE_ITEMS,
    }
    response = await client.call("scan", request)
    return response["Items"], "LastEvaluatedKey" not in response
