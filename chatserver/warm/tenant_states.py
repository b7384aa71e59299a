"""Tenant states: records of blocked, deleted and restored tenants, with the deletion receipts.

The keys of these records have no tenant prefix. So deleting a tenant does not delete its record,
and the IAM role of a tenant's processes cannot read it. Records contain no personal data.

Owns, in table `directory`, without a tenant:

    PK "tenants"  SK "tenant#<name>"    state S  at N (ms)  job S  progress S (JSON)  receipt S
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table
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


TENANT_STATE: Final = Codec(
    TenantState,
    "tenants",
    "tenant#{tenant}",
    state=Field.STATE,
    at_ms=Field.AT,
    job=Field.JOB,
    progress=Field.PROGRESS,
    receipt=StoredField(Field.RECEIPT, absent=""),
)


class TenantStates:
    """Repository of the records. The client must have no tenant."""

    def __init__(self, client: DynamoClient) -> None:
        assert not client.settings.tenant
        self._table = Table(client, DIRECTORY)

    async def find(self, tenant: str) -> TenantState | None:
        """Return the record of a tenant, or None. Strongly consistent."""
        item = await self._table.find(TENANT_STATE.key(tenant=tenant))
        return None if item is None else TENANT_STATE.decode(item)

    async def put(self, record: TenantState) -> None:
        """Replace the record of a tenant. Idempotent."""
        await self._table.put(TENANT_STATE.encode(record))

    async def list_all(self, after: str, limit: int) -> list[TenantState]:
        """Return at most `limit` records with names greater than `after`, by name."""
        between = f"{PREFIX}{after}\x01", f"{PREFIX}\U0010ffff"
        span = Span(DIRECTORY, PARTITION, between=between)
        items = await self._table.query(span, limit=limit, is_consistent=False)
        return list(map(TENANT_STATE.decode, items))
