"""Table provisioning: creates the tables and checks existing ones against the definitions.

New tables get the newest schema version, which is recorded in `directory`. Only `chatserver
migrate` adds missing indexes to older tables.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Final, Literal

from chatserver.config import Warm
from chatserver.errors import ConfigError, Conflict
from chatserver.warm.dynamo import table as dynamo
from chatserver.warm.dynamo.client import DynamoClient, TableMissing
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.schema.active_version import make_schema_item
from chatserver.warm.schema.directory_attributes import SchemaField as Field
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES, TABLES, Index, Key, TableSchema

POLL_S = 0.5
APPLY_TIMEOUT_S = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class TableChange:
    """Result of `apply_tables` for one table."""

    table: str
    action: Literal["created", "enabled", "kept"]
    what: str


async def apply_tables(
    client: DynamoClient,
    settings: Warm,
    *,
    timeout_s: float = APPLY_TIMEOUT_S,
    poll_s: float = POLL_S,
) -> list[TableChange]:
    """Create the four tables as defined by the settings; return what was done for each table.

    Guarantees:
        Idempotent: a second call changes nothing. Concurrent calls are safe.
        If an existing table has other keys, indexes or TTL, nothing is created.
        Nothing is removed or disabled, and the billing mode of existing tables is kept.

    Raises:
        ConfigError: existing tables differ from the definitions; lists all differences.
        Unavailable: DynamoDB did not respond, or a table was not ready within `timeout_s`.
    """
    descriptions = {table: await _find_table(client, table.name_in(settings)) for table in TABLES}
    problems: list[str] = []
    for table, description in descriptions.items():
        if description is not None:
            problems += await find_problems(client, table, settings, description)
    if problems:
        raise ConfigError(*problems)
    changes: list[TableChange] = []
    async with client.deadline(timeout_s, "tables to become active"):
        for table, description in descriptions.items():
            name = table.name_in(settings)
            if description is None:
                await _create(client, table, settings)
            changes.append(TableChange(name, "kept" if description else "created", "table"))
        for table in TABLES:
            name = table.name_in(settings)
            active = await _wait_active(client, table, name, poll_s)
            changes += await _apply_expiry(client, table, name)
            changes += await _apply_stream(client, table, settings, active)
            await _wait_active(client, table, name, poll_s)
        if descriptions[MESSAGES] is None and descriptions[DIRECTORY] is None:
            await record_newest(client)
    return changes


async def find_problems(
    client: DynamoClient, table: TableSchema, settings: Warm, description: dict[str, Any]
) -> list[str]:
    """Return how a table differs from its definition, except for what `apply_tables` fixes."""
    name = table.name_in(settings)
    return [
        *_find_differences(table, name, description),
        *await _find_ttl_problems(client, table, name),
    ]


async def _find_table(client: DynamoClient, name: str) -> dict[str, Any] | None:
    try:
        response = await client.call("describe_table", {"TableName": name})
    except TableMissing:
        return None
    description: dict[str, Any] = response["Table"]
    return description


def _find_differences(table: TableSchema, name: str, description: dict[str, Any]) -> list[str]:
    """Return differences from the definition that cannot be fixed in an existing table."""
    types = {a["AttributeName"]: a["AttributeType"] for a in description["AttributeDefinitions"]}
    problems: list[str] = []

    def compare(location: str, key: Key, schema: list[dict[str, str]]) -> None:
        expected = build_key_schema(key)
        if sorted(schema, key=str) != sorted(expected, key=str):
            problems.append(f"table {name}{location}: its keys are {schema}, expected {expected}")
            return
        problems.extend(
            f"table {name}{location}: {attribute} is of type {types.get(attribute)}, "
            f"expected {table.get_type(attribute)}"
            for attribute in key.names
            if types.get(attribute) != table.get_type(attribute)
        )

    compare("", table.key, description["KeySchema"])
    indexes = {i["IndexName"]: i for i in description.get("GlobalSecondaryIndexes", [])}
    for index in table.indexes:
        location = f", index {index.name}"
        if index.name not in indexes:
            if index.since:
                continue  # `chatserver migrate` creates the missing index
            problems.append(f"table {name}{location}: does not exist")
            continue
        compare(location, index.key, indexes[index.name]["KeySchema"])
        projection = indexes[index.name]["Projection"]
        included = set(projection.get("NonKeyAttributes", ()))
        if projection["ProjectionType"] != "ALL" and not included.issuperset(index.includes):
            problems.append(f"table {name}{location}: lacks {', '.join(index.includes)}")
    return problems


def build_key_schema(key: Key) -> list[dict[str, str]]:
    kinds = ("HASH", "RANGE")
    return [
        {"AttributeName": name, "KeyType": kind}
        for name, kind in zip(key.names, kinds, strict=False)
    ]


async def describe_ttl(client: DynamoClient, name: str) -> dict[str, str]:
    """Return a table's `TimeToLiveStatus`, and its TTL attribute (`AttributeName`), if any."""
    response = await client.call("describe_time_to_live", {"TableName": name})
    description: dict[str, str] = response["TimeToLiveDescription"]
    return description


async def _find_ttl_problems(client: DynamoClient, table: TableSchema, name: str) -> list[str]:
    if table.expiry is None:
        return []
    state = await describe_ttl(client, name)
    attribute = state.get("AttributeName")
    is_ours = attribute in (table.expiry, table.expiry_before)
    if state["TimeToLiveStatus"] in {"ENABLED", "ENABLING"} and not is_ours:
        return [f"table {name}: TTL reads {attribute}, expected {table.expiry}"]
    return []


def make_create_request(table: TableSchema, settings: Warm) -> dict[str, Any]:
    """Return the CreateTable request for a table with the given settings."""
    keys = [table.key, *(index.key for index in table.indexes)]
    attributes = sorted({name for key in keys for name in key.names})
    request: dict[str, Any] = {
        "TableName": table.name_in(settings),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": table.get_type(name)} for name in attributes
        ],
        "KeySchema": build_key_schema(table.key),
    }
    throughput: dict[str, Any] = {}
    if settings.billing == "on_demand":
        request["BillingMode"] = "PAY_PER_REQUEST"
    else:
        request["BillingMode"] = "PROVISIONED"
        throughput["ProvisionedThroughput"] = {
            "ReadCapacityUnits": settings.read_units,
            "WriteCapacityUnits": settings.write_units,
        }
    request |= throughput
    if table.indexes:
        request["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index.name,
                "KeySchema": build_key_schema(index.key),
                "Projection": build_projection(index),
                **throughput,
            }
            for index in table.indexes
        ]
    if settings.stream and table.is_streamed:
        request["StreamSpecification"] = _STREAM
    return request


async def _create(client: DynamoClient, table: TableSchema, settings: Warm) -> None:
    try:
        await client.call("create_table", make_create_request(table, settings))
    except Conflict:
        # Another process, or an earlier attempt whose response was lost, has created the table.
        return


def build_projection(index: Index) -> dict[str, Any]:
    if not index.includes:
        return {"ProjectionType": "KEYS_ONLY"}
    return {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(index.includes)}


# The Stream is used only to check TTL removals, which requires only the old image.
_STREAM: Final = {"StreamEnabled": True, "StreamViewType": "OLD_IMAGE"}


async def _wait_active(
    client: DynamoClient, table: TableSchema, name: str, poll_s: float
) -> dict[str, Any]:
    """Wait until a table and its indexes are active; return its description.

    The caller sets a deadline. Indexes that migrations create are ignored: the migration waits for
    them.
    """
    late = {index.name for index in table.indexes if index.since}
    while True:
        description = await _find_table(client, name)
        if description is not None:
            indexes = description.get("GlobalSecondaryIndexes", [])
            states = [description["TableStatus"]]
            states += [i["IndexStatus"] for i in indexes if i["IndexName"] not in late]
            if all(state == "ACTIVE" for state in states):
                return description
        await asyncio.sleep(poll_s)


async def _apply_expiry(client: DynamoClient, table: TableSchema, name: str) -> list[TableChange]:
    if table.expiry is None:
        return []
    state = await describe_ttl(client, name)
    if state["TimeToLiveStatus"] in {"ENABLED", "ENABLING"}:
        return [TableChange(name, "kept", f"TTL on {state['AttributeName']}")]
    specification = {"Enabled": True, "AttributeName": table.expiry}
    await client.call(
        "update_time_to_live", {"TableName": name, "TimeToLiveSpecification": specification}
    )
    return [TableChange(name, "enabled", f"TTL on {table.expiry}")]


async def _apply_stream(
    client: DynamoClient, table: TableSchema, settings: Warm, description: dict[str, Any]
) -> list[TableChange]:
    if not (settings.stream and table.is_streamed):
        return []
    name = table.name_in(settings)
    if description.get("StreamSpecification", {}).get("StreamEnabled"):
        return [TableChange(name, "kept", "stream")]
    await client.call("update_table", {"TableName": name, "StreamSpecification": _STREAM})
    return [TableChange(name, "enabled", "stream")]


async def record_newest(client: DynamoClient) -> None:
    """Record the newest schema version in table `directory`. Keeps an existing record."""
    put = dynamo.Table(client, DIRECTORY).put(make_schema_item(), if_=Attr(Field.PK).is_absent)
    await dynamo.try_write(put)
