"""DynamoDB requests: actions, item keys and error responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from chatserver.dev.aws_limits.item_sizes import Item

ActionKind = Literal["put", "update", "delete", "check", "get"]
# Table name and values of the key attributes: ("chat_directory", ("u#alice", "cred#alice")).
ItemKey = tuple[str, tuple[str, ...]]

SINGLE_WRITES: Final[dict[str, ActionKind]] = {
    "PutItem": "put",
    "UpdateItem": "update",
    "DeleteItem": "delete",
}
_IN_TRANSACTIONS: Final[dict[str, ActionKind]] = {
    "Put": "put",
    "Update": "update",
    "Delete": "delete",
    "ConditionCheck": "check",
    "Get": "get",
}
_PREFIX: Final = "com.amazonaws.dynamodb.v20120810#"
THROUGHPUT: Final = (
    "The level of configured provisioned throughput for the table was exceeded. Consider "
    "increasing your provisioning level with the UpdateTable API."
)
_CONFLICT: Final = "Transaction is ongoing for the item"


class IndexInfo(msgspec.Struct, frozen=True):
    """A global secondary index. `projected` is None if it projects all attributes."""

    name: str
    key: tuple[str, ...]
    projected: frozenset[str] | None

    def project(self, item: Item | None) -> dict[str, Any] | None:
        """Return the index entry of an item; None if the item is not in the index."""
        if item is None or any(name not in item for name in self.key):
            return None
        if self.projected is None:
            return dict(item)
        return {name: value for name, value in item.items() if name in self.projected}


class TableInfo(msgspec.Struct, frozen=True):
    """A table: the names of its key attributes, partition key first, and its indexes."""

    name: str
    key: tuple[str, ...]
    indexes: tuple[IndexInfo, ...]

    def get_key(self, item: Item) -> ItemKey:
        """Return the key in an item, or in the `Key` of a request."""
        return self.name, tuple(to_text(item[name]) for name in self.key)

    def get_partition(self, item: Item) -> str:
        """Return the partition key value of an item."""
        return to_text(item[self.key[0]])


class Action(msgspec.Struct, frozen=True):
    """The part of a request that concerns one item."""

    kind: ActionKind
    table: str
    body: Mapping[str, Any]

    @property
    def target(self) -> Item:
        """The whole item for a put; the key for other actions."""
        target: Item = self.body["Item"] if self.kind == "put" else self.body["Key"]
        return target

    def changes(self, attributes: frozenset[str] | None) -> bool:
        """Return whether the action can change one of these attributes (None: any attribute)."""
        if self.kind in ("put", "delete"):
            return True
        if self.kind != "update":
            return False
        if attributes is None or "UpdateExpression" not in self.body:
            return True
        names = self.body.get("ExpressionAttributeNames") or {}
        text = self.body["UpdateExpression"]
        for mark in "=(),":
            text = text.replace(mark, " ")
        return any(names.get(word, word) in attributes for word in text.split())


def to_text(value: Mapping[str, Any]) -> str:
    """Return the value of a key attribute as text."""
    return str(next(iter(value.values())))


def parse_table(description: Mapping[str, Any]) -> TableInfo:
    """Return the keys and indexes of a table from its DescribeTable response."""
    key = _key_names(description)
    indexes = []
    for index in description.get("GlobalSecondaryIndexes") or []:
        own = _key_names(index)
        projection = index.get("Projection") or {}
        is_all = projection.get("ProjectionType") == "ALL"
        extra = projection.get("NonKeyAttributes") or []
        projected = None if is_all else frozenset((*key, *own, *extra))
        indexes.append(IndexInfo(index["IndexName"], own, projected))
    return TableInfo(description["TableName"], key, tuple(indexes))


def _key_names(description: Mapping[str, Any]) -> tuple[str, ...]:
    roles = {part["KeyType"]: part["AttributeName"] for part in description["KeySchema"]}
    return tuple(roles[role] for role in ("HASH", "RANGE") if role in roles)


def list_actions(operation: str, body: Mapping[str, Any]) -> list[Action]:
    """Return the actions in a request, in order. Queries and scans have none."""
    if operation in SINGLE_WRITES:
        return [Action(SINGLE_WRITES[operation], body["TableName"], body)]
    if operation == "GetItem":
        return [Action("get", body["TableName"], body)]
    if operation in ("TransactWriteItems", "TransactGetItems"):
        return [
            Action(_IN_TRANSACTIONS[name], action["TableName"], action)
            for action_item in body["TransactItems"]
            for name, action in action_item.items()
        ]
    if operation == "BatchWriteItem":
        return [
            Action("put" if name == "PutRequest" else "delete", table, write)
            for table, writes in body["RequestItems"].items()
            for put_request in writes
            for name, write in put_request.items()
        ]
    if operation == "BatchGetItem":
        return [
            Action("get", table, {"Key": key})
            for table, requested in body["RequestItems"].items()
            for key in requested["Keys"]
        ]
    return []


class RequestRefused(Exception):
    """The request is refused; `code` and `body` are the error response."""

    def __init__(self, code: str, message: str, **fields: Any) -> None:
        super().__init__(code)
        self.code = code
        self.body = {"__type": _PREFIX + code, "message": message, **fields}


def make_throttling_error() -> RequestRefused:
    """Return the error for a request that exceeds the limit of a partition."""
    return RequestRefused("ProvisionedThroughputExceededException", THROUGHPUT)


def make_conflict_error() -> RequestRefused:
    """Return the error for a single write while a transaction runs on its item."""
    return RequestRefused("TransactionConflictException", _CONFLICT)


def make_cancellation_error(code: str, refused: Sequence[bool]) -> RequestRefused:
    """Return the error for a transaction; `code` is the reason for the `refused` actions."""
    message = THROUGHPUT if code == "ProvisionedThroughputExceeded" else _CONFLICT
    reasons = [
        {"Code": code, "Message": message} if is_refused else {"Code": "None"}
        for is_refused in refused
    ]
    text = (
        "Transaction cancelled, please refer cancellation reasons for specific reasons "
        f"[{', '.join(reason['Code'] for reason in reasons)}]"
    )
    return RequestRefused("TransactionCanceledException", text, CancellationReasons=reasons)
