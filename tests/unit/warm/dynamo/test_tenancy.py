"""The tenant prefix of every key, and refusal of unknown request forms."""

from __future__ import annotations

import types
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.config import Settings, Warm
from chatserver.errors import CorruptData
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.expressions import UnknownForm
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table
from chatserver.warm.dynamo.tenancy import Tenancy, get_partition_attributes
from chatserver.warm.schema import tables
from chatserver.warm.schema.tables import TABLES

WARM = Warm(tenant="acme")
TENANCY = Tenancy(WARM)
MESSAGES, DIRECTORY = "chat_messages", "chat_directory"


ROWS = Table(cast(DynamoClient, types.SimpleNamespace(settings=WARM)), tables.DIRECTORY)


def handwritten(condition: str) -> dict[str, Any]:
    """Return a Query whose condition was not made by `conditions`."""
    return {
        "TableName": DIRECTORY,
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": {"#pk": "PK"},
        "ExpressionAttributeValues": {":v": {"S": "x"}},
    }


def test_prefixed_attributes_are_the_partition_keys_of_tables_and_indexes() -> None:
    """Numeric sort keys have no prefix."""
    found = {table.name: get_partition_attributes(table) for table in TABLES}

    assert found["messages"] >= {"chatid", "sender_id", "receiver_id", "files_of"}
    assert found["directory"] == {"PK", "SK"}
    assert found["chat_session"] == {"PK", "GSI1PK"}
    assert found["social"] == {"PK"}
    assert not any(get_partition_attributes(table) & table.numbers for table in TABLES)


def test_item_gets_the_prefix_when_sent_and_loses_it_when_received() -> None:
    """Only stored items have the prefix."""
    item = {"chatid": {"S": "d-1"}, "ts": {"N": "1"}, "sender_id": {"S": "bob"}, "x": {"S": "y"}}

    sent = TENANCY.prefix_request("put_item", {"TableName": MESSAGES, "Item": item})

    assert sent["Item"] == {
        "chatid": {"S": "acme/d-1"},
        "ts": {"N": "1"},
        "sender_id": {"S": "acme/bob"},
        "x": {"S": "y"},
    }
    assert TENANCY.strip(MESSAGES, sent["Item"]) == item


@pytest.mark.parametrize(
    ("span", "values"),
    [
        (Span(tables.DIRECTORY, "c#x"), ["c#x"]),
        (Span(tables.DIRECTORY, "c#x", prefix="m#"), ["c#x", "m#"]),
        (Span(tables.DIRECTORY, "c", between=("a", "b")), ["c", "a", "b"]),
        (Span(tables.DIRECTORY, "c#x", before="m#"), ["c#x", "m#"]),
        (Span(tables.DIRECTORY, "m#x", tables.MEMBER_INDEX), ["m#x"]),
    ],
)
def test_values_compared_with_keys_get_the_prefix(span: Span, values: list[str]) -> None:
    """This holds for all forms of key conditions, also of an index with swapped keys."""
    request = ROWS.build_query(span)

    sent = TENANCY.prefix_request("query", request)

    assert sent["KeyConditionExpression"] == request["KeyConditionExpression"]
    assert list(sent["ExpressionAttributeValues"].values()) == [
        {"S": f"acme/{value}"} for value in values
    ]


def test_values_of_other_attributes_are_unchanged() -> None:
    """This holds within the same expression and in an update."""
    condition = Attr("PK").exists & Attr("SK").is_in(("a", "b")) & (Attr("role") != "v")
    action = ROWS.update_action(("c#x", "m#a"), {"role": "v", "hidden": None}, if_=condition)

    sent = TENANCY.prefix_request("update_item", action["Update"])

    assert sent["Key"] == {"PK": {"S": "acme/c#x"}, "SK": {"S": "acme/m#a"}}
    assert [value["S"] for value in sent["ExpressionAttributeValues"].values()] == [
        "v", "acme/a", "acme/b", "v",
    ]  # fmt: skip
    assert action["Update"]["Key"] == {"PK": {"S": "c#x"}, "SK": {"S": "m#a"}}, (
        "the caller's request is not modified"
    )


@pytest.mark.parametrize(
    "request_",
    [
        ROWS.build_query(Span(tables.DIRECTORY, "c#x"), where=Attr("SK").contains("v")),
        ROWS.build_query(Span(tables.DIRECTORY, "c#x"), where=Attr("SK", "part") == "v"),
        handwritten("#pk = :v"),
        handwritten("PK = :v"),
        {"TableName": DIRECTORY, "FilterExpression": "#pk = #sk",
         "ExpressionAttributeNames": {"#pk": "PK", "#sk": "SK"}},
    ],
)  # fmt: skip
def test_unknown_expression_form_is_refused(request_: dict[str, Any]) -> None:
    """Otherwise a key could be sent without its prefix."""
    with pytest.raises(UnknownForm):
        TENANCY.prefix_request("query", request_)


@pytest.mark.parametrize("operation", ["execute_statement", "transact_something", "delete_table"])
def test_unknown_operation_is_refused(operation: str) -> None:
    """Without this check, PartiQL statements would bypass the prefix, for example."""
    with pytest.raises(AssertionError):
        TENANCY.prefix_request(operation, {})


@pytest.mark.parametrize(
    "more", [{"KeyConditions": {}}, {"Expected": {}}, {"AttributeUpdates": {}}, {"ScanFilter": {}}]
)
def test_legacy_request_parameters_are_refused(more: dict[str, Any]) -> None:
    """Their keys would be sent without the prefix."""
    request = {"TableName": DIRECTORY, "Key": {"PK": {"S": "x"}, "SK": {"S": "x"}}, **more}

    with pytest.raises(UnknownForm):
        TENANCY.prefix_request("update_item", request)


def test_query_without_a_partition_is_refused() -> None:
    """A key condition must contain a partition key."""
    request = ROWS.build_query(Span(tables.DIRECTORY, "c#x"))
    request["ExpressionAttributeNames"] = {"#0": "role"}

    with pytest.raises(UnknownForm):
        TENANCY.prefix_request("query", request)


def test_scan_is_filtered_and_its_start_key_is_unchanged() -> None:
    """The start key may be an item of another tenant."""
    place = {"PK": {"S": "zeta/c#x"}, "SK": {"S": "zeta/c#x"}}
    where = Attr("PK").begins_with("c#") | (Attr("role") == "owner")
    request = ROWS.build_scan(where=where, start=place)

    sent = TENANCY.prefix_request("scan", request)
    found = TENANCY.strip_response("scan", request, {"Items": [], "LastEvaluatedKey": place})

    own = "begins_with(#tenant, :tenant)"
    assert sent["FilterExpression"] == f"({request['FilterExpression']}) AND {own}"
    assert sent["ExpressionAttributeNames"]["#tenant"] == "PK"
    assert sent["ExpressionAttributeValues"] == {
        ":0o0": {"S": "acme/c#"},
        ":1e1": {"S": "owner"},
        ":tenant": {"S": "acme/"},
    }
    assert sent["ExclusiveStartKey"] == place
    assert found["LastEvaluatedKey"] == place


@pytest.mark.parametrize("chat", ["d-1", "zeta/d-1", "acmed-1", "acme2/d-1"])
def test_item_of_another_tenant_is_never_returned(chat: str) -> None:
    """Such an item is an error in a query, and is skipped in a scan of all tenants."""
    item = {"chatid": {"S": chat}, "ts": {"N": "1"}}

    with pytest.raises(CorruptData):
        TENANCY.strip_response("query", {"TableName": MESSAGES}, {"Items": [item]})
    assert TENANCY.find_own(MESSAGES, item) is None


TEXTS = st.text("ab#/$-1", min_size=1, max_size=8)
ITEMS = st.fixed_dictionaries(
    {"chatid": TEXTS, "status": TEXTS}, optional={"sender_id": TEXTS, "files_of": TEXTS}
).map(lambda texts: {name: {"S": text} for name, text in texts.items()} | {"ts": {"N": "1"}})


@given(st.lists(ITEMS, min_size=1, max_size=4))
def test_batches_and_transactions_round_trip(items: list[dict[str, Any]]) -> None:
    """Unprocessed entries and cancellation reasons match the caller's request."""
    writes = {MESSAGES: [{"PutRequest": {"Item": item}} for item in items]}
    keys = {MESSAGES: {"Keys": items, "ConsistentRead": True}}
    actions = [{"Put": {"TableName": MESSAGES, "Item": item}} for item in items]

    put = TENANCY.prefix_request("batch_write_item", {"RequestItems": writes})
    got = TENANCY.prefix_request("batch_get_item", {"RequestItems": keys})
    done = TENANCY.prefix_request("transact_write_items", {"TransactItems": actions})

    sent = [each["PutRequest"]["Item"] for each in put["RequestItems"][MESSAGES]]
    assert sent == got["RequestItems"][MESSAGES]["Keys"]
    assert sent == [each["Put"]["Item"] for each in done["TransactItems"]]
    assert all(item["chatid"]["S"].startswith("acme/") for item in sent)
    left = {"UnprocessedItems": put["RequestItems"]}
    assert TENANCY.strip_response("batch_write_item", {}, left)["UnprocessedItems"] == writes
    found = {"Responses": {MESSAGES: sent}, "UnprocessedKeys": got["RequestItems"]}
    response = TENANCY.strip_response("batch_get_item", {}, found)
    assert (response["Responses"], response["UnprocessedKeys"]) == ({MESSAGES: items}, keys)
    stored = TENANCY.strip_stored("transact_write_items", {"TransactItems": actions}, sent)
    assert stored == items


@pytest.mark.parametrize("tenant", ["a", "acme-2", "A" * 32, ""])
def test_valid_tenant_is_used_for_s3_too(tenant: str) -> None:
    """One setting applies to both tiers."""
    assert Settings(warm=Warm(tenant=tenant)).cold.tenant == tenant


@pytest.mark.parametrize("tenant", ["a/b", "a#b", "-a", "a b", "ä", "A" * 33, "a\n", "a*"])
def test_invalid_tenant_is_refused(tenant: str) -> None:
    """The tenant is a part of keys and of IAM patterns."""
    with pytest.raises(ValueError, match="tenant"):
        Warm(tenant=tenant)


def test_tenant_of_s3_is_not_a_setting() -> None:
    """The tenant of S3 cannot differ from the tenant of DynamoDB."""
    with pytest.raises(ValueError, match=r"cold\.tenant"):
        Settings.model_validate({"warm": {"tenant": "a"}, "cold": {"tenant": "a"}})
