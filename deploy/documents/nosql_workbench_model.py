"""NoSQL Workbench model for the tables: keys, indexes, facets and example items.

The format is that of models exported by NoSQL Workbench 3.0. See also "Editing an existing data
model" in the Amazon DynamoDB Developer Guide. Each item is in the facet for its kind of row. Index
facets contain no items, because the visualizer shows the table's items in them.
"""

from __future__ import annotations

from typing import Any, Final

import chatserver
from chatserver.config import Warm
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.provisioning import make_create_request
from chatserver.warm.schema.tables import TABLES, Key, TableSchema
from deploy.documents.nosql_workbench_facets import FACETS, Facet, find_facet
from deploy.documents.nosql_workbench_samples import samples

# A constant date, so that the model changes only with the tables.
_DATE: Final = "Jan 01, 2026, 12:00 AM"
_DATA_ACCESS: Final[dict[str, Any]] = {"MySql": {}}
_ABOUT: Final = (
    "The tables of chatserver {version}, with the rows of a small team: Alice, Bob and Eve, their "
    "direct chat and group, a session with the companion Ada, posts and followers. Each facet is "
    "one kind of row or one index. docs/data-model.md describes all attributes."
)


def workbench() -> dict[str, Any]:
    return {
        "ModelName": "chatserver",
        "ModelMetadata": {
            "Author": "chatserver",
            "DateCreated": _DATE,
            "DateLastModified": _DATE,
            "Description": _ABOUT.format(version=chatserver.__version__),
            "AWSService": "Amazon DynamoDB",
            "Version": "3.0",
        },
        "DataModel": [_make_model(table, list(samples(table))) for table in TABLES],
    }


def _make_model(table: TableSchema, items: list[Item]) -> dict[str, Any]:
    definition = make_create_request(table, Warm(table_prefix=""))
    types = {
        attribute_definition["AttributeName"]: attribute_definition["AttributeType"]
        for attribute_definition in definition["AttributeDefinitions"]
    }
    for item in items:
        for name, value in item.items():
            types.setdefault(name, next(iter(value)))
    for index in table.indexes:
        for name in index.includes:
            types.setdefault(name, "S")
    others = sorted(types.keys() - set(table.key.names))
    return {
        "TableName": table.name,
        "KeyAttributes": _make_key_attributes(table, table.key),
        "NonKeyAttributes": [
            {"AttributeName": name, "AttributeType": types[name]} for name in others
        ],
        "TableFacets": [_make_facet(facet, items) for facet in FACETS if facet.table is table],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index.name,
                "KeyAttributes": _make_key_attributes(table, index.key),
                "Projection": projected["Projection"],
            }
            for index, projected in zip(
                table.indexes, definition.get("GlobalSecondaryIndexes", ()), strict=True
            )
        ],
        "DataAccess": _DATA_ACCESS,
        "BillingMode": definition["BillingMode"],
    }


def _make_facet(facet: Facet, items: list[Item]) -> dict[str, Any]:
    rows = sorted(
        (item for item in items if find_facet(facet.table, item) is facet),
        key=lambda item: [_sort_key(item[name]) for name in facet.table.key.names],
    )
    keys = set(facet.table.key.names)
    names = {name for item in rows for name in item} - keys
    if facet.index is not None:
        names = {*facet.index.key.names, *facet.index.includes} - keys
    return {
        "FacetName": facet.name,
        "KeyAttributeAlias": {
            "PartitionKeyAlias": facet.partition,
            "SortKeyAlias": facet.sort,
        },
        "TableData": rows,
        "NonKeyAttributes": sorted(names),
        "DataAccess": _DATA_ACCESS,
    }


def _sort_key(value: dict[str, Any]) -> tuple[int, str]:
    return (int(value["N"]), "") if "N" in value else (0, value["S"])


def _make_key_attributes(table: TableSchema, key: Key) -> dict[str, Any]:
    kinds = ("PartitionKey", "SortKey")
    return {
        kind: {"AttributeName": name, "AttributeType": table.get_type(name)}
        for kind, name in zip(kinds, key.names, strict=False)
    }
