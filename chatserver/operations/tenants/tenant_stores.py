"""The stores of one tenant: Redis, the DynamoDB tables, the bucket, and features' own stores."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import attrs
import msgspec

from chatserver.cold.bucket import find_rules_of_tenant, remove_rules_of_tenant
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.cold.tenant_objects import TenantObjects
from chatserver.config import Encryption, Settings
from chatserver.domain.access.tenants import RemainingData, TenantStore
from chatserver.domain.clock import Clock
from chatserver.hot.redis.tenant_redis import TenantRedis, open_tenant_redis
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from chatserver.warm.schema.active_version import SchemaVersions
from chatserver.warm.schema.tables import TABLES, TableSchema
from chatserver.warm.tenant_item_scans import TenantItems, is_block
from chatserver.warm.tenant_states import State, TenantState, TenantStates

OpenStore = Callable[[Settings, str], AbstractAsyncContextManager[TenantStore]]

# Called with a store and the number of items since the last call, or with a message and 0.
Report = Callable[[str, int], None]

TABLE_ITEMS_MAX: Final = 500  # number of items deleted between two progress reports


def get_tenant_settings(settings: Settings, tenant: str) -> Settings:
    """Return the settings for `tenant`; if it is empty, for the deployment without a tenant.

    Items and objects are read and written as they are stored: a tenant's encrypted values stay
    encrypted, and its wrapped data keys are ordinary items.
    """
    return settings.model_copy(
        update={
            "redis": settings.redis.for_tenant(tenant),
            "warm": settings.warm.model_copy(update={"tenant": tenant}).with_encryption(
                Encryption()
            ),
            "cold": settings.cold.for_tenant(tenant),
        }
    )


class OpenTenant(msgspec.Struct, frozen=True):
    """A tenant and its stores. `redis` is None if the operator declared it lost."""

    tenant: str
    settings: Settings
    clock: Clock
    redis: TenantRedis | None
    items: TenantItems
    objects: TenantObjects
    bucket: ObjectStore
    schema: SchemaVersions
    records: TenantStates
    features: Sequence[TenantStore]
    units_per_s: float | None = None

    def list_stores(self) -> list[TenantStore]:
        """Return all stores in the order of deletion.

        Redis is first: it may have messages that no other store has.
        """
        stores: list[TenantStore] = []
        if self.redis is not None:
            stores.append(RedisStore(self.redis))
        stores += [TableStore(self.items, table) for table in TABLES]
        stores += [ObjectsStore(self.objects), RulesStore(self.bucket, self.settings)]
        return [*stores, *self.features]

    async def record(
        self, state: State, job: str = "", receipt: str = "", progress: str = "{}"
    ) -> TenantState:
        """Replace the tenant's record, in one write."""
        now_ms = int(self.clock.time() * 1000)
        record = TenantState(
            self.tenant, state, now_ms, job=job, progress=progress, receipt=receipt
        )
        await self.records.put(record)
        return record


@contextlib.asynccontextmanager
async def open_tenant(
    settings: Settings,
    tenant: str,
    *,
    clock: Clock,
    open_features: Sequence[OpenStore] = (),
    units_per_s: float | None = None,
    has_redis: bool = True,
) -> AsyncIterator[OpenTenant]:
    """Open all stores of a tenant.

    `units_per_s` limits DynamoDB capacity units. With `has_redis`, the configured Redis must belong
    to the tenant.

    Raises:
        ConfigError: the Redis belongs to another tenant, or a setting is wrong.
        Unavailable: a store does not respond.
    """
    own, shared = get_tenant_settings(settings, tenant), get_tenant_settings(settings, "")
    async with contextlib.AsyncExitStack() as stack:
        redis = None
        if has_redis:
            redis = await stack.enter_async_context(open_tenant_redis(own.redis))
            await redis.require_owner(tenant)
        dynamodb = await stack.enter_async_context(open_dynamodb(own.warm))
        unprefixed = await stack.enter_async_context(open_dynamodb(shared.warm))
        bucket = await stack.enter_async_context(open_s3(own.cold))
        features = [
            await stack.enter_async_context(opener(own, tenant)) for opener in open_features
        ]
        pace = RateLimiter(units_per_s, clock)
        yield OpenTenant(
            tenant=tenant,
            settings=own,
            clock=clock,
            redis=redis,
            items=TenantItems(dynamodb.for_feature("operations"), pace),
            objects=TenantObjects(bucket),
            bucket=bucket,
            schema=SchemaVersions(dynamodb.for_feature("schema")),
            records=TenantStates(unprefixed.for_feature("operations")),
            features=features,
            units_per_s=units_per_s,
        )


@attrs.define(eq=False, repr=False)
class RedisStore:
    """All keys in the tenant's Redis, except those that block the tenant."""

    name = "redis"

    _redis: TenantRedis

    async def delete(self) -> AsyncIterator[int]:
        async for deleted in self._redis.delete_pages():
            failpoint("tenants.delete.redis")
            yield deleted

    async def find_remaining(self, limit: int) -> RemainingData:
        return RemainingData(*await self._redis.find_remaining(limit))


class TableStore:
    """The tenant's items in a table, except the item in `directory` that blocks the tenant."""

    def __init__(self, items: TenantItems, table: TableSchema) -> None:
        self.name = f"dynamodb:{table.name}"
        self._items = items
        self._table = table

    async def delete(self) -> AsyncIterator[int]:
        async for page in self._items.iter_pages(self._table, is_keys_only=True):
            mine = [item for item in page.items if not is_block(self._table, item)]
            if not page.items:
                yield 0
            for start in range(0, len(mine), TABLE_ITEMS_MAX):
                deleted = await self._items.delete(
                    self._table, mine[start : start + TABLE_ITEMS_MAX]
                )
                failpoint(f"tenants.delete.{self._table.name}")
                yield deleted

    async def find_remaining(self, limit: int) -> RemainingData:
        remaining: list[str] = []
        checked = 0
        async for page in self._items.iter_pages(self._table):
            checked += page.scanned
            for item in page.items:
                if len(remaining) < limit and not is_block(self._table, item):
                    key = (next(iter(item[name].values())) for name in self._table.key.names)
                    remaining.append(" / ".join(key))
        return RemainingData(remaining, checked)


@attrs.define(eq=False, repr=False)
class ObjectsStore:
    """All versions of the tenant's objects: archive, files, long bodies, exports, Parquet."""

    name = "s3:objects"

    _objects: TenantObjects

    async def delete(self) -> AsyncIterator[int]:
        """Delete objects, versions, and unfinished uploads."""
        async for deleted in self._objects.delete_versions():
            failpoint("tenants.delete.objects")
            yield deleted
        while aborted := await self._objects.abort_uploads():
            yield aborted

    async def find_remaining(self, limit: int) -> RemainingData:
        keys = await self._objects.list_version_keys(limit)
        keys += [f"{key} (upload {upload})" for key, upload in await self._objects.list_uploads()]
        return RemainingData(keys[:limit], len(keys))


class RulesStore:
    """The bucket's CORS and lifecycle rules that have the tenant's name."""

    name = "s3:rules"

    def __init__(self, bucket: ObjectStore, settings: Settings) -> None:
        self._bucket = bucket
        self._settings = settings.cold

    async def delete(self) -> AsyncIterator[int]:
        yield await remove_rules_of_tenant(self._bucket, self._settings)

    async def find_remaining(self, limit: int) -> RemainingData:
        rules = await find_rules_of_tenant(self._bucket, self._settings)
        return RemainingData(rules[:limit], len(rules))
