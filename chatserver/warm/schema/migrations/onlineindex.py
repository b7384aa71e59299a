"""Online creation of an index for a table in use.

DynamoDB backfills it from the items that have its key, while the table is read and written as
before. AWS takes minutes at least, and hours for a large table. It creates one index per table at a
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from chatserver.config import Warm
from chatserver.errors import ConfigError, Conflict
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.schema.migrations.planning import describe
from chatserver.warm.schema.provisioning import key_schema_of, projection_of
from chatserver.warm.schema.tables import Index, Table

POLL_S = 0.2
POLL_S_MAX = 10.0
TELL_S = 30.0


def is_index_there(description: dict[str, Any], index: Index) -> bool:
    """Return whether a table has the index, active or being created.

    Raises:
        ConfigError: the table has an index of this name with other keys.
    """
    found = _find(description, index)
    if found is None:
        return False
    if sorted(found["KeySchema"], key=str) != sorted(key_schema_of(index.key), key=str):
        raise ConfigError(
            [
                f"table {description['TableName']}, index {index.name}: its keys are "
                f"{found['KeySchema']}, ours {key_schema_of(index.key)}"
            ]
        )
    return True


async def start_index(client: DynamoClient, table: Table, index: Index, settings: Warm) -> None:
    """Start the creation of the index. A concurrent start by another process is equivalent.

    Raises:
        Unavailable: the table is being changed in another way; retry later.
    """
    create: dict[str, Any] = {
        "IndexName": index.name,
        "KeySchema": key_schema_of(index.key),
        "Projection": projection_of(index),
    }
    if settings.billing == "provisioned":
        create["ProvisionedThroughput"] = {
            "ReadCapacityUnits": settings.read_units,
            "WriteCapacityUnits": settings.write_units,
        }
    request = {
        "TableName": table.name_in(settings),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": table.type_of(name)}
            for name in index.key.names
        ],
        "GlobalSecondaryIndexUpdates": [{"Create": create}],
    }
    try:
        await client.call("update_table", request)
    except Conflict:
        # The table is already being changed. If an earlier attempt whose response was lost did
        # that, the index exists; otherwise the wait for it times out.
        return


async def wait_for_index(
    client: DynamoClient, table_name: str, index: Index, say: Callable[[str], None], what: str
) -> None:
    """Return once the index is active. The caller sets a deadline."""
    wait_s, told_s = POLL_S, 0.0
    while True:
        description = await describe(client, table_name)
        found = _find(description, index)
        if found is not None and found["IndexStatus"] == "ACTIVE":
            say(f"{what}: serves")
            return
        if told_s >= TELL_S:
            status = "not begun" if found is None else found["IndexStatus"].lower()
            say(f"{what}: {status}, {0 if found is None else found.get('ItemCount', 0)} items")
            told_s = 0.0
        await asyncio.sleep(wait_s)
        told_s += wait_s
        wait_s = min(wait_s * 1.5, POLL_S_MAX)


def _find(description: dict[str, Any], index: Index) -> dict[str, Any] | None:
    for found in description.get("GlobalSecondaryIndexes", []):
        if found["IndexName"] == index.name:
            there: dict[str, Any] = found
            return there
    return None
