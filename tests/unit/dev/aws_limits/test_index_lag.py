"""Queries of an index return the state before recent writes, as in DynamoDB."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chatserver.dev.aws_limits import index_lag
from chatserver.dev.aws_limits.index_lag import IndexLag, apply_lag, prepare_query
from chatserver.dev.aws_limits.requests import IndexInfo, TableInfo
from tests.support.fake_clocks import FakeClock

INDEX = IndexInfo("by_owner", ("owner", "n"), frozenset(("PK", "owner", "n")))
TABLE = TableInfo("t", ("PK",), (INDEX,))


def row(key: str, n: int, owner: str = "o", **more: str) -> dict[str, Any]:
    """Return an item."""
    extra = {name: {"S": value} for name, value in more.items()}
    return {"PK": {"S": key}, "owner": {"S": owner}, "n": {"N": str(n)}, **extra}


def run_query(items: dict[str, dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
    """Return the server's response to a Query of owner `o`, with `Limit` and direction."""
    is_backward = request.get("ScanIndexForward") is False
    rows = [INDEX.project(item) for item in items.values() if item["owner"]["S"] == "o"]
    found = sorted(
        (each for each in rows if each is not None),
        key=lambda each: (int(each["n"]["N"]), each["PK"]["S"]),
        reverse=is_backward,
    )
    if (start := request.get("ExclusiveStartKey")) is not None:
        position = int(start["n"]["N"]), start["PK"]["S"]
        found = [
            each
            for each in found
            if ((int(each["n"]["N"]), each["PK"]["S"]) < position) is is_backward
            and (int(each["n"]["N"]), each["PK"]["S"]) != position
        ]
    limit = request.get("Limit", 100)
    response: dict[str, Any] = {"Items": found[:limit], "Count": len(found[:limit])}
    if len(found) >= limit and found:
        response["LastEvaluatedKey"] = found[limit - 1]
    return response


def query(**more: Any) -> dict[str, Any]:
    """Return a Query of owner `o`."""
    return {
        "TableName": "t",
        "IndexName": "by_owner",
        "KeyConditionExpression": "#owner = :o",
        "ExpressionAttributeNames": {"#owner": "owner"},
        "ExpressionAttributeValues": {":o": {"S": "o"}},
        **more,
    }


def test_write_is_visible_after_its_lag_in_the_order_of_the_item() -> None:
    """Until then, the index has the state before the first pending write."""
    clock, delays = FakeClock(0.0), iter([0.5, 0.1, 0.1])
    lag = IndexLag(lambda: next(delays), clock.time)
    key = TABLE.get_key(row("a", 1))

    lag.record(key, None)
    lag.record(key, row("a", 1))
    assert lag.list_pending("t") == {key: None}
    assert lag.list_pending("other") == {}
    clock.now = 0.4
    assert lag.list_pending("t") == {key: None}
    clock.now = 0.5
    assert lag.list_pending("t") == {}


def test_number_of_pending_writes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest writes become visible early."""
    monkeypatch.setattr(index_lag, "CHANGES_MAX", 10)
    lag = IndexLag(lambda: 100.0, FakeClock().time)

    for number in range(50):
        lag.record(("t", (str(number),)), None)

    assert set(lag.list_pending("t")) == {("t", (str(number),)) for number in range(40, 50)}


def test_added_changed_moved_and_removed_items_have_their_old_entries() -> None:
    """Old entries are in the order of the index and have only the projected attributes."""
    old = {each["PK"]["S"]: each for each in (row("b", 2, x="1"), row("c", 3), row("d", 4))}
    new = {each["PK"]["S"]: each for each in (row("a", 1), row("b", 9), row("c", 3, "other"))}
    pending = {("t", (name,)): old.get(name) for name in "abcd"}

    response = apply_lag(query(), run_query(new, query()), TABLE, INDEX, pending)

    assert response["Items"] == [INDEX.project(old[name]) for name in "bcd"]
    assert response["Count"] == 3


def test_filter_and_key_condition_apply_to_old_entries() -> None:
    """An old entry is returned only if a Query would have returned it."""
    request = query(FilterExpression="n > :two")
    request["ExpressionAttributeValues"][":two"] = {"N": "2"}
    pending = {
        ("t", ("a",)): row("a", 1),
        ("t", ("b",)): row("b", 3),
        ("t", ("c",)): row("c", 4, "other"),
    }

    response = apply_lag(request, {"Items": [], "Count": 0}, TABLE, INDEX, pending)

    assert [each["PK"]["S"] for each in response["Items"]] == ["b"]


def test_count_and_projection_match_the_request() -> None:
    """The server returns complete entries, because the keys are needed."""
    names = {"#owner": "owner", "#n": "n"}
    request = query(ProjectionExpression="#n", ExpressionAttributeNames=names)
    pending = {("t", ("a",)): row("a", 1)}

    sent = prepare_query(request)
    response = apply_lag(request, {"Items": [], "Count": 0}, TABLE, INDEX, pending)
    counted = apply_lag(query(Select="COUNT"), {"Items": []}, TABLE, INDEX, pending)

    assert "ProjectionExpression" not in sent
    assert sent["ExpressionAttributeNames"] == {"#owner": "owner"}
    assert response["Items"] == [{"n": {"N": "1"}}]
    assert counted["Count"] == 1 and "Items" not in counted


states = st.dictionaries(
    st.sampled_from("abcdefgh"), st.tuples(st.integers(1, 9), st.sampled_from(["o", "p"]))
)


@given(states, states, st.integers(1, 4), st.booleans())
def test_pages_together_are_the_old_state(
    old_state: dict[str, tuple[int, str]],
    new_state: dict[str, tuple[int, str]],
    limit: int,
    is_forward: bool,
) -> None:
    """Property: after any writes, all pages together are the earlier index, in order."""
    old = {name: row(name, *values) for name, values in old_state.items()}
    new = {name: row(name, *values) for name, values in new_state.items()}
    pending = {
        ("t", (name,)): old.get(name)
        for name in old.keys() | new.keys()
        if old.get(name) != new.get(name)
    }
    request = query(Limit=limit, ScanIndexForward=is_forward)
    expected = run_query(old, query(ScanIndexForward=is_forward))["Items"]

    found: list[Any] = []
    for _ in range(50):
        page = apply_lag(request, run_query(new, request), TABLE, INDEX, pending)
        assert len(page["Items"]) <= limit
        found += page["Items"]
        if "LastEvaluatedKey" not in page:
            break
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    assert found == expected
