"""DynamoDB metering: capacity units, calls and failures by feature, table and chat.

Each call asks DynamoDB for its consumed capacity. The units are counted in metrics by `Feature`,
and in the process's `UsageAccumulator`, which `chatserver cost` reads.

The units are the exact values that DynamoDB returns. A write whose condition fails costs one or two
units, but DynamoDB does not return them, so such calls are counted without units. A call is
attributed to the chat whose items it accesses. The units of a batch are divided among its chats by
the number and size of their items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from chatserver.config import Warm
from chatserver.telemetry import metrics
from chatserver.telemetry.dynamodb_usage import Feature, Kind, UsageAccumulator
from chatserver.warm.dynamo.expressions import UnknownForm, find_comparisons
from chatserver.warm.schema.tables import (
    DIRECTORY,
    MESSAGES,
    TABLES,
    Key,
    MessageField,
    TableSchema,
)

READS: Final = frozenset({"batch_get_item", "get_item", "query", "scan", "transact_get_items"})
WRITES: Final = frozenset(
    {"batch_write_item", "delete_item", "put_item", "transact_write_items", "update_item"}
)
Failure = Literal["condition", "failed", "refused", "throttled"]
_METERED: Final = READS | WRITES
# TOTAL returns one sum for a table and its indexes. INDEXES, which lists them separately, takes
# more CPU (docs/decisions/0029-cost-and-capacity.md).
LEVEL: Final = "TOTAL"
# Partition prefixes of chats in `directory`; see `chatserver.warm.chats.directory_items` and
# `chatserver.warm.archive.manifests`.
CHAT_PREFIXES: Final = ("c#", "a#")
_NO_CHATS: Final = frozenset({"a#late"})
_ITEM_UNITS: Final = 4  # write units of a short message and its index entries; each KB adds one
_KEYS_OF_CHATS: Final = frozenset({MessageField.CHAT, MessageField.FILES_OF})


def request_consumed_capacity(operation: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the request with ReturnConsumedCapacity added, unless it is already set."""
    if operation not in _METERED or "ReturnConsumedCapacity" in request:
        return request
    return {**request, "ReturnConsumedCapacity": LEVEL}


class Meter:
    """Records the capacity consumed by all clients of a process."""

    def __init__(self, settings: Warm) -> None:
        self.usage = UsageAccumulator()
        self._tables: dict[str, TableSchema] = {table.name_in(settings): table for table in TABLES}
        self._messages = MESSAGES.name_in(settings)

    def record(
        self,
        feature: Feature,
        operation: str,
        request: Mapping[str, Any],
        response: Mapping[str, Any],
    ) -> None:
        """Record the units of a call, given the request and response without tenant prefixes."""
        unprocessed = response.get("UnprocessedItems") or response.get("UnprocessedKeys")
        metrics.DYNAMODB_CALLS.labels(feature, operation, "partial" if unprocessed else "ok").inc()
        consumed = response.get("ConsumedCapacity")
        if not consumed:
            return  # the server does not report capacity, or the call concerns a whole table
        kind: Kind = "read" if operation in READS else "write"
        units = metrics.DYNAMODB_UNITS[kind]
        for usage in consumed if isinstance(consumed, list) else (consumed,):
            # Servers other than AWS omit some fields.
            name = usage.get("TableName") or request.get("TableName", "")
            spent = float(usage.get("CapacityUnits", 0.0))
            table = self._tables.get(name)
            label = table.name if table is not None else "other"
            units.labels(feature, label).inc(spent)
            self.usage.record_units(feature, label, kind, spent)
            if table is not None:
                shares = self._compute_shares(table, name, operation, request, response)
                if shares:
                    self.usage.record_chat_units(kind, shares, spent)
        if operation == "batch_write_item" and feature == "persist":
            self._count_messages(request, response)

    def record_failure(self, feature: Feature, operation: str, result: Failure) -> None:
        metrics.DYNAMODB_CALLS.labels(feature, operation, result).inc()

    def record_retry(self, feature: Feature) -> None:
        metrics.DYNAMODB_RETRIES.labels(feature).inc()

    # Attribution to chats.

    def _compute_shares(
        self,
        table: TableSchema,
        name: str,
        operation: str,
        request: Mapping[str, Any],
        response: Mapping[str, Any],
    ) -> Mapping[str, float]:
        """Return each chat's relative share of a call's units; "" stands for items of no chat."""
        if operation in ("query", "scan"):
            chat = _get_query_chat(table, request)
            return {chat: 1.0} if chat else {}
        shares: dict[str, float] = {}
        for item in _list_items(operation, name, request, response):
            chat = _get_chat(table, item)
            body = item.get(MessageField.BODY)
            # Approximate relative cost, to divide the units of a batch.
            weight = _ITEM_UNITS + (len(next(iter(body.values()))) // 1024 if body else 0)
            shares[chat] = shares.get(chat, 0.0) + weight
        return shares

    def _count_messages(self, request: Mapping[str, Any], response: Mapping[str, Any]) -> None:
        items = _list_items("batch_write_item", self._messages, request, response)
        # Do not count removal markers: they are in the same table, but have no status.
        self.usage.record_messages(sum(MessageField.STATUS in item for item in items))


def _list_items(
    operation: str, table: str, request: Mapping[str, Any], response: Mapping[str, Any]
) -> Iterable[Mapping[str, Any]]:
    if operation == "batch_write_item":
        writes = request["RequestItems"].get(table, ())
        unprocessed = (response.get("UnprocessedItems") or {}).get(table)
        done = [write for write in writes if write not in unprocessed] if unprocessed else writes
        return [
            write["PutRequest"]["Item"] if "PutRequest" in write else write["DeleteRequest"]["Key"]
            for write in done
        ]
    if operation == "batch_get_item":
        items: list[Mapping[str, Any]] = response.get("Responses", {}).get(table, [])
        return items
    if operation in ("transact_write_items", "transact_get_items"):
        request_items = [
            request_item for action in request["TransactItems"] for request_item in action.values()
        ]
        return [
            request_item.get("Item") or request_item["Key"]
            for request_item in request_items
            if request_item["TableName"] == table
        ]
    return [request.get("Item") or request["Key"]]


def _get_query_chat(table: TableSchema, request: Mapping[str, Any]) -> str:
    key = _get_key(table, request.get("IndexName"))
    if table is MESSAGES and key.partition not in _KEYS_OF_CHATS:
        return ""
    try:
        comparisons = find_comparisons(request, frozenset({key.partition}))
    except UnknownForm:
        return ""
    for comparison in comparisons:
        if comparison.is_equality:
            value = request["ExpressionAttributeValues"][comparison.value]
            return _get_chat(table, {table.key.partition: value})
    return ""


def _get_key(table: TableSchema, index: str | None) -> Key:
    return next(
        (index_entry.key for index_entry in table.indexes if index_entry.name == index), table.key
    )


def _get_chat(table: TableSchema, item: Mapping[str, Any]) -> str:
    """Return the chat of an item, or "" if the item belongs to no chat."""
    if table is MESSAGES:
        key = item.get(MessageField.CHAT)
        return "" if key is None else key["S"].partition("#")[0]
    if table is not DIRECTORY or table.key.partition not in item:
        return ""
    partition: str = item[table.key.partition]["S"]
    if not partition.startswith(CHAT_PREFIXES) or partition in _NO_CHATS:
        return ""
    return partition[2:]
