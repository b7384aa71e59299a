"""Items in a request, and the capacity units that the server reports for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from chatserver.dev.aws_limits.capacity import Partition
from chatserver.dev.aws_limits.item_sizes import Item, count_read_units, count_write_units
from chatserver.dev.aws_limits.requests import Action, IndexInfo, ItemKey, TableInfo, to_text

Response = tuple[int, dict[str, Any]]


class ItemRequest(msgspec.Struct):
    """The part of a request that reads or writes one item, with the item's table and key.

    `before` is the item before a write; it is loaded only if the table has indexes.
    """

    action: Action
    table: TableInfo
    key: ItemKey
    before: Item | None = None

    @property
    def partition(self) -> Partition:
        """The table partition that contains the item."""
        return self.table.name, self.table.get_partition(self.action.target)

    @property
    def after(self) -> Item | None:
        return self.action.target if self.action.kind == "put" else None

    def list_indexes(self) -> list[tuple[IndexInfo, str]]:
        """Return the indexes that the write changes, and the partition of each."""
        indexes = []
        for index in self.table.indexes:
            if not self.action.changes(index.projected):
                continue
            before, after = index.project(self.before), index.project(self.after)
            if self.action.kind == "put" and before == after:
                continue
            entry = after or before
            if entry is not None:
                indexes.append((index, to_text(entry[index.key[0]])))
            elif self.action.kind == "update" and index.key[0] in self.table.key:
                indexes.append((index, to_text(self.action.target[index.key[0]])))
        return indexes


def is_image_needed(write: ItemRequest) -> bool:
    return bool(write.table.indexes) and write.action.kind in ("put", "update", "delete")


def count_known_units(write: ItemRequest, factor: int) -> float | None:
    """Return a write's capacity units times `factor`; None if the item sizes are unknown."""
    if write.action.kind == "put":
        return count_write_units(write.before, write.after) * float(factor)
    if write.action.kind == "delete" and write.before is not None:
        return count_write_units(write.before) * float(factor)
    return None


def count_items_read(response: Mapping[str, Any], table: TableInfo) -> dict[ItemKey, float | None]:
    """Return the read units of each item in a BatchGetItem response.

    They are computed as if the reads were strongly consistent.
    """
    responses = response.get("Responses")
    if not isinstance(responses, dict):
        return {}
    return {
        table.get_key(item): count_read_units(item, is_consistent=True)
        for item in responses.get(table.name, ())
        if all(name in item for name in table.key)
    }


# Consumed capacity


def request_capacity(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the request with `ReturnConsumedCapacity`.

    The response then reports the units by table and index.
    """
    return {**body, "ReturnConsumedCapacity": "INDEXES"}


def _list_capacities(response: Response) -> list[dict[str, Any]]:
    used = response[1].get("ConsumedCapacity") or []
    return used if isinstance(used, list) else [used]


def count_all_units(response: Response, table: str) -> float:
    """Return the units that the response reports for a table and all its indexes."""
    used = [capacity for capacity in _list_capacities(response) if capacity["TableName"] == table]
    return sum(float(usage["CapacityUnits"]) for usage in used)


def count_units(response: Response, table: str, index: str | None) -> float:
    """Return the units of a table without its indexes, or of one index."""
    for capacity in _list_capacities(response):
        if capacity["TableName"] == table:
            part = (
                capacity.get("Table")
                if index is None
                else (capacity.get("GlobalSecondaryIndexes", {}).get(index))
            )
            return 0.0 if part is None else float(part["CapacityUnits"])
    return 0.0


def reduce_capacity(requested: str | None, body: dict[str, Any]) -> None:
    """Reduce `ConsumedCapacity` in `body` to the detail that the client requested (`requested`)."""
    if requested == "INDEXES" or "ConsumedCapacity" not in body:
        return
    if requested != "TOTAL":
        del body["ConsumedCapacity"]
        return
    used = body["ConsumedCapacity"]
    for usage in used if isinstance(used, list) else [used]:
        for detail in ("Table", "GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
            usage.pop(detail, None)
