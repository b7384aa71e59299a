"""Simulated DynamoDB server: operations on items, as the API names them.

Items are kept as DynamoDB's JSON. The caller decodes each request and encodes each response, so no
object is shared with the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from chatserver.dev.aws_limits.expressions import Unsupported, compile_condition
from chatserver.dev.aws_limits.item_sizes import Item
from tests.simulation.dynamodb.expressions import compile_update, parse_projection, project
from tests.simulation.dynamodb.key_conditions import split
from tests.simulation.dynamodb.tables import Table

Body = dict[str, Any]
Response = tuple[int, Body]
_PREFIX: Final = "com.amazonaws.dynamodb.v20120810#"
_BATCH_WRITES_MAX: Final = 25
_TRANSACTION_MAX: Final = 100
_PAGE_ITEMS: Final = 100  # in place of 1 MB, so that some reads need several pages


class Failure(Exception):
    """An error response."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.body: Body = {"__type": _PREFIX + code, "message": message, **more}


def make_condition_failure(item: Item | None) -> Failure:
    more = {} if item is None else {"Item": item}
    return Failure("ConditionalCheckFailedException", "The conditional request failed", **more)


class DynamoDbServer:
    """All tables. `handle` never waits, so each request is atomic."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.on_change: list[Callable[[Table, Item | None, Item | None], None]] = []
        self.requests = 0
        self._tokens: dict[str, None] = {}  # of transactions
        self._operations: dict[str, Callable[[Body], Body]] = {
            "PutItem": self._put_item,
            "UpdateItem": self._update_item,
            "DeleteItem": self._delete_item,
            "GetItem": self._get_item,
            "Query": self._query,
            "Scan": self._scan,
            "BatchGetItem": self._batch_get,
            "BatchWriteItem": self._batch_write,
            "TransactGetItems": self._transact_get,
            "TransactWriteItems": self._transact_write,
            "CreateTable": self._create_table,
            "DescribeTable": self._describe_table,
            "UpdateTimeToLive": self._update_ttl,
            "DescribeTimeToLive": self._describe_ttl,
        }

    def handle(self, operation: str, body: Body) -> Response:
        """Run a request; return its status and response."""
        self.requests += 1
        try:
            return 200, self._operations[operation](body)
        except Failure as failure:
            return 400, failure.body
        except Unsupported as exc:
            return 400, Failure("ValidationException", f"invalid expression: {exc}").body

    def add_operations(self, operations: Mapping[str, Callable[[Body], Body]]) -> None:
        self._operations |= operations

    async def call(self, operation: str, request: Mapping[str, Any]) -> Response:
        """Like `handle`, for `chatserver.dev.aws_limits`."""
        return self.handle(operation, dict(request))

    def get_table(self, name: str) -> Table:
        table = self.tables.get(name)
        if table is None:
            raise Failure("ResourceNotFoundException", "Requested resource not found")
        return table

    # Writes

    def _put_item(self, body: Body) -> Body:
        old, _ = self._apply("Put", body)
        returned = {"Attributes": old} if body.get("ReturnValues") == "ALL_OLD" and old else {}
        return returned | self._count(body, body["TableName"])

    def _delete_item(self, body: Body) -> Body:
        old, _ = self._apply("Delete", body)
        returned = {"Attributes": old} if body.get("ReturnValues") == "ALL_OLD" and old else {}
        return returned | self._count(body, body["TableName"])

    def _update_item(self, body: Body) -> Body:
        old, new = self._apply("Update", body)
        returned: Body = {}
        match body.get("ReturnValues"):
            case "ALL_OLD" if old is not None:
                returned = {"Attributes": old}
            case "ALL_NEW":
                returned = {"Attributes": new}
            case None | "NONE" | "ALL_OLD":
                pass
            case other:
                raise Failure("ValidationException", f"not simulated: {other}")
        return returned | self._count(body, body["TableName"])

    def _apply(self, kind: str, body: Body) -> tuple[Item | None, Item | None]:
        """Check the condition of a write and run it; return the item before and after."""
        table = self.get_table(body["TableName"])
        old = table.find(body["Item"] if kind == "Put" else body["Key"])
        if not self._is_met(body, old):
            wants_old = body.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            raise make_condition_failure(old if wants_old else None)
        new = self._compute(kind, body, old)
        self._write(table, kind, body, old, new)
        return old, new

    def _is_met(self, body: Body, item: Item | None) -> bool:
        text = body.get("ConditionExpression")
        if text is None:
            return True
        names = body.get("ExpressionAttributeNames") or {}
        return compile_condition(text)(
            item or {}, names, body.get("ExpressionAttributeValues") or {}
        )

    def _compute(self, kind: str, body: Body, old: Item | None) -> Item | None:
        if kind == "Delete":
            return None
        if kind == "Put":
            item: Item = body["Item"]
            return item
        new = _copy(old) if old is not None else dict(body["Key"])
        names = body.get("ExpressionAttributeNames") or {}
        values = body.get("ExpressionAttributeValues") or {}
        before = {} if old is None else old
        for step in compile_update(body.get("UpdateExpression", "")):
            step(before, new, names, values)
        return new

    def _write(
        self, table: Table, kind: str, body: Body, old: Item | None, new: Item | None
    ) -> None:
        if new is None:
            table.remove(body["Key"])
        else:
            table.put(new)
        if old != new:
            for handle_change in self.on_change:
                handle_change(table, old, new)

    # Reads

    def _get_item(self, body: Body) -> Body:
        item = self._read(body)
        found = {} if item is None else {"Item": item}
        return found | self._count(body, body["TableName"])

    def _read(self, body: Body) -> Item | None:
        item = self.get_table(body["TableName"]).find(body["Key"])
        return None if item is None else self._project(body, item)

    def _project(self, body: Body, item: Item) -> Item:
        text = body.get("ProjectionExpression")
        if text is None:
            return item
        return project(item, parse_projection(text), body.get("ExpressionAttributeNames") or {})

    def _query(self, body: Body) -> Body:
        table = self.get_table(body["TableName"])
        index = body.get("IndexName")
        source = table.items if index is None else table.indexes[index]
        names = body.get("ExpressionAttributeNames") or {}
        values = body.get("ExpressionAttributeValues") or {}
        condition = body["KeyConditionExpression"]
        partition, operator, bounds = split(condition, names, values, source.partition)
        is_forward = body.get("ScanIndexForward", True)
        start = body.get("ExclusiveStartKey")
        after = None if start is None else (source.get_sort_value(start), table.get_place(start))
        items = source.list(partition, operator, bounds, after=after, is_forward=is_forward)
        return self._page(body, table, source, items)

    def _scan(self, body: Body) -> Body:
        table = self.get_table(body["TableName"])
        index = body.get("IndexName")
        source = table.items if index is None else table.indexes[index]
        items: Any = (item for _, item in source.iter_all())
        if (start := body.get("ExclusiveStartKey")) is not None:
            place = (source.get_value(start), source.get_sort_value(start), table.get_place(start))
            items = (
                item
                for item in items
                if (source.get_value(item), source.get_sort_value(item), table.get_place(item))
                > place
            )
        if body.get("TotalSegments", 1) > 1:
            segments, segment = body["TotalSegments"], body["Segment"]
            items = (i for i in items if _hash(source.get_value(i)) % segments == segment)
        return self._page(body, table, source, items)

    def _page(self, body: Body, table: Table, source: Any, items: Any) -> Body:
        limit, text = body.get("Limit"), body.get("FilterExpression")
        test = None if text is None else compile_condition(text)
        names = body.get("ExpressionAttributeNames") or {}
        values = body.get("ExpressionAttributeValues") or {}
        found, scanned, last = [], 0, None
        for item in items:
            if scanned in (limit, _PAGE_ITEMS):
                break
            scanned, last = scanned + 1, item
            if test is None or test(item, names, values):
                found.append(item)
        else:
            last = last if scanned == limit else None
        response: Body = {"Count": len(found), "ScannedCount": scanned}
        if body.get("Select") != "COUNT":
            response["Items"] = [self._project(body, item) for item in found]
        if last is not None:
            response["LastEvaluatedKey"] = table.get_key(last) | {
                name: last[name] for name in (source.partition, source.sort) if name is not None
            }
        return response | self._count(body, body["TableName"])

    # Batches and transactions

    def _batch_get(self, body: Body) -> Body:
        responses: dict[str, list[Item]] = {}
        for name, request in body["RequestItems"].items():
            found = [self._read({**request, "TableName": name, "Key": k}) for k in request["Keys"]]
            responses[name] = [item for item in found if item is not None]
        counted = self._count(body, *body["RequestItems"])
        return {"Responses": responses, "UnprocessedKeys": {}} | counted

    def _batch_write(self, body: Body) -> Body:
        writes = [(name, w) for name, ws in body["RequestItems"].items() for w in ws]
        if len(writes) > _BATCH_WRITES_MAX:
            raise Failure("ValidationException", "Too many items requested for the BatchWriteItem")
        places = set()
        for name, write in writes:
            table = self.get_table(name)
            key = (
                write["PutRequest"]["Item"]
                if "PutRequest" in write
                else write["DeleteRequest"]["Key"]
            )
            places.add((name, table.get_place(key)))
        if len(places) < len(writes):
            raise Failure("ValidationException", "Provided list of item keys contains duplicates")
        for name, write in writes:
            if "PutRequest" in write:
                self._apply("Put", {"TableName": name, "Item": write["PutRequest"]["Item"]})
            else:
                self._apply("Delete", {"TableName": name, "Key": write["DeleteRequest"]["Key"]})
        return {"UnprocessedItems": {}} | self._count(body, *body["RequestItems"])

    def _transact_get(self, body: Body) -> Body:
        gets = [action["Get"] for action in body["TransactItems"]]
        places = {
            (g["TableName"], self.get_table(g["TableName"]).get_place(g["Key"])) for g in gets
        }
        if len(places) < len(gets):
            raise Failure(
                "ValidationException",
                "Transaction request cannot include multiple operations on one item",
            )
        found = [self._read(get) for get in gets]
        tables = [action["Get"]["TableName"] for action in body["TransactItems"]]
        responses = [{} if item is None else {"Item": item} for item in found]
        return {"Responses": responses} | self._count(body, *tables)

    def _transact_write(self, body: Body) -> Body:
        actions = [next(iter(action.items())) for action in body["TransactItems"]]
        tables = [action["TableName"] for _, action in actions]
        token = body.get("ClientRequestToken")
        if token is not None and token in self._tokens:
            return self._count(body, *tables)
        if len(actions) > _TRANSACTION_MAX:
            raise Failure("ValidationException", "too many actions")
        prepared, reasons, places = [], list[Body](), set()
        for kind, action in actions:
            table = self.get_table(action["TableName"])
            key = action["Item"] if kind == "Put" else action["Key"]
            places.add((action["TableName"], table.get_place(key)))
            old = table.find(key)
            reasons.append({"Code": "None"})
            if not self._is_met(action, old):
                reasons[-1] = {"Code": "ConditionalCheckFailed", "Message": "condition failed"}
                if action.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and old:
                    reasons[-1]["Item"] = old
            prepared.append((table, kind, action, old))
        if len(places) < len(actions):
            raise Failure(
                "ValidationException",
                "Transaction request cannot include multiple operations on one item",
            )
        if any(reason["Code"] != "None" for reason in reasons):
            codes = ", ".join(reason["Code"] for reason in reasons)
            raise Failure(
                "TransactionCanceledException",
                f"Transaction cancelled, please refer cancellation reasons [{codes}]",
                CancellationReasons=reasons,
            )
        # An invalid update fails before anything is written.
        writes = [
            (table, kind, action, old, self._compute(kind, action, old))
            for table, kind, action, old in prepared
            if kind != "ConditionCheck"
        ]
        for write in writes:
            self._write(*write)
        if token is not None:
            self._tokens[token] = None
        return self._count(body, *tables)

    def _count(self, body: Body, *tables: str) -> Body:
        if body.get("ReturnConsumedCapacity", "NONE") == "NONE":
            return {}
        consumed = [{"TableName": name, "CapacityUnits": 1.0} for name in dict.fromkeys(tables)]
        is_single = "TransactItems" not in body and "RequestItems" not in body
        return {"ConsumedCapacity": consumed[0] if is_single else consumed}

    # Tables

    def _create_table(self, body: Body) -> Body:
        self.tables[body["TableName"]] = table = Table(body)
        return {"TableDescription": table.description}

    def _describe_table(self, body: Body) -> Body:
        return {"Table": self.get_table(body["TableName"]).description}

    def _update_ttl(self, body: Body) -> Body:
        specification = body["TimeToLiveSpecification"]
        self.get_table(body["TableName"]).expiry = specification["AttributeName"]
        return {"TimeToLiveSpecification": specification}

    def _describe_ttl(self, body: Body) -> Body:
        expiry = self.get_table(body["TableName"]).expiry
        status: Body = {"TimeToLiveStatus": "DISABLED"}
        if expiry is not None:
            status = {"TimeToLiveStatus": "ENABLED", "AttributeName": expiry}
        return {"TimeToLiveDescription": status}


def _hash(value: Any) -> int:
    return sum(value) if isinstance(value, bytes) else int(value)


def _copy(item: Item) -> Item:
    """Copy an item and its maps; an update replaces all other values."""
    return {
        name: {"M": _copy(value["M"])} if "M" in value else value for name, value in item.items()
    }
