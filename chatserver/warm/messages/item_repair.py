"""Conditional repair of one item: sets missing attributes without overwriting newer writes.

The write requires that the item exists, has the revision that was read, and that the attributes to
change are as read. If a condition fails, the current item is evaluated again: it may need the same
repair, another one or none. An item is therefore repaired once, even if the response of the write
is lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from chatserver.errors import Unavailable
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.schema.tables import MessageField, Table

TRIES_MAX = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Mend:
    """Attributes to set in an item and to remove from it."""

    sets: Item
    removes: tuple[str, ...] = ()


def update_of(table: str, key: Item, item: Item, mend: Mend) -> dict[str, Any]:
    """Return the UpdateItem that applies a repair on condition that the item equals `item`."""
    names: dict[str, str] = {"#rev": MessageField.REV}
    values: Item = {":rev": item[MessageField.REV]}
    conditions, sets, removes = ["#rev = :rev"], [], []
    for number, name in enumerate([*mend.sets, *mend.removes]):
        mark = "#a" + str(number)
        names[mark] = name
        if name in item:
            values[":old" + str(number)] = item[name]
            conditions.append(mark + " = :old" + str(number))
        else:
            conditions.append("attribute_not_exists(" + mark + ")")
        if name in mend.sets:
            values[":new" + str(number)] = mend.sets[name]
            sets.append(mark + " = :new" + str(number))
        else:
            removes.append(mark)
    parts = (["SET " + ", ".join(sets)] if sets else []) + (
        ["REMOVE " + ", ".join(removes)] if removes else []
    )
    return {
        "TableName": table,
        "Key": key,
        "UpdateExpression": " ".join(parts),
        "ConditionExpression": " AND ".join(conditions),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        "ReturnConsumedCapacity": "TOTAL",
    }


async def mend_item(
    client: DynamoClient,
    table: Table,
    table_name: str,
    item: Item,
    mend: Callable[[Item], Mend | None],
) -> float:
    """Repair an item; return the write units, 0 if nothing has to be repaired.

    `item` is an earlier read of it, of any age.

    Guarantees:
        Idempotent. A newer write is never overwritten, and a deleted item is not created again.
        Cancellation: safe; the item is repaired, or not.

    Raises:
        Unavailable: the item may be repaired, or not.
    """
    key = {name: item[name] for name in table.key.names}
    for _ in range(TRIES_MAX):
        wanted = mend(item)
        if wanted is None:
            return 0.0
        try:
            answer = await client.call("update_item", update_of(table_name, key, item, wanted))
        except ConditionFailed as exc:
            stored = exc.stored[0] or await _find(client, table_name, key)
            if stored is None:
                return 0.0
            item = stored
        else:
            return float(answer.get("ConsumedCapacity", {}).get("CapacityUnits", 1.0))
    raise Unavailable(f"{table_name}: the item at {key} keeps changing")


async def _find(client: DynamoClient, table_name: str, key: Item) -> Item | None:
    request = {"TableName": table_name, "Key": key, "ConsistentRead": True}
    item: Item | None = (await client.call("get_item", request)).get("Item")
    return item
