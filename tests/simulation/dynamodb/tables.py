"""Tables of the simulated DynamoDB: items by key, and their indexes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import Any

from chatserver.dev.aws_limits.expressions import to_sortable
from chatserver.dev.aws_limits.item_sizes import Item
from tests.simulation.dynamodb.key_conditions import find_range

SortKey = Any
Place = tuple[Any, Any]  # partition and sort value


class Partitions:
    """Items by partition, each in the order of a sort key."""

    def __init__(self, partition: str, sort: str | None) -> None:
        self.partition = partition
        self.sort = sort
        # Partition value → ordered (sort value, place in the table), and the items by place.
        self._order: dict[Any, list[tuple[Any, Place]]] = {}
        self._items: dict[Any, dict[Place, Item]] = {}

    def has(self, item: Item) -> bool:
        return self.partition in item and (self.sort is None or self.sort in item)

    def get_value(self, item: Item) -> Any:
        return to_sortable(item[self.partition])

    def get_sort_value(self, item: Item) -> Any:
        return to_sortable(item[self.sort]) if self.sort is not None else 0

    def put(self, place: Place, item: Item) -> None:
        value = self.get_value(item)
        items = self._items.setdefault(value, {})
        if place not in items:
            insort(self._order.setdefault(value, []), (self.get_sort_value(item), place))
        items[place] = item

    def remove(self, place: Place, item: Item) -> None:
        value = self.get_value(item)
        del self._items[value][place]
        order = self._order[value]
        del order[bisect_left(order, (self.get_sort_value(item), place))]
        if not order:
            del self._order[value], self._items[value]

    def find(self, place: Place) -> Item | None:
        return self._items.get(place[0], {}).get(place)

    def replace(self, place: Place, old: Item, new: Item) -> bool:
        """Replace an item if both have the same keys; return whether it was replaced."""
        is_same = old[self.partition] == new[self.partition] and (
            self.sort is None or old[self.sort] == new[self.sort]
        )
        if is_same:
            self._items[self.get_value(new)][place] = new
        return is_same

    def list(
        self,
        value: Any,
        operator: str,
        bounds: Sequence[Any],
        *,
        after: tuple[Any, Place] | None,
        is_forward: bool,
    ) -> Sequence[Item]:
        """Return the items of a partition whose sort keys meet a condition, in order.

        `after`: the sort value and the place of an item; the list begins after it.
        """
        order, items = self._order.get(value, []), self._items.get(value, {})
        first, last = find_range(order, operator, bounds)
        if after is not None and is_forward:
            first = max(first, bisect_right(order, after))
        elif after is not None:
            last = min(last, bisect_left(order, after))
        found = [items[place] for _, place in order[first:last]]
        return found if is_forward else found[::-1]

    def iter_partition(self, value: Any, *, is_forward: bool) -> Iterator[tuple[Place, Item]]:
        order, items = self._order.get(value, ()), self._items.get(value, {})
        for _, place in order if is_forward else reversed(order):
            yield place, items[place]

    def iter_all(self) -> Iterator[tuple[Place, Item]]:
        for value in sorted(self._order):
            yield from self.iter_partition(value, is_forward=True)


class Table:
    """One table: its items, its indexes and its description."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.name: str = request["TableName"]
        self.items = _make_partitions(request["KeySchema"])
        self.indexes: dict[str, Partitions] = {}
        self.projections: dict[str, tuple[str, ...] | None] = {}
        for index in request.get("GlobalSecondaryIndexes", ()):
            self.indexes[index["IndexName"]] = _make_partitions(index["KeySchema"])
            self.projections[index["IndexName"]] = self._list_projected(index)
        self.expiry: str | None = None
        self.description: dict[str, Any] = {
            "TableName": self.name,
            "TableStatus": "ACTIVE",
            "TableArn": f"arn:aws:dynamodb:local:0:table/{self.name}",
            "KeySchema": request["KeySchema"],
            "AttributeDefinitions": request["AttributeDefinitions"],
            "GlobalSecondaryIndexes": [
                {**index, "IndexStatus": "ACTIVE"}
                for index in request.get("GlobalSecondaryIndexes", ())
            ],
            "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
            "ItemCount": 0,
            "TableSizeBytes": 0,
        }
        if "StreamSpecification" in request:
            self.description["StreamSpecification"] = request["StreamSpecification"]
            self.description["LatestStreamArn"] = f"{self.description['TableArn']}/stream/1"

    def _list_projected(self, index: dict[str, Any]) -> tuple[str, ...] | None:
        projection = index["Projection"]
        if projection["ProjectionType"] == "ALL":
            return None
        keys = [each["AttributeName"] for each in index["KeySchema"]]
        names = [self.items.partition, self.items.sort, *keys]
        names += projection.get("NonKeyAttributes", ())
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def get_place(self, key: Item) -> Place:
        """Return the place of an item or key."""
        return (self.items.get_value(key), self.items.get_sort_value(key))

    def get_key(self, item: Item) -> Item:
        """Return only the key attributes."""
        names = (self.items.partition, self.items.sort)
        return {name: item[name] for name in names if name is not None}

    def find(self, key: Item) -> Item | None:
        return self.items.find(self.get_place(key))

    def put(self, item: Item) -> None:
        place = self.get_place(item)
        old = self.items.find(place)
        self.items.put(place, item)
        for name, index in self.indexes.items():
            was_in, is_in = old is not None and index.has(old), index.has(item)
            projected = self._project(name, item) if is_in else {}
            if old is not None and was_in:
                if is_in and index.replace(place, old, projected):
                    continue
                index.remove(place, old)
            if is_in:
                index.put(place, projected)

    def remove(self, key: Item) -> Item | None:
        place = self.get_place(key)
        item = self.items.find(place)
        if item is None:
            return None
        self.items.remove(place, item)
        for index in self.indexes.values():
            if index.has(item):
                index.remove(place, item)
        return item

    def _project(self, name: str, item: Item) -> Item:
        projected = self.projections[name]
        if projected is None:
            return item
        return {each: item[each] for each in projected if each in item}


def _make_partitions(schema: list[dict[str, str]]) -> Partitions:
    names = {each["KeyType"]: each["AttributeName"] for each in schema}
    return Partitions(names["HASH"], names.get("RANGE"))
