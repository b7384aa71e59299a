"""Tables, objects and Redis keys of one self-test: unique names, and deletion at the end."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

import msgspec
import redis.exceptions
import structlog

from chatserver.cold.client import BucketMissing, ObjectStore
from chatserver.config import Settings
from chatserver.errors import ChatError, Conflict
from chatserver.hot.redis.client import HotClient
from chatserver.warm.dynamo.client import DynamoClient, TableMissing
from chatserver.warm.schema.tables import TABLES

DELETE_S_MAX: Final = 120.0
POLL_S: Final = 0.5
KEYS_MAX: Final = 20_000  # maximum keys deleted per server; a run creates a few per partition
CLAIM_S: Final = 3600

log = structlog.get_logger()


class Names(msgspec.Struct, frozen=True):
    """Names used by one run. The names of all its tables and objects begin with `prefix`."""

    prefix: str

    @classmethod
    def choose(cls) -> Names:
        return cls(f"selftest-{secrets.token_hex(6)}")


def build_isolated_settings(settings: Settings, names: Names) -> Settings:
    """Return settings that use the run's own tables and objects, with on-demand billing."""
    warm = settings.warm.model_copy(
        update={"table_prefix": f"{names.prefix}-", "billing": "on_demand"}
    )
    cold = settings.cold.for_tenant(names.prefix)
    archive = settings.archive.model_copy(
        update={"retention_s": 86_400, "segment_entries_min": 1, "removal": "worker"}
    )
    return settings.model_copy(update={"warm": warm, "cold": cold, "archive": archive})


async def delete_tables(client: DynamoClient, settings: Settings) -> list[str]:
    """Delete the run's tables; return the tables that still exist, with the reason.

    Guarantees:
        Only tables with the run's prefix are deleted. Waits for tables that are being created.
    """
    outcomes = await asyncio.gather(
        *(_delete_table(client, table.name_in(settings.warm)) for table in TABLES)
    )
    return [failure for failure in outcomes if failure]


async def _delete_table(client: DynamoClient, name: str) -> str:
    reason = "not tried"
    try:
        async with asyncio.timeout(DELETE_S_MAX):
            while True:
                try:
                    await client.call("delete_table", {"TableName": name})
                    reason = "is being deleted"
                except TableMissing:
                    return ""
                except Conflict as exc:  # the table is being created or changed
                    reason = exc.message
                except ChatError as exc:
                    return f"DynamoDB table {name}: {_format_error(exc)}"
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        return f"DynamoDB table {name}: {reason}"


async def delete_objects(store: ObjectStore) -> list[str]:
    """Delete the run's objects; return the objects that still exist, with the reason."""
    remaining: list[str] = []
    try:
        async with asyncio.timeout(DELETE_S_MAX):
            while True:
                page = await store.call("list_objects_v2", MaxKeys=100)
                keys = [s3_object["Key"] for s3_object in page.get("Contents", [])]
                if not keys:
                    return []
                remaining = keys
                for key in keys:
                    await store.call("delete_object", Key=key)
    except BucketMissing:
        return []
    except (ChatError, TimeoutError) as exc:
        return [
            f"S3 object {key} in the run's prefix: {_format_error(exc)}"
            for key in remaining or ["*"]
        ]


async def claim_redis(hot: HotClient, names: Names) -> bool:
    """Claim Redis for this run if it is empty; return False if Redis already has data."""
    partitions = range(hot.keys.partitions)
    connection_keys = {  # keys that connecting to an empty Redis creates
        make(number) for make in (hot.keys.epoch, hot.keys.where) for number in partitions
    }
    for server, key in hot.get_keys_by_server().items():
        keys = await _list_keys(hot, key, len(connection_keys) + 1)
        if set(keys) - connection_keys:
            log.info("selftest.redis_in_use", redis=server)
            return False
    claim = hot.keys.lease(0, "selftest")
    await hot.call("HSET", claim, "owner", names.prefix)
    await hot.call("EXPIRE", claim, CLAIM_S)
    return True


async def delete_keys(hot: HotClient, names: Names) -> list[str]:
    """Delete all keys in the Redis that this run has claimed; return the errors."""
    claim = hot.keys.lease(0, "selftest")
    try:
        async with asyncio.timeout(DELETE_S_MAX):
            if await hot.call("HGET", claim, "owner") != names.prefix.encode():
                return [f"Redis keys at {hot.name}: another process has claimed this Redis"]
            for first in hot.get_keys_by_server().values():
                for key in await _list_keys(hot, first, KEYS_MAX):
                    if key != claim:
                        await hot.call("UNLINK", key)
            await hot.call("UNLINK", claim)
    except (ChatError, redis.exceptions.RedisError, OSError, TimeoutError) as exc:
        return [f"Redis keys at {hot.name}: {_format_error(exc)}"]
    return []


async def _list_keys(hot: HotClient, key: str, most: int) -> list[str]:
    client = hot.create_blocking_client(key)
    keys: list[str] = []
    try:
        async for name in client.scan_iter(count=500):
            keys.append(name.decode() if isinstance(name, bytes) else str(name))
            if len(keys) >= most:
                break
    finally:
        await client.aclose()
    return keys


def _format_error(exc: BaseException) -> str:
    return exc.message if isinstance(exc, ChatError) else str(exc) or type(exc).__name__
