"""How much the tables hold, as DynamoDB says: its figures are up to six hours old."""

from __future__ import annotations

import dataclasses
from typing import Any

from chatserver.config import Warm
from chatserver.warm.client import DynamoClient
from chatserver.warm.tables import TABLES


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """A table (``messages``) or an index (``messages/sender``).

    Units a second, 0 where it is on demand. Of tables that tenants share, all tenants' together.
    """

    name: str
    items: int
    bytes: int
    write_units: int
    read_units: int


async def list_sizes(client: DynamoClient, settings: Warm) -> list[Size]:
    """Return what each table and index holds. Cost: a DescribeTable a table.

    Raises:
        Unavailable: DynamoDB does not answer.
        ConfigError: a table is absent, or may not be looked at.
    """
    found: list[Size] = []
    for table in TABLES:
        answer = await client.call("describe_table", {"TableName": table.name_in(settings)})
        about = answer["Table"]
        found.append(_size_of(table.name, about, "Table"))
        found += [
            _size_of(f"{table.name}/{index['IndexName']}", index, "Index")
            for index in about.get("GlobalSecondaryIndexes", ())
        ]
    return found


def _size_of(name: str, about: dict[str, Any], kind: str) -> Size:
    provisioned = about.get("ProvisionedThroughput") or {}
    return Size(
        name,
        int(about.get("ItemCount", 0)),
        int(about.get(f"{kind}SizeBytes", 0)),
        int(provisioned.get("WriteCapacityUnits", 0)),
        int(provisioned.get("ReadCapacityUnits", 0)),
    )
