"""Speed and cost of deleting, measuring and auditing one of two tenants in shared tables.

    python -m tests.benchmarks.tenants

Writes messages of 200 bytes (and objects of 1 KB) of two tenants to the DynamoDB API server, the S3
server and Redis, then runs the operations on one of them. Units are the server's own count. Prints
JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Settings
from chatserver.dev.servers import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    Server,
    dynamodb_launch,
    ministack_launch,
    redis_launch,
)
from chatserver.domain.clock import SystemClock
from chatserver.operations.cost.prices import load_prices
from chatserver.operations.tenants.deletion import Deletion
from chatserver.operations.tenants.tenant_audit import audit_tenant
from chatserver.operations.tenants.tenant_costs import measure_tenants
from chatserver.operations.tenants.tenant_stores import OpenTenant, get_tenant_settings, open_tenant
from chatserver.warm.dynamo.client import open_dynamodb
from chatserver.warm.schema.provisioning import apply_tables
from chatserver.warm.schema.tables import MESSAGES
from tests.support.servers.processes import free_port

MESSAGES_EACH: Final = 20_000
OBJECTS_EACH: Final = 1_000
KEYS: Final = 20_000
IN_FLIGHT: Final = 32
TENANTS: Final = ("acme", "globex")


@contextlib.asynccontextmanager
async def open_settings(folder: Path) -> AsyncIterator[Settings]:
    """Start the servers; yield the settings for them."""
    servers = [
        Server(redis_launch(folder / "redis", free_port())),
        Server(dynamodb_launch(folder / "dynamodb", free_port())),
        Server(ministack_launch(folder / "s3", free_port(), service="s3")),
    ]
    redis, dynamodb, s3 = servers
    keys = {"region": REGION, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
            server.start()
        yield Settings.model_validate(
            {
                "redis": {"url": f"redis://{redis.launch.address}/0"},
                "warm": {"endpoint": dynamodb.endpoint, "call_timeout_s": 30, **keys},
                "cold": {"endpoint": s3.endpoint, "call_timeout_s": 30, **keys},
            }
        )


async def fill(settings: Settings, work: OpenTenant) -> None:
    """Write items and objects, and Redis keys for a tenant that uses Redis."""
    items = [
        {
            "chatid": {"S": f"d-{number % 100}"},
            "ts": {"N": str(1_700_000_000_000_000 + number)},
            "seq": {"N": str(number)},
            "sender_id": {"S": f"user-{number % 50}"},
            "receiver_id": {"S": f"user-{number % 50 + 50}"},
            "status_ts": {"S": f"active#{number:020}"},
            "body": {"S": "x" * 200},
        }
        for number in range(MESSAGES_EACH)
    ]
    for at in range(0, len(items), 400):
        await work.items.put(MESSAGES, items[at : at + 400])
    for at in range(0, OBJECTS_EACH, IN_FLIGHT):
        async with asyncio.TaskGroup() as group:
            for number in range(at, min(at + IN_FLIGHT, OBJECTS_EACH)):
                key, body = f"attachments/c/{number:06}", b"y" * 1024
                group.create_task(work.bucket.call("put_object", Key=key, Body=body))
    if work.redis is not None:
        await work.redis.block(work.tenant, "benchmark")
        master = work.redis._masters[0]
        for number in range(KEYS):
            await master.call("SET", f"{{p0}}:k{number}", "z" * 100)


async def measure(settings: Settings) -> dict[str, Any]:
    """Run all operations on the first tenant; return items per second and units."""
    clock = SystemClock()
    found: dict[str, Any] = {}
    for tenant in TENANTS:
        has_redis = tenant == TENANTS[0]
        async with open_tenant(settings, tenant, clock=clock, has_redis=has_redis) as work:
            await fill(settings, work)
    started = time.monotonic()
    sizes = await measure_tenants(
        get_tenant_settings(settings, TENANTS[0]),
        clock=clock,
        prices=load_prices(),
        only=None,
        units_per_s=None,
        has_redis=True,
        report=lambda store, count: None,
    )
    found["measure_s"] = round(time.monotonic() - started, 2)
    found["measured_items"] = sum(each.items for each in sizes)
    async with open_tenant(settings, TENANTS[0], clock=clock) as work:
        for store in work.list_stores():
            started, deleted, units = time.monotonic(), 0, work.items.units
            async for count in store.delete():
                deleted += count
            taken = time.monotonic() - started
            if deleted:
                found[store.name] = {
                    "deleted": deleted,
                    "per_s": round(deleted / taken),
                    "units": round(work.items.units - units),
                }
        started = time.monotonic()
        await Deletion(work, lambda store, count: None).run()
        found["empty_delete_s"] = round(time.monotonic() - started, 2)
        started = time.monotonic()
        results = await audit_tenant(
            work, texts=[b"absent"], has_contents=True, report=lambda store, count: None
        )
        assert not any(each.left for each in results)
        found["audit_s"] = round(time.monotonic() - started, 2)
        found["audited"] = sum(each.checked for each in results)
    return found


async def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_settings(Path(folder)) as settings:
            async with open_dynamodb(settings.warm) as client:
                await apply_tables(client, settings.warm)
            async with open_s3(settings.cold) as store:
                await apply_bucket(store, settings.cold)
            sys.stdout.write(json.dumps(await measure(settings), indent=2) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
