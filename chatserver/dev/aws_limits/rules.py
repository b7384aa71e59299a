"""Handling of one request by AWS's rules: checks, execution and accounting.

Steps of a write: check for conflicts, lock the items (in tables with an index), load the current
items, check the partition limits, call the local server. The call comes last, so a refused request
changes nothing.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import operator
import random
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Annotated, Any, Final, TypeVar

from chatserver.dev.aws_limits.accounting import (
    ItemRequest,
    Response,
    count_all_units,
    count_items_read,
    count_known_units,
    count_units,
    is_image_needed,
    reduce_capacity,
    request_capacity,
)
from chatserver.dev.aws_limits.capacity import Access, PartitionLimits, split_units
from chatserver.dev.aws_limits.conflicts import RunningRequests
from chatserver.dev.aws_limits.expressions import Unsupported, find_partition
from chatserver.dev.aws_limits.index_lag import IndexLag, apply_lag, prepare_query
from chatserver.dev.aws_limits.item_sizes import (
    TRANSACTION_FACTOR,
)
from chatserver.dev.aws_limits.requests import (
    SINGLE_WRITES,
    Action,
    ItemKey,
    RequestRefused,
    TableInfo,
    list_actions,
    make_cancellation_error,
    make_conflict_error,
    make_throttling_error,
    parse_table,
    to_text,
)

T = TypeVar("T")
Body = dict[str, Any]
# Sends a request to the local DynamoDB server; returns the status and the body of the response.
Call = Callable[[str, Mapping[str, Any]], Awaitable[Response]]
_SCHEMA_CHANGES: Final = ("CreateTable", "UpdateTable", "DeleteTable")
_READS_MAX: Final = 100  # maximum keys per BatchGetItem


@dataclasses.dataclass(frozen=True, slots=True)
class AwsLimits:
    """Limits and delays. The defaults are AWS's limits and typical delays."""

    write_units: Annotated[float, "Maximum write units per partition and second."] = 1000.0
    read_units: Annotated[float, "Maximum read units per partition and second."] = 3000.0
    burst_s: Annotated[float, "Seconds of unused units that a partition keeps."] = 1.0
    transaction_ms: Annotated[float, "Minimum duration of a transaction."] = 10.0
    index_lag_ms: Annotated[tuple[float, float], "Minimum and maximum index lag."] = (50.0, 500.0)
    unprocessed_share: Annotated[float, "Probability that a batch omits an item."] = 0.02
    seed: Annotated[int, "Seed for random delays and unprocessed items."] = 0


async def sleep_until(time_s: float) -> None:
    """Sleep until a time of the monotonic clock."""
    await asyncio.sleep(time_s - time.monotonic())


class Rules:
    """Handles the requests of all connections."""

    def __init__(self, limits: AwsLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.refusals: collections.Counter[str] = collections.Counter()
        self._random = random.Random(limits.seed)  # noqa: S311  repeatable, no secret
        self._running = RunningRequests()
        self._capacity = PartitionLimits(
            limits.write_units, limits.read_units, limits.burst_s, clock
        )
        low, high = limits.index_lag_ms
        self._has_lag = high > 0
        self._lag = IndexLag(lambda: self._random.uniform(low, high) / 1000, clock)
        self._locks: dict[ItemKey, tuple[asyncio.Lock, int]] = {}
        self._tables: dict[str, TableInfo] = {}

    async def handle(self, operation: str, body: dict[str, Any], call: Call) -> Response:
        if operation in _SCHEMA_CHANGES:
            self._tables.pop(body.get("TableName", ""), None)
            response = await call(operation, body)
            self._tables.pop(body.get("TableName", ""), None)
            return response
        try:
            if operation in ("Query", "Scan"):
                response = await self._query(operation, body, call)
            else:
                response = await self._handle_items(operation, body, call)
        except RequestRefused as refused:
            self.refusals[refused.code] += 1
            return 400, refused.body
        if response[0] == 200:
            reduce_capacity(body.get("ReturnConsumedCapacity"), response[1])
        return response

    async def _handle_items(self, operation: str, body: Body, call: Call) -> Response:
        handle = {
            **dict.fromkeys(SINGLE_WRITES, self._write),
            "BatchWriteItem": self._batch_write,
            "TransactWriteItems": self._transact_write,
            "TransactGetItems": self._transact_get,
            "BatchGetItem": self._batch_get,
            "GetItem": self._get,
        }.get(operation)
        items = None
        if handle is not None:
            # A malformed request is sent to the server, which returns the error.
            with contextlib.suppress(KeyError, TypeError, AttributeError, StopIteration):
                items = await self._resolve(list_actions(operation, body), call)
        if handle is None or not items:
            return await call(operation, body)
        return await handle(operation, body, items, call)

    # Writes

    async def _write(
        self, operation: str, body: Body, writes: list[ItemRequest], call: Call
    ) -> Response:
        keys = [write.key for write in writes]
        if any(self._running.find_transactions(keys)):
            raise make_conflict_error()
        with self._running.write(keys):
            async with self._hold_locks(writes):
                await self._load_images(writes, call)
                if not all(map(self._has_room, writes)):
                    raise make_throttling_error()
                response = await call(operation, request_capacity(body))
                self._finish(writes, response)
                return response

    async def _transact_write(
        self, operation: str, body: Body, writes: list[ItemRequest], call: Call
    ) -> Response:
        keys = [write.key for write in writes]
        running = self._running.find_transactions(keys)
        if any(running):
            raise make_cancellation_error("TransactionConflict", running)
        with self._running.transaction(keys):
            ends_at = time.monotonic() + self.limits.transaction_ms / 1000
            async with self._hold_locks(writes):
                await self._load_images(writes, call)
                full = [not self._has_room(write) for write in writes]
                if any(full):
                    raise make_cancellation_error("ProvisionedThroughputExceeded", full)
                response = await call(operation, request_capacity(body))
                self._finish(writes, response, TRANSACTION_FACTOR)
            await sleep_until(ends_at)
        return response

    async def _batch_write(
        self, operation: str, body: Body, writes: list[ItemRequest], call: Call
    ) -> Response:
        requests = [
            (table, entry)
            for table, table_entries in body["RequestItems"].items()
            for entry in table_entries
        ]
        busy = self._running.find_transactions([write.key for write in writes])
        with self._running.write([write.key for write in writes]):
            async with self._hold_locks(writes):
                await self._load_images(writes, call)
                room = list(map(self._has_room, writes))
                if not any(room):
                    raise make_throttling_error()
                passes = [
                    has_room and not is_busy and not self._is_left_unprocessed()
                    for has_room, is_busy in zip(room, busy, strict=True)
                ]
                rest = _group_by_table(_omit(requests, passes))
                self.refusals["UnprocessedItems"] += passes.count(False)
                if not any(passes):
                    return 200, {"UnprocessedItems": rest}
                sent = {
                    **body,
                    "RequestItems": _group_by_table(itertools.compress(requests, passes)),
                }
                response = await call(operation, request_capacity(sent))
                self._finish([*itertools.compress(writes, passes)], response)
        if response[0] == 200:
            unprocessed = response[1].get("UnprocessedItems") or {}
            for table, table_requests in unprocessed.items():
                rest.setdefault(table, []).extend(table_requests)
            response[1]["UnprocessedItems"] = rest
        return response

    # Reads

    async def _get(
        self, operation: str, body: Body, reads: list[ItemRequest], call: Call
    ) -> Response:
        (read,) = reads
        partition = read.partition
        if not self._capacity.has_room("read", partition):
            raise make_throttling_error()
        response = await call(operation, request_capacity(body))
        self._capacity.charge("read", partition, count_all_units(response, read.table.name))
        return response

    async def _transact_get(
        self, operation: str, body: Body, reads: list[ItemRequest], call: Call
    ) -> Response:
        with self._running.read_transaction([read.key for read in reads]) as running:
            self._check_reads(running.conflicts, "TransactionConflict")
            full = [not self._capacity.has_room("read", read.partition) for read in reads]
            self._check_reads(full, "ProvisionedThroughputExceeded")
            ends_at = time.monotonic() + self.limits.transaction_ms / 1000
            response = await call(operation, request_capacity(body))
            await sleep_until(ends_at)
            self._check_reads(running.conflicts, "TransactionConflict")
        self._charge_reads(reads, response)
        return response

    def _check_reads(self, refused: Sequence[bool], code: str) -> None:
        if any(refused):
            raise make_cancellation_error(code, refused)

    async def _batch_get(
        self, operation: str, body: Body, reads: list[ItemRequest], call: Call
    ) -> Response:
        room = [self._capacity.has_room("read", read.partition) for read in reads]
        if not any(room):
            raise make_throttling_error()
        passes = [has_room and not self._is_left_unprocessed() for has_room in room]
        self.refusals["UnprocessedKeys"] += passes.count(False)
        keys = [(read.table.name, read.action.target) for read in reads]

        def group_keys(chosen: Iterable[tuple[str, Any]]) -> dict[str, Any]:
            return {
                table: {**body["RequestItems"][table], "Keys": item_keys}
                for table, item_keys in _group_by_table(chosen).items()
            }

        unprocessed = group_keys(_omit(keys, passes))
        if not any(passes):
            return 200, {"Responses": {}, "UnprocessedKeys": unprocessed}
        sent = {**body, "RequestItems": group_keys(itertools.compress(keys, passes))}
        response = await call(operation, request_capacity(sent))
        self._charge_reads([*itertools.compress(reads, passes)], response)
        if response[0] == 200:
            for table, table_keys in (response[1].get("UnprocessedKeys") or {}).items():
                unprocessed.setdefault(table, {**table_keys, "Keys": []})["Keys"].extend(
                    table_keys["Keys"]
                )
            response[1]["UnprocessedKeys"] = unprocessed
        return response

    async def _query(self, operation: str, body: dict[str, Any], call: Call) -> Response:
        table = await self._find_table(body["TableName"], call)
        if table is None:
            return await call(operation, body)
        index = next(
            (secondary for secondary in table.indexes if secondary.name == body.get("IndexName")),
            None,
        )
        source = table.name if index is None else f"{table.name}/{index.name}"
        value = find_partition(body, table.key[0] if index is None else index.key[0])
        if value is not None and not self._capacity.has_room("read", (source, to_text(value))):
            raise make_throttling_error()
        pending = {} if index is None else self._lag.list_pending(table.name)
        sent = prepare_query(body) if pending else body
        response = await call(operation, request_capacity(sent))
        if value is not None:
            units = count_all_units(response, table.name)
            self._capacity.charge("read", (source, to_text(value)), units)
        if index is not None and pending and response[0] == 200:
            with contextlib.suppress(Unsupported):
                return 200, apply_lag(body, response[1], table, index, pending)
        return response

    # Helpers

    def _is_left_unprocessed(self) -> bool:
        return self._random.random() < self.limits.unprocessed_share

    async def _find_table(self, name: str, call: Call) -> TableInfo | None:
        if name not in self._tables:
            status, response = await call("DescribeTable", {"TableName": name})
            if status != 200:
                return None
            self._tables[name] = parse_table(response["Table"])
        return self._tables[name]

    async def _resolve(self, actions: Sequence[Action], call: Call) -> list[ItemRequest] | None:
        """Return the actions with their tables; None if a table does not exist."""
        requests = []
        for action in actions:
            table = await self._find_table(action.table, call)
            if table is None:
                return None
            requests.append(ItemRequest(action, table, table.get_key(action.target)))
        return requests

    @contextlib.asynccontextmanager
    async def _hold_locks(self, writes: Sequence[ItemRequest]) -> AsyncIterator[None]:
        """Lock the items that are written in tables with indexes."""
        keys = sorted({write.key for write in writes if is_image_needed(write)})
        async with contextlib.AsyncExitStack() as stack:
            for key in keys:  # sorted, to prevent deadlocks
                lock, users = self._locks.get(key, (asyncio.Lock(), 0))
                self._locks[key] = lock, users + 1
                stack.callback(self._release, key)
                await stack.enter_async_context(lock)
            yield

    def _release(self, key: ItemKey) -> None:
        lock, users = self._locks[key]
        if users == 1:
            del self._locks[key]
        else:
            self._locks[key] = lock, users - 1

    async def _load_images(self, writes: Sequence[ItemRequest], call: Call) -> None:
        """Load the items that the writes will change, for tables with indexes."""
        by_key = {write.key: write for write in writes if is_image_needed(write)}
        keys = list(by_key)
        for start in range(0, len(keys), _READS_MAX):
            batch = [by_key[key] for key in keys[start : start + _READS_MAX]]
            request: dict[str, Any] = {}
            for write in batch:
                key = {name: write.action.target[name] for name in write.table.key}
                entry = request.setdefault(write.table.name, {"Keys": [], "ConsistentRead": True})
                entry["Keys"].append(key)
            while request:
                status, response = await call("BatchGetItem", {"RequestItems": request})
                if status != 200:
                    return  # the write will fail with the same error as this read
                for table, items in response["Responses"].items():
                    for item in items:
                        by_key[self._tables[table].get_key(item)].before = item
                request = response.get("UnprocessedKeys") or {}

    def _has_room(self, write: ItemRequest) -> bool:
        """Return whether the table partition and each changed index partition have units left."""
        name = write.table.name
        partitions = [write.partition]
        partitions += [(f"{name}/{index.name}", value) for index, value in write.list_indexes()]
        return all(self._capacity.has_room("write", partition) for partition in partitions)

    def _finish(self, writes: Sequence[ItemRequest], response: Response, factor: int = 1) -> None:
        """Charge the units of completed writes, and record the writes for the index lag."""
        status, body = response
        if status != 200:
            # AWS also charges a write whose condition failed: at least one unit per item.
            for write in writes if "Condition" in str(body.get("__type")) else ():
                self._capacity.charge("write", write.partition, factor)
            return
        for write in writes:
            if self._has_lag and is_image_needed(write):
                self._lag.record(write.key, write.before)
        for name, table_writes in _group_by_table((w.table.name, w) for w in writes).items():
            exact_units = [count_known_units(write, factor) for write in table_writes]
            self._charge("write", table_writes, response, exact_units)
            self._charge_indexes(name, table_writes, response)

    def _charge_indexes(self, name: str, writes: Sequence[ItemRequest], response: Response) -> None:
        changed: dict[str, list[str]] = {}
        for write in writes:
            for index, value in write.list_indexes():
                changed.setdefault(index.name, []).append(value)
        for index_name, values in changed.items():
            units = count_units(response, name, index_name) / len(values)
            for value in values:
                self._capacity.charge("write", (f"{name}/{index_name}", value), units)

    def _charge_reads(self, reads: Sequence[ItemRequest], response: Response) -> None:
        if response[0] != 200:
            return
        for table_reads in _group_by_table((read.table.name, read) for read in reads).values():
            sizes = count_items_read(response[1], table_reads[0].table)
            exact_units = [sizes.get(read.key) for read in table_reads]
            self._charge("read", table_reads, response, exact_units)

    def _charge(
        self,
        access: Access,
        requests: Sequence[ItemRequest],
        response: Response,
        exact_units: Sequence[float | None],
    ) -> None:
        """Charge the units of requests to one table, without those of its indexes."""
        total = count_units(response, requests[0].table.name, None)
        for request, units in zip(requests, split_units(total, exact_units), strict=True):
            self._capacity.charge(access, request.partition, units)


def _omit(entries: Iterable[T], passes: Iterable[bool]) -> Iterator[T]:
    """Yield the entries that are not processed."""
    return itertools.compress(entries, map(operator.not_, passes))


def _group_by_table(entries: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    grouped: dict[str, list[T]] = {}
    for table, entry in entries:
        grouped.setdefault(table, []).append(entry)
    return grouped
