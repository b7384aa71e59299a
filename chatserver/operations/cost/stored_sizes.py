"""Sizes of the DynamoDB tables, up to six hours old, and of the S3 bucket by key prefix."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from chatserver.cold.client import ObjectStore
from chatserver.config import Warm
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.schema.tables import TABLES

PAGE: Final = 1000  # maximum keys per page of a listing, an AWS limit


class TableSize(msgspec.Struct, frozen=True):
    """Size of a table (``messages``) or an index (``messages/sender``), for all tenants together.

    Units are the provisioned capacity per second, 0 if on demand.
    """

    name: str
    items: int
    bytes: int
    write_units: int
    read_units: int


async def list_sizes(client: DynamoClient, settings: Warm) -> list[TableSize]:
    """Return the size of each table and index. Cost: one DescribeTable call per table.

    Raises:
        Unavailable: DynamoDB does not respond.
        ConfigError: a table does not exist or access is denied.
    """
    sizes: list[TableSize] = []
    for table in TABLES:
        response = await client.call("describe_table", {"TableName": table.name_in(settings)})
        description = response["Table"]
        sizes.append(_make_size(table.name, description, "Table"))
        sizes += [
            _make_size(f"{table.name}/{index['IndexName']}", index, "Index")
            for index in description.get("GlobalSecondaryIndexes", ())
        ]
    return sizes


def _make_size(name: str, description: dict[str, Any], kind: str) -> TableSize:
    provisioned = description.get("ProvisionedThroughput") or {}
    return TableSize(
        name,
        int(description.get("ItemCount", 0)),
        int(description.get(f"{kind}SizeBytes", 0)),
        int(provisioned.get("WriteCapacityUnits", 0)),
        int(provisioned.get("ReadCapacityUnits", 0)),
    )


class PrefixSize(msgspec.Struct, frozen=True):
    """Number and total size of the objects below a prefix."""

    prefix: str
    objects: int
    bytes: int


async def list_prefix_sizes(store: ObjectStore, objects_max: int) -> tuple[list[PrefixSize], bool]:
    """Return `(sizes, is_complete)`: sizes by prefix. Stops after about `objects_max` objects.

    Guarantees:
        Cost: one LIST per 1,000 objects. With a tenant, only the tenant's objects are listed.

    Raises:
        Unavailable: S3 does not respond.
        ConfigError: the bucket does not exist or access is denied.
    """
    by_prefix: dict[str, tuple[int, int]] = {}
    request: dict[str, Any] = {"MaxKeys": PAGE}
    listed = 0
    while True:
        response = await store.call("list_objects_v2", **request)
        for s3_object in response.get("Contents", ()):
            prefix = s3_object["Key"].partition("/")[0]
            count, size = by_prefix.get(prefix, (0, 0))
            by_prefix[prefix] = (count + 1, size + int(s3_object["Size"]))
            listed += 1
        token = response.get("NextContinuationToken")
        if token is None or listed >= objects_max:
            sizes = [PrefixSize(prefix, *totals) for prefix, totals in sorted(by_prefix.items())]
            return sizes, token is None
        request["ContinuationToken"] = token
