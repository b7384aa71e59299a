"""Random DynamoDB requests for the contract test: the forms that the product uses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from chatserver.warm.dynamo.conditions import (
    Add,
    Attr,
    Change,
    Condition,
    Default,
    Discard,
    Element,
    Expressions,
    encode_item,
)

Request = tuple[str, dict[str, Any]]
TABLE = "contract"
CREATE: dict[str, Any] = {
    "AttributeDefinitions": [
        {"AttributeName": name, "AttributeType": kind}
        for name, kind in (("PK", "S"), ("SK", "S"), ("owner", "S"), ("at", "N"))
    ],
    "KeySchema": [
        {"AttributeName": "PK", "KeyType": "HASH"},
        {"AttributeName": "SK", "KeyType": "RANGE"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "by_owner",
            "KeySchema": [
                {"AttributeName": "owner", "KeyType": "HASH"},
                {"AttributeName": "at", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["text"]},
        }
    ],
}


class Requests:
    """Draws requests from a seed."""

    def __init__(self, seed: int, table: str) -> None:
        self._rng = random.Random(seed)
        self._table = table

    def iter(self, count: int) -> Iterator[Request]:
        kinds: list[Callable[[], Request]] = [
            self._put, self._put, self._update, self._update, self._update, self._delete,
            self._get, self._query, self._query, self._query_index, self._scan,
            self._batch_get, self._batch_write, self._transact, self._transact, self._transact_get,
        ]  # fmt: skip
        for _ in range(count):
            yield self._rng.choice(kinds)()

    # parts

    def _key(self) -> dict[str, Any]:
        return encode_item({"PK": f"p{self._rng.randrange(2)}", "SK": self._sort()})

    def _sort(self) -> str:
        return f"{self._rng.choice('ab')}#{self._rng.randrange(4)}"

    def _item(self) -> dict[str, Any]:
        rng = self._rng
        more: dict[str, Any] = {
            "text": rng.choice(("x", "yy", None)),
            "n": rng.choice((1, 2, 10, None)),
            "tags": rng.choice(({"a", "b"}, {"c"}, None)),
            "owner": rng.choice(("u1", "u2", None)),
            "at": rng.choice((5, 50, 500, None)),
            "map": rng.choice(({"k": "v"}, {}, None)),
            "flag": rng.choice((True, None)),
            "list": rng.choice((["a", 1], None)),
        }
        return self._key() | encode_item(more)

    def _condition(self) -> Condition:
        rng, n = self._rng, Attr("n")
        simple: list[Condition] = [
            Attr("PK").exists, Attr("PK").is_absent, n == 2, n != 2, n < 10, n >= 2,
            n.between(1, 5), n.is_in((1, 10)), Attr("text").begins_with("y"),
            Attr("tags").contains("a"), Attr("text").contains("y"), Attr("text") == "x",
            Attr("map", "k") == "v", Attr("map", "k").exists, ~(n == 1), Attr("flag") == True,  # noqa: E712
            Attr("none").is_absent, Attr("text") > 3,
        ]  # fmt: skip
        first, second = rng.choice(simple), rng.choice(simple)
        return rng.choice([first, first & second, first | second, ~(first | second)])

    def _changes(self) -> dict[str, Change]:
        rng = self._rng
        options: list[tuple[str, Change]] = [
            ("text", "z"), ("text", None), ("n", Add(3)), ("n", 7), ("tags", Add({"d", "a"})),
            ("tags", Discard({"a", "b", "c", "d"})), ("map", {"k": "w"}), ("count", Default(1)),
            ("owner", "u2"), ("at", 70), ("owner", None), ("list", ["z"]),
        ]  # fmt: skip
        changes = dict(rng.sample(options, rng.randint(1, 3)))
        if "map" not in changes and rng.random() < 0.2:
            changes[Element("map", "k2")] = rng.choice(("v2", None))
        return changes

    def _write(self, kind: str, *, is_action: bool) -> dict[str, Any]:
        rng, expressions = self._rng, Expressions()
        request: dict[str, Any] = {"TableName": self._table}
        if kind == "Put":
            request["Item"] = self._item()
        else:
            request["Key"] = self._key()
        if kind == "Update":
            expressions.add_update(self._changes())
        if kind == "ConditionCheck" or rng.random() < 0.5:
            expressions.add_condition("ConditionExpression", self._condition())
            if rng.random() < 0.5:
                request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if not is_action and kind != "ConditionCheck":
            options = ("NONE", "ALL_OLD", "ALL_NEW") if kind == "Update" else ("NONE", "ALL_OLD")
            request["ReturnValues"] = rng.choice(options)
        return request | expressions.build()

    # requests

    def _put(self) -> Request:
        return "put_item", self._write("Put", is_action=False)

    def _update(self) -> Request:
        return "update_item", self._write("Update", is_action=False)

    def _delete(self) -> Request:
        return "delete_item", self._write("Delete", is_action=False)

    def _get(self) -> Request:
        expressions = Expressions()
        expressions.add_projection(self._rng.choice(([], ["text", "n"], ["SK"])))
        request = {"TableName": self._table, "Key": self._key(), "ConsistentRead": True}
        return "get_item", request | expressions.build()

    def _read(self, condition: Condition | None, **more: Any) -> dict[str, Any]:
        rng, expressions = self._rng, Expressions()
        expressions.add_condition("KeyConditionExpression", condition)
        if rng.random() < 0.3:
            expressions.add_condition("FilterExpression", Attr("n") > 1)
        request: dict[str, Any] = {"TableName": self._table, **more}
        if rng.random() < 0.5:
            request["Limit"] = rng.randint(1, 3)
        return request | expressions.build()

    def _query(self) -> Request:
        rng, sort = self._rng, Attr("SK")
        condition = Attr("PK") == f"p{rng.randrange(2)}"
        low, high = sorted((self._sort(), self._sort()))
        condition = rng.choice(
            [
                condition, condition & sort.begins_with("a#"), condition & sort.between(low, high),
                condition & (sort < high), condition & (sort >= low), condition & (sort == low),
            ]
        )  # fmt: skip
        more: dict[str, Any] = {"ScanIndexForward": rng.random() < 0.5, "ConsistentRead": True}
        if rng.random() < 0.3:
            more["ExclusiveStartKey"] = {"PK": {"S": "p0"}, "SK": {"S": self._sort()}}
            condition = Attr("PK") == "p0"
        if rng.random() < 0.2:
            more["Select"] = "COUNT"
        return "query", self._read(condition, **more)

    def _query_index(self) -> Request:
        rng = self._rng
        condition = Attr("owner") == rng.choice(("u1", "u2"))
        condition = rng.choice([condition, condition & (Attr("at") > 10)])
        return "query", self._read(condition, IndexName="by_owner")

    def _scan(self) -> Request:
        return "scan", {"TableName": self._table, "ConsistentRead": True}

    def _batch_get(self) -> Request:
        keys = {tuple(map(str, key.values())): key for key in (self._key(), self._key())}
        return "batch_get_item", {"RequestItems": {self._table: {"Keys": list(keys.values())}}}

    def _batch_write(self) -> Request:
        put, delete = (
            {"PutRequest": {"Item": self._item()}},
            {"DeleteRequest": {"Key": self._key()}},
        )
        writes = [put, delete] if self._rng.random() < 0.5 else [put]
        return "batch_write_item", {"RequestItems": {self._table: writes}}

    def _transact(self) -> Request:
        kinds = [self._rng.choice(("Put", "Update", "Delete", "ConditionCheck")) for _ in range(2)]
        actions = [{kind: self._write(kind, is_action=True)} for kind in kinds]
        return "transact_write_items", {"TransactItems": actions}

    def _transact_get(self) -> Request:
        gets = [{"Get": {"TableName": self._table, "Key": self._key()}} for _ in range(2)]
        return "transact_get_items", {"TransactItems": gets}
