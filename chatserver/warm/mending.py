"""Gives one item what it lacks, and never undoes what somebody else wrote meanwhile.

The write has three conditions: the item is there, it is at the revision that was read, and what is
to be changed is as it was read. If one does not hold, the item as it stands is looked at again: a
newer write may lack the same, be right already, or want something else. So an item is written once,
also when the answer to that write was lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from chatserver.errors import Unavailable
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.tables import MessageField, Table

TRIES_MAX = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Mend:
    """What an item lacks, and what it has and should not."""

    sets: Item
    removes: tuple[str, ...] = ()


def update_of(table: str, key: Item, item: Item, mend: Mend) -> dict[str, Any]:
    """Return the UpdateItem that mends an item which is as `item` says."""
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
    """Give an item what it lacks; return the write units, 0 if it lacks nothing (any more).

    `item` is what was read of it, however long ago.

    Guarantees:
        Idempotent. A newer write is never undone, and an item that is gone does not come back.
        Cancellation: safe; it is mended, or not.

    Raises:
        Unavailable: it may be mended, or not.
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
