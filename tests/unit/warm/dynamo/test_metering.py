"""Metering: the capacity units of a call, divided by chat and feature."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver.config import Warm
from chatserver.telemetry.dynamodb_usage import Spending
from chatserver.warm.archive import manifests
from chatserver.warm.chats import directory_items
from chatserver.warm.dynamo.metering import CHAT_PREFIXES, Meter, request_consumed_capacity
from chatserver.warm.schema.tables import FILES_INDEX, SENDER_INDEX, STATUS_INDEX

MESSAGES, DIRECTORY = "chat_messages", "chat_directory"


def usage_of(operation: str, request: dict[str, Any], units: float, **more: Any) -> Spending:
    """Return the usage recorded by one call."""
    meter = Meter(Warm())
    table = request.get("TableName") or next(iter(request.get("RequestItems", {MESSAGES: 0})))
    consumed: Any = {"TableName": table, "CapacityUnits": units}
    if operation.startswith(("batch", "transact")):
        consumed = [consumed]
    meter.record("persist", operation, request, {"ConsumedCapacity": consumed, **more})
    return meter.usage.drain()


def put(chat: str, body: str = "", **more: Any) -> dict[str, Any]:
    """Return a put request of a batch."""
    item = {"chatid": {"S": chat}, "ts": {"N": "1"}, "body": {"S": body}, "status": {"S": "x"}}
    return {"PutRequest": {"Item": item | more}}


def test_batch_is_divided_by_number_and_size_of_the_items() -> None:
    """A chat with longer messages is charged more units."""
    writes = [put("a"), put("a"), put("b", "x" * 4096)]

    found = usage_of("batch_write_item", {"RequestItems": {MESSAGES: writes}}, 16.0)

    assert found.units == {("persist", "messages", "write"): 16.0}
    assert found.chats["write"] == {"a": 8.0, "b": 8.0}
    assert found.messages == 3


def test_unprocessed_items_of_a_batch_are_not_charged() -> None:
    """An item is charged and counted as stored when a retry writes it."""
    writes = [put("a"), put("b"), put("c")]
    left = {"UnprocessedItems": {MESSAGES: writes[1:]}}

    found = usage_of("batch_write_item", {"RequestItems": {MESSAGES: writes}}, 4.0, **left)

    assert (found.chats["write"], found.messages) == ({"a": 4.0}, 1)


def test_marker_is_charged_to_its_chat_and_is_not_a_message() -> None:
    """The markers of a chat have a partition of their own."""
    marker = put("a#gone")
    del marker["PutRequest"]["Item"]["status"]

    found = usage_of("batch_write_item", {"RequestItems": {MESSAGES: [put("a"), marker]}}, 5.0)

    assert (found.chats["write"], found.messages) == ({"a": 5.0}, 1)


@pytest.mark.parametrize(
    ("table", "index", "partition", "value", "chat"),
    [
        (MESSAGES, None, "chatid", "g-1", "g-1"),
        (MESSAGES, None, "chatid", "g-1#gone", "g-1"),
        (MESSAGES, STATUS_INDEX.name, "chatid", "g-1", "g-1"),
        (MESSAGES, FILES_INDEX.name, "files_of", "g-1", "g-1"),
        (MESSAGES, SENDER_INDEX.name, "sender_id", "alice", None),
        (DIRECTORY, None, "PK", directory_items.chat_key("g-1"), "g-1"),
        (DIRECTORY, None, "PK", manifests._partition("g-1"), "g-1"),
        (DIRECTORY, None, "PK", directory_items.user_key("alice"), None),
        (DIRECTORY, None, "PK", manifests._LATE, None),
        (DIRECTORY, "by_member", "SK", directory_items.member_key("alice"), None),
    ],
)
def test_query_is_charged_to_the_chat_of_its_partition(
    table: str, index: str | None, partition: str, value: str, chat: str | None
) -> None:
    """The chat is found by the key formats of the repositories."""
    request: dict[str, Any] = {
        "TableName": table,
        "KeyConditionExpression": "#0 = :0e0",
        "ExpressionAttributeNames": {"#0": partition},
        "ExpressionAttributeValues": {":0e0": {"S": value}},
    }
    if index is not None:
        request["IndexName"] = index

    found = usage_of("query", request, 2.5)

    assert sum(found.units.values()) == 2.5
    assert found.chats["read"] == ({chat: 2.5} if chat else {})


def test_chat_key_prefixes_equal_those_of_the_repositories() -> None:
    """The prefixes are defined in two places."""
    keys = (directory_items.chat_key("x"), manifests._partition("x"))
    assert tuple(key.removesuffix("x") for key in keys) == CHAT_PREFIXES


def test_transaction_is_divided_by_its_actions() -> None:
    """Actions on users are not charged to a chat."""
    actions = [
        {"Put": {"TableName": DIRECTORY, "Item": directory_items.row_key("c#a", "c#a")}},
        {"Delete": {"TableName": DIRECTORY, "Key": directory_items.row_key("c#b", "m#x")}},
        {"Update": {"TableName": DIRECTORY, "Key": directory_items.row_key("u#x", "u#x")}},
        {"ConditionCheck": {"TableName": DIRECTORY, "Key": directory_items.row_key("u#y", "u#y")}},
    ]
    meter = Meter(Warm())
    consumed = [{"TableName": DIRECTORY, "CapacityUnits": 8.0}]

    response = {"ConsumedCapacity": consumed}
    meter.record("membership", "transact_write_items", {"TransactItems": actions}, response)

    found = meter.usage.drain()
    assert found.chats["write"] == {"a": 2.0, "b": 2.0}
    assert found.messages == 0


def test_item_calls_request_their_consumed_capacity() -> None:
    """A more detailed request of the caller is kept."""
    assert request_consumed_capacity("query", {"A": 1}) == {
        "A": 1,
        "ReturnConsumedCapacity": "TOTAL",
    }
    request = {"ReturnConsumedCapacity": "INDEXES"}
    assert request_consumed_capacity("put_item", request) is request
    assert request_consumed_capacity("describe_table", {}) == {}


def test_response_without_units_records_nothing() -> None:
    """Some local servers do not report consumed capacity."""
    meter = Meter(Warm())

    meter.record("history", "query", {"TableName": MESSAGES}, {"Items": []})

    assert meter.usage.drain().is_empty
