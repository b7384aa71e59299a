"""Tenant states: records of blocked, deleted and restored tenants, with the deletion receipts.

The keys of these records have no tenant prefix. So deleting a tenant does not delete its record,
and the IAM role of a tenant's processes cannot read it. Records contain no personal data.

Owns, in table `directory`, without a tenant:

    PK "tenants"  SK "tenant#<name>"    state S  at N (ms)  job S  progress S (JSON)  receipt S
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from chatserver.config import Warm
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.items import find_item
from chatserver.warm.schema.directory_attributes import TenantField as Field
from chatserver.warm.schema.tables import DIRECTORY

PARTITION: Final = "tenants"
PREFIX: Final = "tenant#"

State = Literal["active", "blocked", "deleting", "deleted", "restoring"]


class TenantState(NamedTuple):
    """Last operation on a tenant. `progress` and `receipt` are JSON."""

    tenant: str
    state: State
    at_ms: int
    job: str
    progress: str = "{}"
    receipt: str = ""


class TenantStates:
    """Repository of the records. The client must have no tenant."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        assert not settings.tenant
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    async def find(self, tenant: str) -> TenantState | None:
        """Return the record of a tenant, or None. Strongly consistent."""
        item = await find_item(self._client, self._table, _key(tenant))
        return None if item is None else _decode(item)

    async def put(self, record: TenantState) -> None:
        """Replace the record of a tenant. Idempotent."""
        request = {"TableName": self._table, "Item": encode_record(record)}
        await self._client.call("put_item", request)

    async def list_all(self, after: str, limit: int) -> list[TenantState]:
        """Return at most `limit` records with names greater than `after`, by name."""
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#pk = :pk AND #sk BETWEEN :low AND :high",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#sk": Field.SK},
            "ExpressionAttributeValues": {
                ":pk": {"S": PARTITION},
                ":low": {"S": f"{PREFIX}{after}\x01"},
                ":high": {"S": f"{PREFIX}\U0010ffff"},
            },
            "Limit": limit,
        }
        return [_decode(item) for item in (await self._client.call("query", request))["Items"]]


def encode_record(record: TenantState) -> Item:
    item = _key(record.tenant) | {
        Field.STATE: {"S": record.state},
        Field.AT: {"N": str(record.at_ms)},
        Field.JOB: {"S": record.job},
        Field.PROGRESS: {"S": record.progress},
    }
    if record.receipt:
        item[Field.RECEIPT] = {"S": record.receipt}
    return item


def _key(tenant: str) -> Item:
    return {Field.PK: {"S": PARTITION}, Field.SK: {"S": PREFIX + tenant}}


def _decode(item: Item) -> TenantState:
    state: Any = item[Field.STATE]["S"]
    return TenantState(
        item[Field.SK]["S"].removeprefix(PREFIX),
        state,
        int(item[Field.AT]["N"]),
        item[Field.JOB]["S"],
        item[Field.PROGRESS]["S"],
        item.get(Field.RECEIPT, {"S": ""})["S"],
    )
