"""Online table changes: creating an index and changing the TTL attribute.

DynamoDB backfills a new index while the table remains in use. On AWS, this takes minutes, or hours
for a large table. A table can get only one new index at a time.

The TTL attribute cannot be changed in one call: TTL is disabled, then enabled with the new
attribute. AWS takes up to an hour for each step and rejects the second step until the first is
done. Between the steps, TTL deletes no items. Both functions poll the table's state and continue
from it, so it is safe to restart a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from chatserver.config import Warm
from chatserver.errors import ConfigError, Conflict, CorruptData
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.schema.provisioning import build_key_schema, build_projection, describe_ttl
from chatserver.warm.schema.tables import Index, TableSchema

POLL_S: Final = 0.2
INDEX_POLL_S_MAX: Final = 10.0
EXPIRY_POLL_S_MAX: Final = 30.0
REPORT_S: Final = 30.0


class _Poll:
    """Waits with increasing pauses, and reports the status every `REPORT_S`."""

    def __init__(self, report: Callable[[str], None], wait_s_max: float) -> None:
        self._report = report
        self._wait_s_max = wait_s_max
        self._wait_s = POLL_S
        self._silent_s = 0.0

    async def wait(self, status: str) -> None:
        if self._silent_s >= REPORT_S:
            self._report(status)
            self._silent_s = 0.0
        await asyncio.sleep(self._wait_s)
        self._silent_s += self._wait_s
        self._wait_s = min(self._wait_s * 1.5, self._wait_s_max)


async def describe_table(client: DynamoClient, name: str) -> dict[str, Any]:
    """Return a table's description. Raises TableMissing."""
    response = await client.call("describe_table", {"TableName": name})
    description: dict[str, Any] = response["Table"]
    return description


def has_index(description: dict[str, Any], index: Index) -> bool:
    """Return whether a table has the index, even if the index is still being created.

    Raises:
        ConfigError: the table has an index of this name with other keys.
    """
    index_description = _find_index(description, index)
    if index_description is None:
        return False
    keys, ours = index_description["KeySchema"], build_key_schema(index.key)
    if sorted(keys, key=str) != sorted(ours, key=str):
        location = f"table {description['TableName']}, index {index.name}"
        raise ConfigError(f"{location}: its keys are {keys}, expected {ours}")
    return True


async def start_index(
    client: DynamoClient, table: TableSchema, index: Index, settings: Warm
) -> None:
    """Start the creation of the index, unless the table is already being changed."""
    create: dict[str, Any] = {
        "IndexName": index.name,
        "KeySchema": build_key_schema(index.key),
        "Projection": build_projection(index),
    }
    if settings.billing == "provisioned":
        create["ProvisionedThroughput"] = {
            "ReadCapacityUnits": settings.read_units,
            "WriteCapacityUnits": settings.write_units,
        }
    request = {
        "TableName": table.name_in(settings),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": table.get_type(name)}
            for name in index.key.names
        ],
        "GlobalSecondaryIndexUpdates": [{"Create": create}],
    }
    try:
        await client.call("update_table", request)
    except Conflict:
        # Another process, or an earlier attempt whose response was lost, may already be creating
        # the index. Otherwise, `wait_for_index` times out.
        return


async def wait_for_index(
    client: DynamoClient, table_name: str, index: Index, report: Callable[[str], None], subject: str
) -> None:
    """Wait until the index is active. The caller sets a deadline."""
    poll = _Poll(report, INDEX_POLL_S_MAX)
    while True:
        index_description = _find_index(await describe_table(client, table_name), index) or {}
        status = index_description.get("IndexStatus", "not started")
        if status == "ACTIVE":
            report(f"{subject}: active")
            return
        await poll.wait(
            f"{subject}: {status.lower()}, {index_description.get('ItemCount', 0)} items"
        )


def _find_index(description: dict[str, Any], index: Index) -> dict[str, Any] | None:
    indexes = description.get("GlobalSecondaryIndexes", [])
    return next((entry for entry in indexes if entry["IndexName"] == index.name), None)


async def change_ttl_attribute(
    client: DynamoClient,
    table_name: str,
    attribute: str,
    report: Callable[[str], None],
    subject: str,
) -> None:
    """Change the TTL attribute to `attribute`, and wait until TTL uses it.

    The caller sets a deadline.

    Guarantees:
        Idempotent and resumable. Cancellation: safe; TTL may be off until the next run.

    Raises:
        CorruptData: DynamoDB rejects the change for a reason other than a recent change.
    """
    poll = _Poll(report, EXPIRY_POLL_S_MAX)
    while True:
        state = await describe_ttl(client, table_name)
        status, current = state["TimeToLiveStatus"], state.get("AttributeName", attribute)
        if current == attribute and status in {"ENABLED", "ENABLING"}:
            report(f"{subject}: TTL reads {attribute}")
            return
        if status == "ENABLED":
            await _set_expiry(client, table_name, current, is_on=False)
        elif status == "DISABLED":
            await _set_expiry(client, table_name, attribute, is_on=True)
        await poll.wait(f"{subject}: TTL is {status.lower()}")


async def _set_expiry(
    client: DynamoClient, table_name: str, attribute: str, *, is_on: bool
) -> None:
    specification = {"Enabled": is_on, "AttributeName": attribute}
    request = {"TableName": table_name, "TimeToLiveSpecification": specification}
    try:
        await client.call("update_time_to_live", request)
    except CorruptData as exc:
        # "Time to live has been modified multiple times within a fixed interval": retry later.
        if "fixed interval" not in exc.message and "already" not in exc.message:
            raise
