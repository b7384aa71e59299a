"""Creation of the four tables, and checks of existing ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chatserver.config import Warm
from chatserver.errors import ConfigError, Unavailable
from chatserver.warm.dynamo.client import TableMissing
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.schema.provisioning import TableChange, apply_tables
from chatserver.warm.schema.tables import MESSAGES, TABLES
from tests.integration.warm.support import Tables, reply, settings_for


async def describe(tables: Tables, name: str) -> dict[str, Any]:
    """Return the description of a table."""
    answer = await tables.client.call(
        "describe_table", {"TableName": tables.settings.table_prefix + name}
    )
    description: dict[str, Any] = answer["Table"]
    return description


async def create(tables: Tables, name: str, partition: str, sort: str, **more: Any) -> None:
    """Create a table with a different schema."""
    names = {partition, sort}
    await tables.client.call(
        "create_table",
        {
            "TableName": tables.settings.table_prefix + name,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in names],
            "KeySchema": [
                {"AttributeName": partition, "KeyType": "HASH"},
                {"AttributeName": sort, "KeyType": "RANGE"},
            ],
            **more,
        },
    )


async def test_tables_of_the_tests_equal_those_of_the_product(tables: Tables) -> None:
    """Most tests create their tables without `apply_tables`, which is slow."""
    changes = await apply_tables(tables.client, tables.settings, poll_s=0.01)

    assert {change.action for change in changes} == {"kept"}


async def test_tables_applied_have_the_keys_and_projections_of_the_data_model(bare: Tables) -> None:
    """Indexes contain keys and the expiry but not the body."""
    await apply_tables(bare.client, bare.settings, poll_s=0.01)

    described = await describe(bare, "messages")
    indexes = {
        index["IndexName"]: (
            [key["AttributeName"] for key in index["KeySchema"]],
            index["Projection"].get("NonKeyAttributes", []),
        )
        for index in described["GlobalSecondaryIndexes"]
    }
    assert [key["AttributeName"] for key in described["KeySchema"]] == ["chatid", "ts"]
    assert indexes == {
        "sender": (["sender_id", "ts"], ["expires_at"]),
        "receiver": (["receiver_id", "ts"], ["expires_at"]),
        "status": (["chatid", "status_ts"], ["expires_at"]),
        "files": (["files_of", "ts"], ["expires_at"]),
    }
    (by_member,) = (await describe(bare, "directory"))["GlobalSecondaryIndexes"]
    assert [key["AttributeName"] for key in by_member["KeySchema"]] == ["SK", "PK"]
    assert by_member["Projection"]["ProjectionType"] == "KEYS_ONLY"
    (by_chat,) = (await describe(bare, "chat_session"))["GlobalSecondaryIndexes"]
    assert [key["AttributeName"] for key in by_chat["KeySchema"]] == ["GSI1PK"]
    assert "GlobalSecondaryIndexes" not in await describe(bare, "social")


async def test_second_apply_changes_nothing(bare: Tables) -> None:
    """Every deployment may run the command."""
    prefix = bare.settings.table_prefix

    first = await apply_tables(bare.client, bare.settings, poll_s=0.01)
    second = await apply_tables(bare.client, bare.settings, poll_s=0.01)

    tables = [table.name_in(bare.settings) for table in TABLES]
    assert {change.table for change in first if change.action == "created"} == set(tables)
    assert TableChange(f"{prefix}messages", "enabled", "TTL on ttl") in first
    assert {change.action for change in second} == {"kept"}
    assert {change.table for change in second} == set(tables)


async def test_concurrent_applies_create_tables_once(bare: Tables) -> None:
    """Two deployments may start at the same time."""
    await asyncio.gather(
        apply_tables(bare.client, bare.settings, poll_s=0.01),
        apply_tables(bare.client, bare.settings, poll_s=0.01),
    )

    again = await apply_tables(bare.client, bare.settings, poll_s=0.01)
    assert {change.action for change in again} == {"kept"}


async def test_tables_with_other_keys_are_refused_with_all_differences(
    bare: Tables,
) -> None:
    """The error lists every difference, and no table is created."""
    await create(bare, "messages", "chatid", "ts")  # ts has type S, and there are no indexes
    await create(bare, "social", "PK", "other")

    with pytest.raises(ConfigError) as caught:
        await apply_tables(bare.client, bare.settings, poll_s=0.01)

    text = "\n".join(caught.value.problems)
    assert "messages: ts is of type S, expected N" in text
    for index in ("sender", "receiver", "status"):
        assert f"messages, index {index}: does not exist" in text
    assert "social: its keys are" in text
    for absent in ("chat_session", "directory"):
        with pytest.raises(TableMissing):
            await describe(bare, absent)


async def test_table_with_another_ttl_attribute_is_refused(tables: Tables) -> None:
    """TTL on a wrong attribute could delete data, so it is not changed automatically."""
    state = {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": "created"}}
    tables.faults.add("DescribeTimeToLive", lambda _: None, reply(state))

    with pytest.raises(
        ConfigError, match=r"table \w+: TTL reads created, expected (ttl|expires_at)"
    ):
        await apply_tables(tables.client, tables.settings)


async def test_stream_is_enabled_later_on_messages_only(tables: Tables) -> None:
    """An operator who enables the archive later applies the tables again."""
    wanted = tables.settings.model_copy(update={"stream": True})

    changes = await apply_tables(tables.client, wanted, poll_s=0.01)
    again = await apply_tables(tables.client, wanted, poll_s=0.01)

    name = MESSAGES.name_in(wanted)
    assert [c for c in changes if c.action != "kept"] == [TableChange(name, "enabled", "stream")]
    assert {change.action for change in again} == {"kept"}
    stream = (await describe(tables, "messages"))["StreamSpecification"]
    assert stream == {"StreamEnabled": True, "StreamViewType": "OLD_IMAGE"}
    assert "StreamSpecification" not in await describe(tables, "directory")


async def test_provisioned_tables_have_the_units_of_the_settings(
    dynamodb: str,
) -> None:
    """Billing mode and throughput apply to tables and indexes."""
    settings = settings_for(dynamodb, billing="provisioned", read_units=7, write_units=9)
    async with open_dynamodb(settings) as client:
        await apply_tables(client, settings, poll_s=0.01)

        answer = await client.call("describe_table", {"TableName": MESSAGES.name_in(settings)})

    described = answer["Table"]
    for resource in (described, *described["GlobalSecondaryIndexes"]):
        units = resource["ProvisionedThroughput"]
        assert (units["ReadCapacityUnits"], units["WriteCapacityUnits"]) == (7, 9)


def description_while_creating(settings: Warm) -> dict[str, Any]:
    """Return the description of a table that is being created."""
    name = MESSAGES.name_in(settings)
    return {"Table": {"TableName": name, "TableStatus": "CREATING"}}


async def test_apply_waits_until_tables_are_active(bare: Tables) -> None:
    """AWS takes seconds to create a table, and TTL is set after that."""
    missing = [lambda _: None] * len(TABLES)
    slow = [reply(description_while_creating(bare.settings))] * 3
    bare.faults.add("DescribeTable", *missing, *slow)

    await apply_tables(bare.client, bare.settings, poll_s=0.001)

    operations = [operation for operation, _ in bare.faults.requests]
    first_ttl = operations.index("UpdateTimeToLive")
    assert operations[:first_ttl].count("DescribeTable") >= len(TABLES) + len(slow) + 1


async def test_apply_times_out_if_tables_never_become_active(bare: Tables) -> None:
    """The wait has a deadline."""
    missing = [lambda _: None] * len(TABLES)
    bare.faults.add(
        "DescribeTable", *missing, *[reply(description_while_creating(bare.settings))] * 1000
    )

    with pytest.raises(Unavailable, match="waiting for tables to become active"):
        await apply_tables(bare.client, bare.settings, timeout_s=0.2, poll_s=0.01)
