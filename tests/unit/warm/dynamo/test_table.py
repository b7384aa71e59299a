"""Requests of `Table`: their expressions, and the values that tenancy and encryption change."""

from __future__ import annotations

from typing import Any, cast

import pytest

from chatserver.config import Warm
from chatserver.encryption.value_cipher import ValueCipher
from chatserver.errors import BadRequest
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient
from chatserver.warm.dynamo.conditions import Add, Attr, Condition, Default, Discard, Element, Raw
from chatserver.warm.dynamo.expressions import Comparison, UnknownForm, find_comparisons
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.dynamo.tenancy import Tenancy
from chatserver.warm.encryption.encrypted_fields import EncryptedFields
from chatserver.warm.schema.tables import (
    DIRECTORY,
    MEMBER_INDEX,
    MESSAGES,
    SOCIAL,
    SocialField,
)
from chatserver.warm.schema.tables import DirectoryField as Field

WARM = Warm(tenant="acme")
TENANCY = Tenancy(WARM)
KEY = ("c#x", "m#a")
ENCODED = {"PK": {"S": "c#x"}, "SK": {"S": "m#a"}}


class FakeClient:
    """Records the requests."""

    settings = WARM

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None

    async def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((operation, dict(request)))
        if self.error is not None:
            raise self.error
        if "Select" in request and "ExclusiveStartKey" not in request:
            return {"Count": 3, "LastEvaluatedKey": ENCODED}
        return {"Attributes": {"rev": {"N": "2"}}, "Items": [ENCODED], "Count": 2}


def make_table(client: FakeClient | None = None) -> Table:
    return Table(cast(DynamoClient, client or FakeClient()), DIRECTORY)


def render(condition: Condition) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return the expression, the names and the values of a condition."""
    request = make_table().delete_action(KEY, if_=condition)["Delete"]
    return (
        request["ConditionExpression"],
        request["ExpressionAttributeNames"],
        request.get("ExpressionAttributeValues", {}),
    )


A, B = Attr("a"), Attr("b")


@pytest.mark.parametrize(
    ("condition", "expression"),
    [
        (A == "x", "#0 = :0e0"),
        (A != "x", "#0 <> :0e0"),
        (A < 1, "#0 < :0o0"),
        (A <= 1, "#0 <= :0o0"),
        (A > 1, "#0 > :0o0"),
        (A >= 1, "#0 >= :0o0"),
        (A.matches(1), "#0 = :0e0"),
        (A.matches(None), "attribute_not_exists(#0)"),
        (A.exists, "attribute_exists(#0)"),
        (A.is_absent, "attribute_not_exists(#0)"),
        (A.between("x", "y"), "#0 BETWEEN :0o0 AND :0o1"),
        (A.begins_with("x"), "begins_with(#0, :0o0)"),
        (A.contains("x"), "contains(#0, :0p0)"),
        (A.is_in(("x", "y")), "#0 IN (:0e0, :0e1)"),
        (Attr("a", "b") == 1, "#0.#1 = :0p0"),
        ((A == 1) & (B == 2) & A.exists, "#0 = :0e0 AND #1 = :1e1 AND attribute_exists(#0)"),
        (A.exists & (B.is_absent | (B <= 1)),
         "attribute_exists(#0) AND (attribute_not_exists(#1) OR #1 <= :1o0)"),
        ((A.exists & B.exists) | (A == 1),
         "(attribute_exists(#0) AND attribute_exists(#1)) OR #0 = :0e0"),
        (~A.contains("x"), "NOT contains(#0, :0p0)"),
        (~(A.exists | B.exists), "NOT (attribute_exists(#0) OR attribute_exists(#1))"),
    ],
)  # fmt: skip
def test_condition_is_rendered_with_placeholders(condition: Condition, expression: str) -> None:
    """Parentheses are added only where they are needed: DynamoDB rejects redundant ones."""
    assert render(condition)[0] == expression


def test_names_are_shared_and_values_are_typed() -> None:
    """An attribute has one placeholder in the whole request, and each value has its own."""
    values: tuple[Any, ...] = (
        "x",
        5,
        True,
        b"b",
        ["x", 5],
        {"k": "v"},
        frozenset({"b", "a"}),
        {2, 1},
    )
    condition = A.is_in([*values, Raw({"N": "7"})]) & (B == "a")

    _, names, sent = render(condition)

    assert names == {"#0": "a", "#1": "b"}
    assert list(sent.values()) == [
        {"S": "x"},
        {"N": "5"},
        {"BOOL": True},
        {"B": b"b"},
        {"L": [{"S": "x"}, {"N": "5"}]},
        {"M": {"k": {"S": "v"}}},
        {"SS": ["a", "b"]},
        {"NS": ["1", "2"]},
        {"N": "7"},
        {"S": "a"},
    ]


@pytest.mark.parametrize("value", [None, 1.5, frozenset(), object()])
def test_value_without_a_stored_type_is_refused(value: Any) -> None:
    """In particular None: compare with `is_absent` instead."""
    with pytest.raises(TypeError):
        render(A.is_in([value]))


def test_condition_has_no_truth_value() -> None:
    """`and` between conditions would silently drop one of them."""
    with pytest.raises(TypeError):
        assert (A == 1) and (B == 2)
    with pytest.raises(TypeError):
        assert A == 1 | B  # type: ignore[operator]  # parentheses are missing


def test_update_has_one_clause_per_kind_of_change() -> None:
    """A mapping contains all changes; None removes an attribute."""
    changes = {
        "a": 1,
        "b": None,
        "c": Add(2),
        "d": Default(3),
        "e": Discard({"x"}),
        "f": Add({"y"}),
        Element("g", "h"): "z",
    }

    request = make_table().update_action(KEY, changes, if_=Attr("a") == 0)["Update"]

    assert request == {
        "TableName": "chat_directory",
        "Key": ENCODED,
        "UpdateExpression": (
            "SET #0 = :0e0, #3 = if_not_exists(#3, :3e2), #6.#7 = :6p5 "
            "REMOVE #1 ADD #2 :2p1, #5 :5p4 DELETE #4 :4p3"
        ),
        "ConditionExpression": "#0 = :0e6",
        "ExpressionAttributeNames": {f"#{n}": name for n, name in enumerate("abcdefgh")},
        "ExpressionAttributeValues": {
            ":0e0": {"N": "1"},
            ":2p1": {"N": "2"},
            ":3e2": {"N": "3"},
            ":4p3": {"SS": ["x"]},
            ":5p4": {"SS": ["y"]},
            ":6p5": {"S": "z"},
            ":0e6": {"N": "0"},
        },
    }


async def test_put_omits_absent_attributes_and_accepts_a_whole_item() -> None:
    """A key is a tuple, or an item that contains the key."""
    client = FakeClient()
    table = make_table(client)

    await table.put(KEY, {"a": 1, "b": None}, if_=Attr("PK").is_absent, keeps_stored=True)
    await table.put({**ENCODED, "c": {"N": "1"}})

    assert client.calls == [
        (
            "put_item",
            {
                "TableName": "chat_directory",
                "Item": {**ENCODED, "a": {"N": "1"}},
                "ConditionExpression": "attribute_not_exists(#0)",
                "ExpressionAttributeNames": {"#0": "PK"},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            },
        ),
        ("put_item", {"TableName": "chat_directory", "Item": {**ENCODED, "c": {"N": "1"}}}),
    ]


async def test_write_returns_the_requested_attributes() -> None:
    """Without `returns`, DynamoDB is not asked for them."""
    client = FakeClient()
    table = make_table(client)

    assert await table.update(KEY, {"rev": 2}, "new") == {"rev": {"N": "2"}}
    await table.delete(KEY, "old")
    await table.delete(KEY)

    asked = [request.get("ReturnValues") for _, request in client.calls]
    assert asked == ["ALL_NEW", "ALL_OLD", None]


async def test_failed_condition_is_false_for_try_write_and_an_error_otherwise() -> None:
    """So a repository cannot overlook a failed condition."""
    client = FakeClient()
    table = make_table(client)
    assert await try_write(table.delete(KEY, if_=A == 1))

    client.error = ConditionFailed("no", [None])

    assert not await try_write(table.delete(KEY, if_=A == 1))
    with pytest.raises(ConditionFailed):
        await table.delete(KEY, if_=A == 1)


async def test_reads_are_consistent_except_in_an_index() -> None:
    """DynamoDB has no consistent reads of global indexes."""
    client = FakeClient()
    table = make_table(client)

    await table.find(KEY, only=("a",))
    await table.query(
        Span(DIRECTORY, "c#x", between=("a", "b")), where=A > 1, limit=5, is_newest_first=True
    )
    await table.query(Span(DIRECTORY, "m#a", MEMBER_INDEX, prefix="c#"), start=ENCODED)
    pages = [page async for page in table.iter_scan(1, 2, where=A.exists, only=("PK", "a"))]

    assert pages == [[ENCODED]]
    assert client.calls == [
        (
            "get_item",
            {
                "TableName": "chat_directory",
                "Key": ENCODED,
                "ProjectionExpression": "#0",
                "ExpressionAttributeNames": {"#0": "a"},
                "ConsistentRead": True,
            },
        ),
        (
            "query",
            {
                "TableName": "chat_directory",
                "KeyConditionExpression": "#0 = :0e0 AND #1 BETWEEN :1o1 AND :1o2",
                "FilterExpression": "#2 > :2o3",
                "ExpressionAttributeNames": {"#0": "PK", "#1": "SK", "#2": "a"},
                "ExpressionAttributeValues": {
                    ":0e0": {"S": "c#x"},
                    ":1o1": {"S": "a"},
                    ":1o2": {"S": "b"},
                    ":2o3": {"N": "1"},
                },
                "Limit": 5,
                "ScanIndexForward": False,
                "ConsistentRead": True,
            },
        ),
        (
            "query",
            {
                "TableName": "chat_directory",
                "IndexName": "by_member",
                "KeyConditionExpression": "#0 = :0e0 AND begins_with(#1, :1o1)",
                "ExpressionAttributeNames": {"#0": "SK", "#1": "PK"},
                "ExpressionAttributeValues": {":0e0": {"S": "m#a"}, ":1o1": {"S": "c#"}},
                "ExclusiveStartKey": ENCODED,
            },
        ),
        (
            "scan",
            {
                "TableName": "chat_directory",
                "FilterExpression": "attribute_exists(#0)",
                "ProjectionExpression": "#1, #0",
                "ExpressionAttributeNames": {"#0": "a", "#1": "PK"},
                "Segment": 1,
                "TotalSegments": 2,
                "ConsistentRead": False,
            },
        ),
    ]


@pytest.mark.parametrize(
    ("limit", "count", "limits"), [(None, 5, [None, None]), (3, 3, [3]), (5, 5, [5, 2])]
)
async def test_count_reads_all_pages_up_to_the_limit(
    limit: int | None, count: int, limits: list[int | None]
) -> None:
    """The first page has three items and the last page two."""
    client = FakeClient()

    assert await make_table(client).count(Span(DIRECTORY, "c#x"), limit=limit) == count

    assert [request.get("Limit") for _, request in client.calls] == limits


def test_range_with_an_exclusive_bound_contains_only_lower_keys() -> None:
    """A page token must be in the range too."""
    span = Span(DIRECTORY, "c#x", before="m#b")

    query = make_table().build_query(span)

    assert query["KeyConditionExpression"] == "#0 = :0e0 AND #1 < :1o1"
    assert span.build_start_key({"PK": "c#x", "SK": "m#a"}) == ENCODED
    with pytest.raises(BadRequest):
        span.build_start_key({"PK": "c#x", "SK": "m#b"})


def test_key_of_a_numeric_sort_key_is_a_number() -> None:
    """The types of key attributes come from the schema."""
    table = Table(cast(DynamoClient, FakeClient()), MESSAGES)

    assert table.encode_key(("d-1", 7)) == {"chatid": {"S": "d-1"}, "ts": {"N": "7"}}
    assert render_query(table, Span(MESSAGES, "d-1", between=(1, 2)))[":1o2"] == {"N": "2"}


def render_query(table: Table, span: Span) -> dict[str, Any]:
    values: dict[str, Any] = table.build_query(span)["ExpressionAttributeValues"]
    return values


@pytest.mark.parametrize(
    ("condition", "prefixed"),
    [
        (Attr(Field.PK) == "c#x", ["acme/c#x"]),
        (Attr(Field.PK) != "c#x", ["acme/c#x"]),
        (Attr(Field.SK).between("a", "b"), ["acme/a", "acme/b"]),
        (Attr(Field.SK).is_in(("a", "b")), ["acme/a", "acme/b"]),
        (Attr(Field.SK).begins_with("m#"), ["acme/m#"]),
        (Attr(Field.SK) >= "m#", ["acme/m#"]),
        (Attr(Field.PK).exists & (Attr(Field.ROLE) == "m#"), ["m#"]),
    ],
)
def test_values_compared_with_keys_get_the_tenant_prefix(
    condition: Condition, prefixed: list[str]
) -> None:
    """Values of other attributes and the expression are unchanged."""
    request = make_table().update_action(KEY, {}, if_=condition)["Update"]
    request.pop("UpdateExpression")

    sent = TENANCY.prefix_request("update_item", request)

    assert [value["S"] for value in sent["ExpressionAttributeValues"].values()] == prefixed
    assert sent["Key"] == {"PK": {"S": "acme/c#x"}, "SK": {"S": "acme/m#a"}}
    assert sent["ConditionExpression"] == request["ConditionExpression"]


@pytest.mark.parametrize("condition", [Attr(Field.SK).contains("m"), Attr(Field.PK, "x") == "m"])
def test_part_of_a_key_is_refused(condition: Condition) -> None:
    """The prefix cannot be added to a part of a key."""
    request = make_table().delete_action(KEY, if_=condition)["Delete"]

    with pytest.raises(UnknownForm):
        TENANCY.prefix_request("delete_item", request)


def test_key_condition_and_filter_of_a_scan_get_the_tenant_prefix() -> None:
    """Tenancy adds its own filter to a scan."""
    table = make_table()
    query = table.build_query(Span(DIRECTORY, "c#x", prefix="m#"), where=Attr("role") == "c#x")

    sent = TENANCY.prefix_request("query", query)

    texts = [value["S"] for value in sent["ExpressionAttributeValues"].values()]
    assert texts == ["acme/c#x", "acme/m#", "c#x"]


class FakeKey:
    """Marks values instead of encrypting them."""

    def encrypt(self, place: tuple[str, ...], data: bytes) -> bytes:
        return "/".join((*place, data.decode())).encode()


class FakeCipher:
    """Has one data key."""

    async def get_current(self) -> FakeKey:
        return FakeKey()


ENCRYPTION = EncryptedFields(cast(ValueCipher, FakeCipher()), WARM)
CONTENT = Attr(SocialField.CONTENT)


async def test_values_of_encrypted_attributes_are_encrypted() -> None:
    """Both new and compared values are bound to the place of the item."""
    table = Table(cast(DynamoClient, FakeClient()), SOCIAL)
    changes = {SocialField.CONTENT: "new", SocialField.NAME: "new"}
    request = table.update_action(("p", "s"), changes, if_=CONTENT == "old")["Update"]

    sent = await ENCRYPTION.encrypt_request("update_item", request)

    assert list(sent["ExpressionAttributeValues"].values()) == [
        {"B": b"social/p/s/content/new"},
        {"S": "new"},
        {"B": b"social/p/s/content/old"},
    ]


@pytest.mark.parametrize(
    "condition", [CONTENT < "x", CONTENT.begins_with("x"), CONTENT.contains("x")]
)
async def test_order_and_parts_of_encrypted_values_are_refused(condition: Condition) -> None:
    """An encrypted value can only be compared as a whole."""
    table = Table(cast(DynamoClient, FakeClient()), SOCIAL)
    request = table.delete_action(("p", "s"), if_=condition)["Delete"]

    with pytest.raises(UnknownForm):
        await ENCRYPTION.encrypt_request("delete_item", request)


def test_comparisons_contain_attribute_use_and_value() -> None:
    """An order comparison is no equality."""
    request = make_table().update_action(KEY, {"a": "x", "b": 1}, if_=(A == "y") & (A > "z"))

    found = find_comparisons(request["Update"], frozenset({"a"}))

    assert found == (
        Comparison("a", True, ":0e0"),
        Comparison("a", True, ":0e2"),
        Comparison("a", False, ":0o3"),
    )
