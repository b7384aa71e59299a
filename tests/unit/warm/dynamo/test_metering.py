"""Whose part of a call's units is whose."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver.config import Warm
from chatserver.telemetry.dynamodb_usage import Spending
from chatserver.warm.archive import manifests
from chatserver.warm.chats import records
from chatserver.warm.dynamo.metering import CHAT_PREFIXES, Meter, request_consumed_capacity
from chatserver.warm.schema.tables import FILES_INDEX, SENDER_INDEX, STATUS_INDEX

MESSAGES, DIRECTORY = "chat_messages", "chat_directory"


def spent(operation: str, request: dict[str, Any], units: float, **more: Any) -> Spending:
    """Return the usage recorded by one call."""
    meter = Meter(Warm())
    table = request.get("TableName") or next(iter(request.get("RequestItems", {MESSAGES: 0})))
    consumed: Any = {"TableName": table, "CapacityUnits": units}
    if operation.startswith(("batch", "transact")):
        consumed = [consumed]
    meter.record("persist", operation, request, {"ConsumedCapacity": consumed, **more})
    return meter.usage.drain()


def put(chat: str, body: str = "", **more: Any) -> dict[str, Any]:
    """A write of a batch."""
    item = {"chatid": {"S": chat}, "ts": {"N": "1"}, "body": {"S": body}, "status": {"S": "x"}}
    return {"PutRequest": {"Item": item | more}}


def test_batch_is_divided_by_number_and_size_of_the_items() -> None:
    """A chat of long messages has the greater part of it."""
    writes = [put("a"), put("a"), put("b", "x" * 4096)]

    found = spent("batch_write_item", {"RequestItems": {MESSAGES: writes}}, 16.0)

    assert found.units == {("persist", "messages", "write"): 16.0}
    assert found.chats["write"] == {"a": 8.0, "b": 8.0}
    assert found.messages == 3


def test_what_a_batch_left_undone_is_nobodys_part() -> None:
    """It is not charged, and will be when it is done; nor is it counted as stored."""
    writes = [put("a"), put("b"), put("c")]
    left = {"UnprocessedItems": {MESSAGES: writes[1:]}}

    found = spent("batch_write_item", {"RequestItems": {MESSAGES: writes}}, 4.0, **left)

    assert (found.chats["write"], found.messages) == ({"a": 4.0}, 1)


def test_marker_is_of_its_chat_and_no_message() -> None:
    """It stands in a partition beside the chat's."""
    marker = put("a#gone")
    del marker["PutRequest"]["Item"]["status"]

    found = spent("batch_write_item", {"RequestItems": {MESSAGES: [put("a"), marker]}}, 5.0)

    assert (found.chats["write"], found.messages) == ({"a": 5.0}, 1)


@pytest.mark.parametrize(
    ("table", "index", "partition", "value", "chat"),
    [
        (MESSAGES, None, "chatid", "g-1", "g-1"),
        (MESSAGES, None, "chatid", "g-1#gone", "g-1"),
        (MESSAGES, STATUS_INDEX.name, "chatid", "g-1", "g-1"),
        (MESSAGES, FILES_INDEX.name, "files_of", "g-1", "g-1"),
        (MESSAGES, SENDER_INDEX.name, "sender_id", "alice", None),
        (DIRECTORY, None, "PK", records.chat_key("g-1"), "g-1"),
        (DIRECTORY, None, "PK", manifests._partition("g-1"), "g-1"),
        (DIRECTORY, None, "PK", records.user_key("alice"), None),
        (DIRECTORY, None, "PK", manifests._LATE, None),
        (DIRECTORY, "by_member", "SK", records.member_key("alice"), None),
    ],
)
def test_query_is_of_the_chat_whose_partition_it_reads(
    table: str, index: str | None, partition: str, value: str, chat: str | None
) -> None:
    """By the keys that repositories make."""
    request: dict[str, Any] = {
        "TableName": table,
        "KeyConditionExpression": "#p = :p",
        "ExpressionAttributeNames": {"#p": partition},
        "ExpressionAttributeValues": {":p": {"S": value}},
    }
    if index is not None:
        request["IndexName"] = index

    found = spent("query", request, 2.5)

    assert sum(found.units.values()) == 2.5
    assert found.chats["read"] == ({chat: 2.5} if chat else {})


def test_marks_of_chats_are_those_of_the_repositories() -> None:
    """Spelled in two places, and the same."""
    keys = (records.chat_key("x"), manifests._partition("x"))
    assert tuple(key.removesuffix("x") for key in keys) == CHAT_PREFIXES


def test_transaction_is_divided_among_its_actions_in_the_table() -> None:
    """Those about a user are no chat's."""
    actions = [
        {"Put": {"TableName": DIRECTORY, "Item": records.row_key("c#a", "c#a")}},
        {"Delete": {"TableName": DIRECTORY, "Key": records.row_key("c#b", "m#x")}},
        {"Update": {"TableName": DIRECTORY, "Key": records.row_key("u#x", "u#x")}},
        {"ConditionCheck": {"TableName": DIRECTORY, "Key": records.row_key("u#y", "u#y")}},
    ]
    meter = Meter(Warm())
    consumed = [{"TableName": DIRECTORY, "CapacityUnits": 8.0}]

    answer = {"ConsumedCapacity": consumed}
    meter.record("membership", "transact_write_items", {"TransactItems": actions}, answer)

    found = meter.usage.drain()
    assert found.chats["write"] == {"a": 2.0, "b": 2.0}
    assert found.messages == 0


def test_every_call_about_items_asks_for_its_units_and_no_other() -> None:
    """A caller who asks for more gets that."""
    assert request_consumed_capacity("query", {"A": 1}) == {
        "A": 1,
        "ReturnConsumedCapacity": "TOTAL",
    }
    asks = {"ReturnConsumedCapacity": "INDEXES"}
    assert request_consumed_capacity("put_item", asks) is asks
    assert request_consumed_capacity("describe_table", {}) == {}


def test_server_that_tells_no_units_is_called_all_the_same() -> None:
    """Such as one for development."""
    meter = Meter(Warm())

    meter.record("history", "query", {"TableName": MESSAGES}, {"Items": []})

    assert meter.usage.drain().is_empty
