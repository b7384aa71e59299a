"""Sizes of the DynamoDB tables, as reported by DynamoDB; up to six hours old."""

from __future__ import annotations

import dataclasses
from typing import Any

from chatserver.config import Warm
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.schema.tables import TABLES


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """Size of a table (``messages``) or an index (``messages/sender``), for all tenants together.

    Units are the provisioned capacity per second, 0 if on demand.
    """

    name: str
    items: int
    bytes: int
    write_units: int
    read_units: int


async def list_sizes(client: DynamoClient, settings: Warm) -> list[Size]:
    """Return the size of each table and index. Cost: one DescribeTable call per table.

    Raises:
        Unavailable: DynamoDB does not respond.
        ConfigError: a table does not exist or access is denied.
    """
    sizes: list[Size] = []
    for table in TABLES:
        response = await client.call("describe_table", {"TableName": table.name_in(settings)})
        description = response["Table"]
        sizes.append(_make_size(table.name, description, "Table"))
        sizes += [
            _make_size(f"{table.name}/{index['IndexName']}", index, "Index")
            for index in description.get("GlobalSecondaryIndexes", ())
        ]
    return sizes


def _make_size(name: str, description: dict[str, Any], kind: str) -> Size:
    provisioned = description.get("ProvisionedThroughput") or {}
    return Size(
        name,
        int(description.get("ItemCount", 0)),
        int(description.get(f"{kind}SizeBytes", 0)),
        int(provisioned.get("WriteCapacityUnits", 0)),
        int(provisioned.get("ReadCapacityUnits", 0)),
    )
