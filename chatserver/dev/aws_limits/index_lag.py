"""Index lag: a write becomes visible in the indexes after a delay.

For each recent write, the item before the write is kept, and index queries use it: an added item is
missing, a removed item is still present, and a changed item has its old attributes. Each page is
filtered, ordered and limited as by AWS.

Bounds: at most `CHANGES_MAX` writes are kept; beyond that, the oldest become visible early. A Scan
of an index returns removed items and the old versions of changed items on its last page.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs
import msgspec

from chatserver.dev.aws_limits.expressions import parse, to_sortable
from chatserver.dev.aws_limits.item_sizes import Item
from chatserver.dev.aws_limits.requests import IndexInfo, ItemKey, TableInfo

CHANGES_MAX: Final = 20_000


class _Change(msgspec.Struct):
    visible_at: float
    key: ItemKey
    before: Item | None


@attrs.define(eq=False, repr=False)
class IndexLag:
    """Recent writes that the indexes do not show yet. `delay` returns a write's lag in seconds."""

    _delay: Callable[[], float]
    _clock: Callable[[], float]
    _changes: dict[ItemKey, collections.deque[_Change]] = attrs.field(factory=dict, init=False)
    _count: int = attrs.field(default=0, init=False)

    def record(self, key: ItemKey, before: Item | None) -> None:
        """Record a completed write, and the item before the write."""
        waiting = self._changes.setdefault(key, collections.deque())
        # Writes to the same item become visible in order.
        earliest = waiting[-1].visible_at if waiting else 0.0
        visible_at = max(self._clock() + self._delay(), earliest)
        waiting.append(_Change(visible_at, key, before))
        self._count += 1
        if self._count > CHANGES_MAX:
            self._expire()
        if self._count > CHANGES_MAX:
            self._drop(next(iter(self._changes)))

    def list_pending(self, table: str) -> dict[ItemKey, Item | None]:
        """Return the items with pending writes, in the version that the indexes still show."""
        self._expire()
        return {key: change[0].before for key, change in self._changes.items() if key[0] == table}

    def _expire(self) -> None:
        now = self._clock()
        for key, waiting in list(self._changes.items()):
            while waiting and waiting[0].visible_at <= now:
                waiting.popleft()
                self._count -= 1
            if not waiting:
                del self._changes[key]

    def _drop(self, key: ItemKey) -> None:
        self._count -= len(self._changes.pop(key))


def prepare_query(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Query without its projection, so that rows have the keys `apply_lag` needs."""
    sent = dict(request)
    sent.pop("ProjectionExpression", None)
    if sent.get("Select") in ("COUNT", "SPECIFIC_ATTRIBUTES"):
        del sent["Select"]
    return _without_unused_names(sent) if "ProjectionExpression" in request else sent


def apply_lag(
    request: Mapping[str, Any],
    response: Mapping[str, Any],
    table: TableInfo,
    index: IndexInfo,
    pending: Mapping[ItemKey, Item | None],
) -> dict[str, Any]:
    """Return the response that the index would give without the `pending` writes."""
    current: list[Item] = response["Items"]
    rows = [row for row in current if table.get_key(row) not in pending]
    last: Item | None = response.get("LastEvaluatedKey")
    old = list(_list_old(request, table, index, pending, last))
    if old:
        rows += old
        if "KeyConditionExpression" in request:
            is_backward = request.get("ScanIndexForward") is False
            rows.sort(key=lambda row: _sort_key(row, table, index), reverse=is_backward)
    limit = request.get("Limit")
    names = dict.fromkeys((*index.key, *table.key))
    if limit is not None and len(rows) > limit:
        rows = rows[:limit]
        last = {name: rows[-1][name] for name in names}
    change = len(rows) - len(current)
    result = {**response, "Items": [_select(request, row) for row in rows], "Count": len(rows)}
    result["ScannedCount"] = max(len(rows), response.get("ScannedCount", 0) + change)
    result.pop("LastEvaluatedKey", None)
    if last is not None:
        result["LastEvaluatedKey"] = last
    if request.get("Select") == "COUNT":
        del result["Items"]
    return result


def _list_old(
    request: Mapping[str, Any],
    table: TableInfo,
    index: IndexInfo,
    pending: Mapping[ItemKey, Item | None],
    last: Item | None,
) -> Iterator[Item]:
    """Yield the previous versions of `pending` items that belong in this page of the Query."""
    is_query = "KeyConditionExpression" in request
    if not is_query and last is not None:
        return
    tests = [
        parse(request[name], request)
        for name in ("KeyConditionExpression", "FilterExpression")
        if request.get(name)
    ]
    is_backward = request.get("ScanIndexForward") is False
    start = request.get("ExclusiveStartKey") if is_query else None

    def is_after(row: Item, other: Item) -> bool:
        order, other_order = _sort_key(row, table, index), _sort_key(other, table, index)
        return order < other_order if is_backward else order > other_order

    for before in pending.values():
        row = index.project(before)
        if row is None or not all(test(row) for test in tests):
            continue
        if start is not None and not is_after(row, start):
            continue
        if is_query and last is not None and is_after(row, last):
            continue
        yield row


def _sort_key(row: Item, table: TableInfo, index: IndexInfo) -> tuple[Any, ...]:
    names = dict.fromkeys((*index.key[1:], *table.key))
    return tuple(to_sortable(row[name]) for name in names)


def _select(request: Mapping[str, Any], row: Item) -> Item:
    projection = request.get("ProjectionExpression")
    if not projection:
        return row
    names = request.get("ExpressionAttributeNames") or {}
    projected = {names.get(word.strip(), word.strip()) for word in projection.split(",")}
    return {name: value for name, value in row.items() if name in projected}


def _without_unused_names(request: dict[str, Any]) -> dict[str, Any]:
    """Remove the names that only the projection used, because DynamoDB refuses unused names."""
    text = f"{request.get('KeyConditionExpression', '')} {request.get('FilterExpression', '')} "
    for mark in "=<>(),":
        text = text.replace(mark, " ")
    names = request.get("ExpressionAttributeNames") or {}
    used = {name: value for name, value in names.items() if name in text.split()}
    request.pop("ExpressionAttributeNames", None)
    return {**request, "ExpressionAttributeNames": used} if used else request
