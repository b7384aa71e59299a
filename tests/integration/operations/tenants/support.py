"""Tenants on real servers: each test has its own tables, bucket and Redis."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any, Final

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Settings
from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY
from chatserver.domain.clock import SystemClock
from chatserver.operations.tenants.tenant_stores import OpenTenant, open_tenant
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES, SOCIAL
from tests.integration.warm.support import create_tables

# No process calls the stores in these tests, so a deletion need not wait for calls in progress.
QUICK: Final = {
    "chatserver.operations.tenants.tenant_block.POLL_S": 0.05,
    "chatserver.operations.tenants.tenant_block.CALL_TIMEOUTS": 0.0,
}


async def make_settings(redis_url: str, dynamodb: str, s3: str, **redis: Any) -> Settings:
    """Create tables and a bucket; return the settings of the deployment without a tenant."""
    name = secrets.token_hex(6)
    keys = {"region": REGION, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    settings = Settings.model_validate(
        {
            "redis": {"url": redis_url, "call_timeout_s": 15, **redis},
            "warm": {
                "endpoint": dynamodb,
                "table_prefix": f"t{name}_",
                "call_timeout_s": 20,
                **keys,
            },
            "cold": {"endpoint": s3, "bucket": f"bucket-{name}", "call_timeout_s": 20, **keys},
        }
    )
    create_tables(settings.warm)
    async with open_s3(settings.cold) as store:
        await apply_bucket(store, settings.cold)
    return settings


@contextlib.asynccontextmanager
async def opened(settings: Settings, tenant: str, **more: Any) -> AsyncIterator[OpenTenant]:
    async with open_tenant(settings, tenant, clock=SystemClock(), **more) as work:
        yield work


def ignore(store: str, count: int) -> None:
    """Ignore progress."""


async def fill(work: OpenTenant, mark: str, messages: int = 30, objects: int = 5) -> None:
    """Write items into three tables, and objects. Each contains the mark."""
    await work.items.put(MESSAGES, [message_item(number, mark) for number in range(messages)])
    rows = [
        {"PK": {"S": f"u#{mark}"}, "SK": {"S": f"u#{mark}"}, "name": {"S": mark}},
        {"PK": {"S": "schema"}, "SK": {"S": "schema"}, "version": {"N": "1"}, "oldest": {"N": "1"}},
    ]
    await work.items.put(DIRECTORY, rows)
    await work.items.put(SOCIAL, [{"PK": {"S": f"u#{mark}"}, "SK": {"S": "info"}}])
    for number in range(objects):
        key, body = f"attachments/c/{number}", f"{mark} {number}".encode()
        await work.bucket.call(
            "put_object", Key=key, Body=body, ContentType="text/plain", Metadata={"name": "x"}
        )
    # As `tables apply` does for this tenant.
    await apply_bucket(work.bucket, work.settings.cold)


def message_item(number: int, mark: str) -> Item:
    """Return an item of `messages` with a row in three indexes."""
    return {
        "chatid": {"S": "d-1"},
        "ts": {"N": str(1_700_000_000_000_000 + number)},
        "seq": {"N": str(number + 1)},
        "sender_id": {"S": f"u-{mark}"},
        "receiver_id": {"S": "someone"},
        "status_ts": {"S": f"active#{number:020}"},
        "body": {"S": f"text {mark}"},
    }


async def read_items(work: OpenTenant) -> list[Item]:
    found: list[Item] = []
    for table in (MESSAGES, DIRECTORY, SOCIAL):
        async for page in work.items.iter_pages(table):
            found += page.items
    return found


async def read_objects(work: OpenTenant) -> dict[str, bytes]:
    return {
        each.key: await work.bucket.read(each.key, size_max=10_000)
        async for page in work.objects.iter_pages()
        for each in page
    }
