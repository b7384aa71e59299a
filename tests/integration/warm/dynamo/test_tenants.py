"""Tenants on the same tables and bucket: no tenant can see the data of another."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import ObjectMissing, ObjectStore, open_s3
from chatserver.config import Cold, Settings, Warm
from chatserver.dev.servers import ACCESS_KEY, SECRET_KEY
from chatserver.domain.clock import SystemClock
from chatserver.errors import CorruptData
from chatserver.operations.cost.stored_sizes import PrefixSize, list_prefix_sizes
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.dynamo.tenancy import get_partition_attributes
from chatserver.warm.schema.active_version import NEWEST, SchemaState, SchemaVersions
from chatserver.warm.schema.migrations.runner import MigrationOptions, MigrationRunner
from chatserver.warm.schema.provisioning import apply_tables
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES, TABLES
from tests.integration.warm.dynamo.tenant_support import STEPS, World
from tests.integration.warm.schema.examples.migrations import EXAMPLES
from tests.integration.warm.schema.migration_support import Lines
from tests.integration.warm.support import Tables, batch, message, settings_for

TENANTS = ("acme", "zeta", "acme-2")


@contextlib.asynccontextmanager
async def open_tenant(settings: Warm, tenant: str) -> AsyncIterator[World]:
    """Open the repositories of a tenant's deployment."""
    own = settings.model_copy(update={"tenant": tenant})
    async with open_dynamodb(own) as client:
        yield World(client, own)


async def scan_raw(client: DynamoClient, settings: Warm, index: bool) -> list[tuple[str, Item]]:
    """Return every item of every table, or every row of every index, as stored."""
    found: list[tuple[str, Item]] = []
    for table in TABLES:
        names: list[str | None] = [each.name for each in table.indexes] if index else [None]
        for name in names:
            request: dict[str, Any] = {"TableName": table.name_in(settings)}
            request |= {"IndexName": name} if name else {}
            while True:
                answer = await client.call("scan", request)
                found += [(table.name, item) for item in answer["Items"]]
                if (last := answer.get("LastEvaluatedKey")) is None:
                    break
                request["ExclusiveStartKey"] = last
    return found


@pytest.mark.parametrize("seed", range(2))
async def test_tenants_never_see_each_other_in_random_operations(
    dynamodb: str, tables: Tables, seed: int
) -> None:
    """With the same ids on shared tables, each tenant gets the results of separate tables."""
    rng = random.Random(seed)
    async with contextlib.AsyncExitStack() as stack:
        pairs: list[tuple[World, World]] = []
        for tenant in TENANTS[:2]:
            shared = await stack.enter_async_context(open_tenant(tables.settings, tenant))
            alone = await stack.enter_async_context(open_tenant(settings_for(dynamodb), ""))
            await apply_tables(alone.client, alone.settings, poll_s=0.01)
            # As after `migrate up`.
            state = await SchemaVersions(alone.client).get_state()
            await SchemaVersions(shared.client).raise_state(state)
            pairs.append((shared, alone))
        values = 0
        for _ in range(120):
            (shared, alone), step, chance = rng.choice(pairs), rng.choice(STEPS), rng.random()
            number = int(chance * 1e9)
            found, wanted = await asyncio.gather(
                shared.run_step(step, number), alone.run_step(step, number)
            )
            assert found == wanted, step.__name__
            values += found is not None and not isinstance(found, str)

    assert values > 50, "too few steps returned a value"
    for is_index in (False, True):
        rows = await scan_raw(tables.client, tables.settings, is_index)
        seen: set[str] = set()
        for name, item in rows:
            (table,) = [each for each in TABLES if each.name == name]
            keys = [item[key]["S"] for key in get_partition_attributes(table) if key in item]
            (tenant,) = {key.partition("/")[0] for key in keys}
            if item.get("PK", {}).get("S") != "schema":
                seen.add(tenant)
        # The process that created the tables has no tenant and wrote one row.
        assert seen - {"schema"} == set(TENANTS[:2])


async def test_item_of_another_tenant_is_not_readable_by_its_key(tables: Tables) -> None:
    """A stored key of another tenant is interpreted as a key of the own tenant."""
    async with (
        open_tenant(tables.settings, "acme") as acme,
        open_tenant(tables.settings, "zeta") as zeta,
    ):
        await zeta.messages.put_batch(batch(message(1, "d-1")), 20)
        await acme.messages.put_batch(batch(message(2, "d-2")), 20)

        for chat in ("zeta/d-1", "../zeta/d-1", "d-1"):
            assert await acme.messages.list_after(chat, 0, 10) == []
        assert [each.chat for each in await zeta.messages.list_after("d-1", 0, 10)] == ["d-1"]
        # An item of another tenant in a response is refused.
        table = MESSAGES.name_in(tables.settings)
        raw = (await tables.client.call("scan", {"TableName": table}))["Items"]
        assert {item["chatid"]["S"] for item in raw} == {"zeta/d-1", "acme/d-2"}
        with pytest.raises(CorruptData, match="another tenant"):
            acme.client._tenancy.strip_response(  # type: ignore[union-attr]  # has a tenant
                "get_item", {"TableName": table},
                {"Item": next(item for item in raw if item["chatid"]["S"] == "zeta/d-1")},
            )  # fmt: skip


async def test_schema_version_is_stored_for_each_tenant(tables: Tables) -> None:
    """A tenant on existing tables is at schema 1 until its own `migrate up`.

    The migration changes only the tenant's items, although it scans the shared tables.
    """
    async with (
        open_tenant(tables.settings, "acme") as acme,
        open_tenant(tables.settings, "zeta") as zeta,
    ):
        for world in (acme, zeta):
            changes = await apply_tables(world.client, world.settings, poll_s=0.01)
            assert all(change.action == "kept" for change in changes)
            assert await SchemaVersions(world.client).get_state() == SchemaState()

        lines = Lines()
        state = await MigrationRunner(
            acme.client, acme.settings, clock=SystemClock(), report=lines,
            options=MigrationOptions(segments=2), migrations=EXAMPLES,
        ).run("test")  # fmt: skip

        assert state.version == 3
        assert await SchemaVersions(zeta.client).get_state() == SchemaState()
        assert await SchemaVersions(acme.client).get_state() == state
        own = await SchemaVersions(tables.client).get_state()
        assert own.version == NEWEST


async def test_tables_created_by_a_tenant_are_at_the_newest_schema(bare: Tables) -> None:
    """The schema item has the tenant's prefix."""
    async with open_tenant(bare.settings, "acme") as acme:
        await apply_tables(acme.client, acme.settings, poll_s=0.01)

        state = await SchemaVersions(acme.client).get_state()

    table = DIRECTORY.name_in(bare.settings)
    rows = (await bare.client.call("scan", {"TableName": table}))["Items"]
    assert state.version == NEWEST
    assert [(row["PK"]["S"], row["SK"]["S"]) for row in rows] == [("acme/schema", "acme/schema")]


async def test_failed_condition_returns_the_item_without_the_tenant_prefix(
    tables: Tables,
) -> None:
    """This holds for single writes and transactions."""
    async with open_tenant(tables.settings, "acme") as acme:
        made = await acme.directory.create_group("g-1", "ann", ["ben"], "n", 1.0)
        assert await acme.directory.create_group("g-1", "ann", ["ben"], "n", 2.0) == made
        first = await acme.directory.put_user_if_absent("ann", "Ann", 1.0)

        again = await acme.directory.put_user_if_absent("ann", "Other", 2.0)

    assert again == first


# S3


def cold_of(endpoint: str, bucket: str, tenant: str) -> Cold:
    """Return the S3 settings of a tenant's process."""
    cold = Cold(
        endpoint=endpoint, bucket=bucket, access_key=ACCESS_KEY, secret_key=SECRET_KEY,
        origins=[f"https://{tenant or 'nobody'}.example"], call_timeout_s=30,
    )  # fmt: skip
    return Settings(warm=Warm(tenant=tenant), cold=cold).cold


async def use_objects(store: ObjectStore) -> list[Any]:
    """Write, copy, list and read objects; return the results."""
    await store.call("put_object", Key="uploads/x", Body=store.prefix.encode() or b"-")
    source = {"Bucket": store.bucket, "Key": "uploads/x"}
    await store.call("copy_object", Key="attachments/y", CopySource=source)
    made = await store.call("create_multipart_upload", Key="exports/z.zip")
    open_ = await store.call("list_multipart_uploads", Prefix="exports/")
    await store.call("abort_multipart_upload", Key="exports/z.zip", UploadId=made["UploadId"])
    listed = await store.call("list_objects_v2", Prefix="att")
    pieces = [piece async for piece in store.iter_content("attachments/y")]
    form = await store.sign_upload("uploads/x", {}, 1, 60)
    return [
        [each["Key"] for each in open_["Uploads"]],
        [each["Key"] for each in listed["Contents"]],
        await store.read("attachments/y", size_max=100) == b"".join(pieces),
        await list_prefix_sizes(store, 1000),
        form[1]["key"].removeprefix(store.prefix),
        f"/{store.prefix}attachments/y?" in await store.sign_link("attachments/y", {}, 60),
    ]


async def test_objects_of_tenants_are_below_their_prefixes(s3: str) -> None:
    """Keys, copies, listings, links and bucket rules are separate in a shared bucket."""
    bucket = f"t{secrets.token_hex(8)}"
    async with contextlib.AsyncExitStack() as stack:
        stores = {}
        for tenant in ("acme", "zeta"):
            cold = cold_of(s3, bucket, tenant)
            stores[tenant] = await stack.enter_async_context(open_s3(cold))
            await apply_bucket(stores[tenant], cold)
            assert {each.action for each in await apply_bucket(stores[tenant], cold)} == {"kept"}
        seen = [await use_objects(store) for store in stores.values()]
        whole = await stack.enter_async_context(open_s3(cold_of(s3, bucket, "")))
        listed = await whole.call("list_objects_v2")
        rules = (await whole.call("get_bucket_lifecycle_configuration"))["Rules"]
        pages = (await whole.call("get_bucket_cors"))["CORSRules"]
        await stores["acme"].call("delete_object", Key="uploads/x")
        with pytest.raises(ObjectMissing):
            await stores["acme"].read("uploads/x", size_max=9)
        remaining = await stores["zeta"].read("uploads/x", size_max=9)

    names = ["attachments/y", "uploads/x"]
    held = [PrefixSize("attachments", 1, 5), PrefixSize("uploads", 1, 5)]
    assert seen == [[["exports/z.zip"], [names[0]], True, (held, True), names[1], True]] * 2
    assert remaining == b"zeta/"
    assert sorted(each["Key"] for each in listed["Contents"]) == [
        f"{tenant}/{name}" for tenant in stores for name in names
    ]
    assert {rule["Filter"]["Prefix"] for rule in rules} == {
        "", *(f"{tenant}/{what}/" for tenant in stores for what in ("uploads", "exports")),
    }  # fmt: skip
    assert {rule["AllowedOrigins"][0] for rule in pages} == {
        "https://acme.example", "https://zeta.example",
    }  # fmt: skip
