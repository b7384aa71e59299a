"""Tenant isolation: deployments share tables, each with its own key prefix.

With `warm.tenant` set, every partition key value, of a table or an index, is stored with the prefix
``<tenant>/``. `prefix_request` adds the prefix to requests, and `strip_response` removes it from
responses, so repositories cannot forget it. IAM's ``dynamodb:LeadingKeys`` can then limit a role to
the partitions of one tenant. Ids and our own keys contain no ``/``, so no unprefixed key looks like
a tenant's.

`chatserver.warm.schema.tables` defines the key attributes. An unsupported operation or expression
raises an error before the request is sent. Another tenant's item in a response raises an error too.
A Scan reads the items of all tenants, and DynamoDB filters them, so it costs the units of the whole
table. Its `LastEvaluatedKey` may belong to another tenant and is therefore not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chatserver.config import Warm
from chatserver.errors import CorruptData
from chatserver.warm.dynamo.expressions import KEY_CONDITION, UnknownForm, find_comparisons
from chatserver.warm.schema.tables import TABLES, TableSchema

Item = dict[str, dict[str, Any]]

SEPARATOR: Final = "/"
# Operations on whole tables: all tenants share the tables.
_ABOUT_TABLES: Final = frozenset(
    {
        "create_table",
        "describe_continuous_backups",
        "describe_stream",
        "describe_table",
        "describe_time_to_live",
        "get_records",  # the response has the records of all tenants; `streams.reader` filters them
        "get_shard_iterator",
        "list_streams",
        "list_tables",
        "update_table",
        "update_time_to_live",
    }
)
_ONE_ITEM: Final = frozenset({"delete_item", "get_item", "put_item", "update_item"})
_ACTIONS: Final = {"transact_write_items": "TransactItems", "transact_get_items": "TransactItems"}
# Legacy parameters that are not supported; DynamoDB replaced them by expressions.
_OLD_FORMS: Final = frozenset(
    {
        "AttributeUpdates",
        "ConditionalOperator",
        "Expected",
        "KeyConditions",
        "QueryFilter",
        "ScanFilter",
    }
)


def get_partition_attributes(table: TableSchema) -> frozenset[str]:
    """Return the partition key attributes of the table and its indexes."""
    return frozenset({table.key.partition, *(index.key.partition for index in table.indexes)})


class Tenancy:
    """Adds the key prefix of one tenant to requests, and removes it from responses."""

    def __init__(self, settings: Warm) -> None:
        self._prefix = settings.tenant + SEPARATOR
        self._tables = {table.name_in(settings): table for table in TABLES}
        self._attributes = {
            name: get_partition_attributes(table) for name, table in self._tables.items()
        }

    # Requests.

    def prefix_request(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request with prefixed keys.

        Raises:
            AssertionError: the operation or the form of an expression is not supported.
        """
        if operation in _ABOUT_TABLES:
            return dict(request)
        if operation in _ONE_ITEM or operation == "query":
            return self._prefix_one(request, is_start_prefixed=True)
        if operation == "scan":
            return self._prefix_scan(request)
        if operation in _ACTIONS:
            actions = [
                {kind: self._prefix_one(action) for kind, action in operation_request.items()}
                for operation_request in request[_ACTIONS[operation]]
            ]
            return {**request, _ACTIONS[operation]: actions}
        if operation == "batch_get_item":
            prefixed_items = {
                table: {
                    **table_keys,
                    "Keys": [self._prefix_item(table, key) for key in table_keys["Keys"]],
                }
                for table, table_keys in request["RequestItems"].items()
            }
            return {**request, "RequestItems": prefixed_items}
        if operation == "batch_write_item":
            return {**request, "RequestItems": self._map_writes(request, self._prefix_item)}
        raise AssertionError(f"{operation}: not supported with tenants")

    def _prefix_one(
        self, request: Mapping[str, Any], *, is_start_prefixed: bool = False
    ) -> dict[str, Any]:
        """Prefix the keys, items and compared values in a request on one table."""
        name = request["TableName"]
        if old := request.keys() & _OLD_FORMS:
            raise UnknownForm(f"{', '.join(old)}: use an expression")
        sent = dict(request)
        for part in ("Key", "Item", "ExclusiveStartKey") if is_start_prefixed else ("Key", "Item"):
            if part in request:
                sent[part] = self._prefix_item(name, request[part])
        comparisons = find_comparisons(request, self._attributes[name])
        if comparisons:
            values = dict(request["ExpressionAttributeValues"])
            for comparison in comparisons:
                values[comparison.value] = self._prefix_value(values[comparison.value])
            sent["ExpressionAttributeValues"] = values
        elif KEY_CONDITION in request:
            raise UnknownForm(f"{request[KEY_CONDITION]}: has no partition key")
        return sent

    def _prefix_scan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        sent = self._prefix_one(request)
        own = "begins_with(#tenant, :tenant)"
        others = request.get("FilterExpression")
        sent["FilterExpression"] = f"({others}) AND {own}" if others else own
        partition = self._tables[request["TableName"]].key.partition
        sent["ExpressionAttributeNames"] = {
            **request.get("ExpressionAttributeNames", {}),
            "#tenant": partition,
        }
        sent["ExpressionAttributeValues"] = {
            **sent.get("ExpressionAttributeValues", {}),
            ":tenant": {"S": self._prefix},
        }
        return sent

    def _prefix_item(self, table: str, item: Mapping[str, Any]) -> Item:
        prefixed = dict(item)
        for name in self._attributes[table]:
            if name in prefixed:
                prefixed[name] = {"S": self._prefix + prefixed[name]["S"]}
        return prefixed

    def _prefix_value(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {"S": self._prefix + value["S"]}

    # Responses.

    def strip_response(
        self, operation: str, request: Mapping[str, Any], aws_response: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the response to `request` without prefixes.

        Raises:
            CorruptData: an item belongs to another tenant.
        """
        stripped = dict(aws_response)
        if "Responses" in aws_response and operation == "batch_get_item":
            stripped["Responses"] = {
                table: [self.strip(table, item) for item in items]
                for table, items in aws_response["Responses"].items()
            }
        elif "Responses" in aws_response:
            stripped["Responses"] = [
                {**response, "Item": self.strip(self._get_table(action), response["Item"])}
                if response.get("Item")
                else response
                for response, action in zip(
                    aws_response["Responses"], request["TransactItems"], strict=True
                )
            ]
        if unprocessed := aws_response.get("UnprocessedKeys"):
            stripped["UnprocessedKeys"] = {
                table: {
                    **table_keys,
                    "Keys": [self.strip(table, key) for key in table_keys["Keys"]],
                }
                for table, table_keys in unprocessed.items()
            }
        if unprocessed := aws_response.get("UnprocessedItems"):
            stripped["UnprocessedItems"] = self._map_writes(
                {"RequestItems": unprocessed}, self.strip
            )
        if "Items" in aws_response:
            table = request["TableName"]
            stripped["Items"] = [self.strip(table, item) for item in aws_response["Items"]]
        for part in ("Item", "Attributes"):
            if part in aws_response:
                stripped[part] = self.strip(request["TableName"], aws_response[part])
        if aws_response.get("LastEvaluatedKey") and operation == "query":
            stripped["LastEvaluatedKey"] = self.strip(
                request["TableName"], aws_response["LastEvaluatedKey"]
            )
        return stripped

    def strip_stored(
        self, operation: str, request: Mapping[str, Any], stored: list[Item | None]
    ) -> list[Item | None]:
        """Return the existing items that a failed write returned, without prefixes.

        `stored` has one entry per action.
        """
        if operation in _ONE_ITEM:
            tables = [request["TableName"]]
        elif operation not in _ACTIONS:
            return stored
        else:
            tables = [self._get_table(action) for action in request[_ACTIONS[operation]]]
        return [
            item and self.strip(table, item) for table, item in zip(tables, stored, strict=True)
        ]

    def strip(self, table: str, item: Mapping[str, Any]) -> Item:
        """Return an item, or some of its attributes, without the tenant prefix.

        Raises:
            CorruptData: the item belongs to another tenant.
        """
        own = self.find_own(table, item)
        if own is None:
            raise CorruptData(f"table {table} returned an item that belongs to another tenant")
        return own

    def find_own(self, table: str, item: Mapping[str, Any]) -> Item | None:
        """Return an item without the tenant prefix, or None if it belongs to another tenant.

        Used by readers of all tenants' items, such as Stream readers.
        """
        own = dict(item)
        for name in self._attributes[table]:
            if name in own:
                text: str = own[name]["S"]
                if not text.startswith(self._prefix):
                    return None
                own[name] = {"S": text[len(self._prefix) :]}
        return own

    @staticmethod
    def _get_table(action: Mapping[str, Any]) -> str:
        ((_, operation),) = action.items()
        name: str = operation["TableName"]
        return name

    @staticmethod
    def _map_writes(request: Mapping[str, Any], change: Any) -> dict[str, list[dict[str, Any]]]:
        """Return the writes of a batch, with `change` applied to each item and key."""
        return {
            table: [
                {
                    kind: {part: change(table, item) for part, item in write.items()}
                    for kind, write in entry.items()
                }
                for entry in writes
            ]
            for table, writes in request["RequestItems"].items()
        }
