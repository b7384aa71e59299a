"""Deletion and audit of a tenant: late writes, stores of features, other tenants' data."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from chatserver.cold.bucket import find_rules_of_tenant
from chatserver.config import Settings
from chatserver.domain.access.tenants import RemainingData, TenantStore
from chatserver.domain.clock import SystemClock
from chatserver.errors import ConfigError, Conflict, Unavailable
from chatserver.hot.redis.factory import open_hot
from chatserver.operations.cost.prices import load_prices
from chatserver.operations.tenants.deletion import Deletion, compute_receipt_digest
from chatserver.operations.tenants.tenant_audit import audit_tenant
from chatserver.operations.tenants.tenant_block import block, unblock, wait_for_processes
from chatserver.operations.tenants.tenant_costs import TenantSize, measure_tenants
from chatserver.operations.tenants.tenant_list import list_tenants
from chatserver.operations.tenants.tenant_stores import OpenTenant, get_tenant_settings
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.schema.active_version import build_key, watch_schema
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES
from tests.integration.operations.tenants.support import (
    QUICK,
    fill,
    ignore,
    message_item,
    opened,
    read_items,
    read_objects,
)
from tests.support.servers.processes import eventually, eventually_equal, redis_client

pytestmark = pytest.mark.constants(QUICK)


async def left_of(work: OpenTenant, *texts: bytes) -> list[str]:
    """Return the data of the tenant that an audit finds."""
    results = await audit_tenant(work, texts=texts, has_contents=True, report=ignore)
    return [f"{each.store}: {place}" for each in results for place in each.left]


async def delete(work: OpenTenant) -> dict[str, Any]:
    return await Deletion(work, ignore).run()


async def test_deletion_counts_what_it_deleted_and_keeps_other_tenants(settings: Settings) -> None:
    """The receipt has the numbers and a digest. Other tenants keep everything."""
    async with (
        opened(settings, "acme") as acme,
        opened(settings, "acme-2", has_redis=False) as other,
    ):
        await fill(acme, "mark-a", messages=60, objects=7)
        await fill(other, "mark-b")
        with redis_client(settings.redis.url) as redis:
            redis.hset("{p0}:epoch", mapping={"epoch": "e", "partitions": "1", "tenant": "acme"})
            redis.set("{p0}:pushing:mark-a", "1")
        before = await read_items(other), await read_objects(other)
        assert len(await left_of(acme)) > 5

        receipt = await delete(acme)

        assert await left_of(acme, b"mark-a") == []
        assert receipt["deleted"] == {
            "redis": 2,
            "dynamodb:messages": 60,
            "dynamodb:directory": 1,
            "dynamodb:social": 1,
            "s3:objects": 7,
            "s3:rules": 2,
            "dynamodb:chat_session": 0,
        }
        assert receipt["sha256"] == compute_receipt_digest(receipt)
        plain = {name: value for name, value in receipt.items() if name != "sha256"}
        canonical = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
        assert receipt["sha256"] == hashlib.sha256(canonical).hexdigest()
        assert (await read_items(other), await read_objects(other)) == before
        assert len(await find_rules_of_tenant(other.bucket, other.settings.cold)) == 2
        assert await delete(acme) == receipt


async def test_late_write_to_a_deleted_store_is_deleted_too(
    settings: Settings,
) -> None:
    """A worker that was blocked too late wrote an item and an object, and the check finds both."""
    async with opened(settings, "acme") as acme:
        await fill(acme, "mark-a")

        def write_late(store: str, count: int) -> None:
            if store == "s3:rules" and not tasks:
                tasks.append(asyncio.create_task(fill(acme, "late", messages=3, objects=2)))

        tasks: list[asyncio.Task[None]] = []

        class LateDeletion(Deletion):
            async def _check(self) -> dict[str, int]:
                await asyncio.gather(*tasks)
                return await super()._check()

        receipt = await LateDeletion(acme, write_late).run()

        assert await left_of(acme, b"late", b"mark-a") == []
        assert receipt["deleted"]["dynamodb:messages"] == 33


async def test_deletion_with_endless_writes_fails_and_names_the_store(settings: Settings) -> None:
    """A process that keeps writing is reported, and the deletion does not repeat forever."""
    async with opened(settings, "acme") as acme:
        await fill(acme, "mark-a")
        work = acme.items
        put = work.put

        class DeletionWithLateWrites(Deletion):
            async def _delete(self, name: str) -> int:
                deleted = await super()._delete(name)
                await put(MESSAGES, [message_item(1, "again")])
                return deleted

        with pytest.raises(
            Unavailable, match=r"tenant acme: late writes were found \(dynamodb:messages: d-1"
        ):
            await DeletionWithLateWrites(acme, ignore).run()
        record = await acme.records.find("acme")
        assert record is not None
        assert record.state == "deleting"

        await delete(acme)

        assert await left_of(acme) == []


class FakeIndex:
    """A feature's store that consists of one file."""

    name = "search"

    def __init__(self, path: Path) -> None:
        self._path = path

    async def delete(self) -> AsyncIterator[int]:
        if self._path.exists():
            self._path.unlink()
            yield 1

    async def find_remaining(self, limit: int) -> RemainingData:
        return RemainingData([str(self._path)] if self._path.exists() else [], 1)


async def test_store_that_a_feature_registered_is_deleted_and_audited(
    settings: Settings, tmp_path: Path
) -> None:
    """Deletion and audit both open the stores that features register."""
    file = tmp_path / "acme.index"
    file.write_text("words")

    @contextlib.asynccontextmanager
    async def open_index(own: Settings, tenant: str) -> AsyncIterator[TenantStore]:
        assert own.warm.tenant == tenant
        yield FakeIndex(tmp_path / f"{tenant}.index")

    async with opened(settings, "acme", open_features=[open_index]) as acme:
        assert await left_of(acme) == [f"search: {file}"]

        receipt = await delete(acme)

        assert not file.exists()
        assert receipt["deleted"]["search"] == 1
        assert receipt["checked"]["search"] == 1
        assert await left_of(acme) == []


async def test_audit_finds_texts_in_the_data_of_other_tenants(settings: Settings) -> None:
    """Compressed segments, keys and attributes of other tenants are searched too."""
    async with (
        opened(settings, "acme") as acme,
        opened(settings, "globex", has_redis=False) as other,
    ):
        segment = zstandard.compress(b'{"body":"mark-a"}')
        await other.bucket.call("put_object", Key="archive/v1/c/1.zst", Body=segment)
        await other.bucket.call("put_object", Key="analytics/v1/tenant=acme/p", Body=b"x")
        await other.items.put(MESSAGES, [message_item(1, "mark-a")])
        row = {"PK": {"S": "u#x"}, "SK": {"S": "u#x"}, "about": {"S": "acme/u#zoe"}}
        await other.items.put(DIRECTORY, [row])

        assert sorted(await left_of(acme, b"mark-a")) == [
            "dynamodb:others: directory: globex/u#x",
            "dynamodb:others: messages: globex/d-1",
            "s3:others: globex/analytics/v1/tenant=acme/p",
            "s3:others: globex/archive/v1/c/1.zst",
        ]


async def test_redis_of_another_tenant_is_refused_by_commands_and_processes(
    settings: Settings,
) -> None:
    """With a wrong CHAT_REDIS_URL nothing is deleted, and data of two tenants is not mixed."""
    globex = get_tenant_settings(settings, "globex")
    async with open_hot(globex.redis) as hot:
        await hot.call("SET", "{p0}:pushing:zoe", "1")

    with pytest.raises(ConfigError, match="belongs to tenant globex, not to tenant acme"):
        async with opened(settings, "acme"):
            pass
    with pytest.raises(ConfigError, match=r"belongs to tenant globex, but warm\.tenant"):
        async with open_hot(get_tenant_settings(settings, "acme").redis):
            pass
    with redis_client(settings.redis.url) as redis:
        assert redis.get("{p0}:pushing:zoe") == b"1"


async def test_blocked_redis_refuses_running_processes_until_it_is_unblocked(
    settings: Settings,
) -> None:
    """Connections end at once and new ones detect the block.

    The processes continue in the same epoch.
    """
    acme = get_tenant_settings(settings, "acme")
    async with open_hot(acme.redis) as hot, opened(settings, "acme") as work:
        reasons: list[str] = []
        hot.on_blocked.append(reasons.append)
        epoch = hot.epochs[0]

        await block(work, "bills are unpaid")

        with pytest.raises(Unavailable):
            await hot.call("SET", "{p0}:pushing:zoe", "1")
        await eventually(lambda: reasons == ["tenant acme is blocked: bills are unpaid"])
        with pytest.raises(Unavailable, match="tenant acme is blocked: bills are unpaid"):
            await hot.call("SET", "{p0}:pushing:zoe", "1")
        with pytest.raises(ConfigError, match="tenant acme is blocked: bills are unpaid"):
            async with open_hot(acme.redis):
                pass

        await unblock(work)

        await eventually(lambda: reasons[-1] == "")
        await eventually(lambda: hot.is_up)
        await hot.call("SET", "{p0}:pushing:zoe", "1")
        assert hot.epochs[0] == epoch


@pytest.mark.constants({"chatserver.warm.schema.active_version.SCHEMA_CHECK_S": 0.5, **QUICK})
async def test_running_process_stops_its_calls_and_removes_its_item(settings: Settings) -> None:
    """The schema item alone blocks a process whose Redis is unreachable."""
    warm = get_tenant_settings(settings, "acme").warm
    request = {"TableName": DIRECTORY.name_in(warm), "Key": build_key("schema")}
    async with opened(settings, "acme") as work, open_dynamodb(warm) as client:
        schema = client.for_feature("schema")

        async def count_processes() -> int:
            return len(await work.schema.list_processes(SystemClock().time()))

        async def is_running() -> bool:
            return await count_processes() == 1

        async with watch_schema(schema, warm, "worker", SystemClock()):
            assert await is_running()
            client.fence.set("redis", "because Redis says so")
            with pytest.raises(Unavailable, match="because Redis says so"):
                await client.call("get_item", request)
            await eventually_equal(count_processes, 0)
            client.fence.set("redis", "")
            await eventually(is_running)

            await work.schema.set_blocked("tenant acme is blocked: a test")
            await wait_for_processes(work, lambda text: None)

            with pytest.raises(Unavailable, match="tenant acme is blocked: a test"):
                await client.call("get_item", request)
            with pytest.raises(ConfigError, match="tenant acme is blocked: a test"):
                async with watch_schema(schema, warm, "worker", SystemClock()):
                    pass
            await work.schema.set_blocked("")
            await eventually(is_running)
            assert client.fence.reason == ""


@pytest.mark.constants({"chatserver.warm.schema.active_version.SCHEMA_CHECK_S": 3600.0, **QUICK})
async def test_process_continues_when_redis_reports_the_end_of_a_block(settings: Settings) -> None:
    """The process reads the schema item at once, long before its next periodic check."""
    acme = get_tenant_settings(settings, "acme")
    async with (
        opened(settings, "acme") as work,
        open_dynamodb(acme.warm) as client,
        open_hot(acme.redis) as hot,
    ):
        hot.on_blocked.append(functools.partial(client.fence.set, "redis"))

        async def is_running() -> bool:
            return await work.schema.list_processes(SystemClock().time()) != []

        async def is_stopped() -> bool:
            return not await is_running()

        async with watch_schema(client.for_feature("schema"), acme.warm, "api", SystemClock()):
            assert await is_running()
            await block(work, "bills are unpaid")
            await eventually(is_stopped)

            await unblock(work)

            await eventually(is_running)
            assert client.fence.reason == ""


@pytest.mark.constants(
    {"chatserver.operations.tenants.tenant_block.PROCESSES_WAIT_S": 0.2, **QUICK}
)
async def test_deletion_with_a_running_process_fails_and_names_it(settings: Settings) -> None:
    """The process may write items at any time, so nothing is deleted."""
    async with opened(settings, "acme") as work:
        await fill(work, "mark-a")
        await work.schema.put_process("worker-host-1", 1, SystemClock().time() + 60)

        with pytest.raises(Conflict, match="1 processes of tenant acme do not stop: worker-host-1"):
            await delete(work)

        assert len(await read_items(work)) >= 32


async def test_tenants_are_listed_and_measured_by_tier(settings: Settings) -> None:
    """The names come from the bucket, DynamoDB, Redis and records. Sizes are summed per tenant."""
    async with (
        opened(settings, "acme") as acme,
        opened(settings, "globex", has_redis=False) as other,
    ):
        await fill(acme, "mark-a")
        await fill(other, "mark-b", messages=10, objects=0)
        await block(acme, "for the test")
        with redis_client(settings.redis.url) as redis:
            redis.set("{p0}:pushing:mark-a", "1")
        clock = SystemClock()
        lines = await list_tenants(
            settings,
            clock=clock,
            tables=(DIRECTORY,),
            units_per_s=None,
            has_redis=True,
            report=ignore,
        )
        sizes = await measure_tenants(
            settings,
            clock=clock,
            prices=load_prices(),
            only=None,
            units_per_s=None,
            has_redis=True,
            report=ignore,
        )

        assert [(each.tenant, each.found_in) for each in lines] == [
            ("acme", ["redis", "dynamodb", "s3"]),
            ("globex", ["dynamodb", "s3"]),
        ]
        found = {each.tenant: each for each in sizes}
        assert part(found["acme"], "messages").items == 30
        assert part(found["globex"], "messages").items == 10
        sender = part(found["acme"], "messages/sender")
        entry = {name: message_item(1, "mark-a")[name] for name in ("chatid", "ts", "sender_id")}
        stored = sum(len(name) + len(next(iter(each.values()))) for name, each in entry.items())
        # Two prefixes are added, and a number takes half as many bytes as it has digits.
        expected = stored + 2 * len("acme/") - 16 + 16 // 2 + 1 + 100
        assert (sender.items, sender.bytes) == (30, 30 * expected)
        assert part(found["acme"], "attachments").bytes == 5 * len("mark-a 0")
        assert part(found["acme"], "memory").items == 2
        total = found["acme"]
        assert total.usd_per_month == pytest.approx(sum(p.usd_per_month for p in total.parts))
        assert total.usd_per_month > found["globex"].usd_per_month > 0


def part(size: TenantSize, name: str) -> Any:
    (found,) = [each for each in size.parts if each.part == name]
    return found
