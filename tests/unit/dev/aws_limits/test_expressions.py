"""Key conditions and filters, evaluated outside of DynamoDB."""

from __future__ import annotations

import pytest

from chatserver.dev.aws_limits.expressions import Unsupported, find_partition, parse

ITEM = {"PK": {"S": "a"}, "ts": {"N": "10"}, "tags": {"SS": ["x", "y"]}, "text": {"S": "hello"}}
REQUEST = {
    "ExpressionAttributeNames": {"#pk": "PK", "#missing": "missing"},
    "ExpressionAttributeValues": {
        ":a": {"S": "a"},
        ":nine": {"N": "9"},
        ":ten": {"N": "10"},
        ":more": {"N": "100"},
        ":he": {"S": "he"},
        ":x": {"S": "x"},
    },
}


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("#pk = :a", True),
        ("#pk <> :a", False),
        ("#pk = :a AND ts > :nine", True),
        ("#pk = :a and ts between :nine and :more", True),
        ("ts < :nine OR #pk = :he", False),
        ("ts < :more", True),
        ("ts <= :ten AND ts >= :ten", True),
        ("begins_with(text, :he)", True),
        ("begins_with (text, :x)", False),
        ("attribute_not_exists(#missing) OR #missing > :nine", True),
        ("attribute_exists(#missing) OR #missing > :nine", False),
        ("NOT (ts = :nine OR contains(text, :x))", True),
        ("contains(tags, :x)", True),
        ("ts IN (:nine, :ten)", True),
        ("text > :nine", False),
        ("ts < :nine AND #pk = :a OR ts = :ten", True),
    ],
)
def test_expression_matches_as_in_dynamodb(expression: str, matches: bool) -> None:
    """This includes precedence, types and missing attributes."""
    assert parse(expression, REQUEST)(ITEM) is matches


@pytest.mark.parametrize("expression", ["size(text) > :ten", "#pk =", "#pk = :unknown", "a ? b"])
def test_unknown_expression_is_refused(expression: str) -> None:
    """It is never evaluated as true or false."""
    with pytest.raises(Unsupported):
        parse(expression, REQUEST)


def test_partition_of_a_query_is_the_value_of_its_key_condition() -> None:
    """The attribute may have a placeholder, and conditions any order."""
    for condition in ("#pk = :a AND ts > :nine", "ts = :nine AND PK = :a"):
        assert find_partition({**REQUEST, "KeyConditionExpression": condition}, "PK") == {"S": "a"}
    assert find_partition({**REQUEST, "KeyConditionExpression": "ts = :nine"}, "PK") is None
    assert find_partition({}, "PK") is None
