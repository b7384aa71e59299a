"""Items, bytes and monthly cost of each tenant, by tier.

DynamoDB: a Scan of each table measures all tenants. Sizes are the billed sizes: each item and index
entry has 100 bytes of overhead. S3: a listing. Redis: the memory of the whole server, because a
server holds the data of only one tenant.
"""

from __future__ import annotations

from typing import Final

import msgspec

from chatserver.cold.client import open_s3
from chatserver.cold.tenant_objects import TenantObjects
from chatserver.config import Settings
from chatserver.domain.access.tenants import RESERVED_TENANTS
from chatserver.domain.clock import Clock
from chatserver.hot.redis.tenant_redis import open_tenant_redis
from chatserver.operations.cost.prices import GB, HOURS_PER_MONTH, Prices
from chatserver.operations.tenants.tenant_list import get_tenant, open_all_items
from chatserver.operations.tenants.tenant_stores import Report, get_tenant_settings
from chatserver.warm.schema.tables import TABLES
from chatserver.warm.tenant_item_scans import compute_item_bytes, index_bytes

ITEM_OVERHEAD_BYTES: Final = 100  # AWS: storage overhead of each item


class PartSize(msgspec.Struct):
    """Size of a tenant's data in one table, index or prefix. `items`: items, objects or keys."""

    tier: str
    part: str
    items: int = 0
    bytes: int = 0
    usd_per_month: float = 0.0


class TenantSize(msgspec.Struct):
    """Size of a tenant's data in all tiers; the deployment without a tenant has an empty name."""

    tenant: str
    parts: list[PartSize]
    items: int
    bytes: int
    usd_per_month: float


class _Sizes:
    """Sizes by tenant, tier and part (table, index or prefix)."""

    def __init__(self, only: str | None) -> None:
        self._only = only
        self._parts: dict[tuple[str, str, str], PartSize] = {}

    def add(self, tenant: str, tier: str, part: str, items: int, size: int) -> None:
        if self._only not in (None, tenant):
            return
        part_size = self._parts.setdefault((tenant, tier, part), PartSize(tier, part))
        part_size.items += items
        part_size.bytes += size

    def build(self, prices: Prices) -> list[TenantSize]:
        per_gb = {
            "dynamodb": prices.dynamodb.storage_per_gb_month_usd,
            "s3": prices.s3.storage_per_gb_month_usd,
            "redis": prices.redis.memory_per_gb_hour_usd * HOURS_PER_MONTH,
        }
        tenants: dict[str, list[PartSize]] = {}
        for (tenant, tier, _), part_size in sorted(self._parts.items()):
            part_size.usd_per_month = part_size.bytes / GB * per_gb[tier]
            tenants.setdefault(tenant, []).append(part_size)
        return [
            TenantSize(
                tenant,
                parts,
                sum(part.items for part in parts if "/" not in part.part),
                sum(part.bytes for part in parts),
                sum(part.usd_per_month for part in parts),
            )
            for tenant, parts in tenants.items()
        ]


async def measure_tenants(
    settings: Settings,
    *,
    clock: Clock,
    prices: Prices,
    only: str | None,
    units_per_s: float | None,
    has_redis: bool,
    report: Report,
) -> list[TenantSize]:
    """Measure all tenants, or only one. `report` receives the counts since its last call."""
    sizes = _Sizes(only)
    if has_redis:
        async with open_tenant_redis(settings.redis) as redis:
            owner, size = await redis.get_owner(), await redis.measure()
        sizes.add(owner.tenant or "", "redis", "memory", size.keys, size.bytes)
    async with open_all_items(settings, clock, units_per_s) as items:
        for table in TABLES:
            async for page in items.iter_pages(table, is_consistent=False):
                for item in page.items:
                    tenant = get_tenant(table, item)
                    stored = compute_item_bytes(item) + ITEM_OVERHEAD_BYTES
                    sizes.add(tenant, "dynamodb", table.name, 1, stored)
                    for index in table.indexes:
                        if entry := index_bytes(table, index, item):
                            name = f"{table.name}/{index.name}"
                            sizes.add(tenant, "dynamodb", name, 1, entry)
                report(f"dynamodb:{table.name}", page.scanned)
    # A listing costs one request per 1,000 objects, so if only one tenant is measured (`only`),
    # list only that tenant's objects.
    async with open_s3(get_tenant_settings(settings, only or "").cold) as bucket:
        async for objects in TenantObjects(bucket).iter_pages():
            for s3_object in objects:
                tenant, key = (only, s3_object.key) if only else split_key(s3_object.key)
                sizes.add(tenant, "s3", key.partition("/")[0], 1, s3_object.bytes)
            report("s3", len(objects))
    return sizes.build(prices)


def split_key(key: str) -> tuple[str, str]:
    """Return the tenant of a stored object key, and the key without the tenant."""
    first, _, suffix = key.partition("/")
    return ("", key) if first in RESERVED_TENANTS else (first, suffix)
