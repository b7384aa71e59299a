"""List of the tenants in all tiers.

Sources, cheapest first: tenant records, the bucket's lifecycle rules and prefixes, the owner of the
configured Redis, and DynamoDB items. DynamoDB cannot list a table's partitions, so the items are
read with a Scan. A Scan of `directory` finds every deployment that has ever started; a Scan of all
tables also finds tenants whose `directory` items were deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from chatserver.cold.bucket import list_tenants_with_rules
from chatserver.cold.client import open_s3
from chatserver.cold.tenant_objects import list_prefixes
from chatserver.config import Settings
from chatserver.domain.access.tenants import RESERVED_TENANTS
from chatserver.domain.clock import Clock
from chatserver.errors import TooLarge
from chatserver.hot.redis.tenant_redis import open_tenant_redis
from chatserver.operations.tenants.tenant_stores import Report, get_tenant_settings
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from chatserver.warm.dynamo.tenancy import SEPARATOR
from chatserver.warm.schema.tables import TableSchema
from chatserver.warm.tenant_item_scans import TenantItems
from chatserver.warm.tenant_states import TenantStates

TENANTS_MAX: Final = 10_000


class TenantLine(msgspec.Struct):
    """A tenant, its state since `since_ms`, and the tiers in which it was found."""

    tenant: str
    state: str = "active"
    since_ms: int | None = None
    found_in: list[str] = []


def get_tenant(table: TableSchema, item: dict[str, dict[str, str]]) -> str:
    """Return the tenant of a stored item; empty for the deployment without a tenant."""
    tenant, separator, _ = item[table.key.partition]["S"].partition(SEPARATOR)
    return tenant if separator else ""


@contextlib.asynccontextmanager
async def open_all_items(
    settings: Settings, clock: Clock, units_per_s: float | None
) -> AsyncIterator[TenantItems]:
    """Open the items of all tenants, in the format in which they are stored."""
    shared = get_tenant_settings(settings, "")
    async with open_dynamodb(shared.warm) as dynamodb:
        pace = RateLimiter(units_per_s, clock)
        yield TenantItems(dynamodb.for_feature("operations"), pace)


async def list_tenants(
    settings: Settings,
    *,
    clock: Clock,
    tables: Sequence[TableSchema],
    units_per_s: float | None,
    has_redis: bool,
    report: Report,
) -> list[TenantLine]:
    """Return all tenants, sorted by name. `tables` are the tables to scan."""
    lines: dict[str, TenantLine] = {}

    def add(tenant: str, tier: str) -> TenantLine:
        if tenant not in lines and len(lines) >= TENANTS_MAX:
            raise TooLarge(f"more than {TENANTS_MAX:,} tenants share these stores")
        line = lines.setdefault(tenant, TenantLine(tenant))
        if tier and tier not in line.found_in:
            line.found_in.append(tier)
        return line

    if has_redis:
        async with open_tenant_redis(settings.redis) as redis:
            if owner := (await redis.get_owner()).tenant:
                add(owner, "redis")
    async with open_all_items(settings, clock, units_per_s) as items:
        for table in tables:
            async for page in items.iter_pages(table, is_keys_only=True, is_consistent=False):
                for item in page.items:
                    if tenant := get_tenant(table, item):
                        add(tenant, "dynamodb")
                report(table.name, page.scanned)
    shared = get_tenant_settings(settings, "")
    async with open_s3(shared.cold) as bucket:
        for tenant in await list_tenants_with_rules(bucket):
            add(tenant, "s3")
        after = ""
        while prefixes := await list_prefixes(bucket, after, 1000):
            for prefix in prefixes:
                if prefix not in RESERVED_TENANTS:
                    add(prefix, "s3")
            after = prefixes[-1]
    async with open_dynamodb(shared.warm) as dynamodb:
        records = TenantStates(dynamodb.for_feature("operations"))
        after = ""
        while records_page := await records.list_all(after, 1000):
            for record in records_page:
                line = add(record.tenant, "")
                line.state, line.since_ms = record.state, record.at_ms
            after = records_page[-1].tenant
    return [lines[tenant] for tenant in sorted(lines)]
