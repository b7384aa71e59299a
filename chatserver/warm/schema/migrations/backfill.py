"""Backfill: scans a table in parallel segments and repairs items.

A segment is read page by page. The items of a page are repaired concurrently, then a checkpoint is
written. Resumable: after a crash, the next run continues from the last checkpoint and skips items
that are already repaired. Reads are strongly consistent, so a run misses only items that are
written after their page was read.

A repair is written on the condition that the item exists and that its `rev` and the attributes to
change are unchanged. If the condition fails, the current item is evaluated again. So no newer write
is overwritten, and an item is repaired only once, even if the response to the write is lost.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import attrs

from chatserver.errors import Unavailable
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.dynamo.client import ConditionFailed, Item
from chatserver.warm.dynamo.conditions import Attr, Change, Condition, Raw
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.migrations.migration import Migration, Repair
from chatserver.warm.schema.migrations.progress_and_lock import MigrationProgress, ScanSegment
from chatserver.warm.schema.tables import MessageField

PAGE_ITEMS: Final = 200
WRITES_IN_FLIGHT_MAX: Final = 16
REPAIR_UNITS: Final = 2.0  # estimated write units of a repair: the item and one index entry
TRIES_MAX: Final = 8


class MigrationReport(Protocol):
    """Progress output of a run."""

    def print_line(self, text: str) -> None: ...

    def begin(self, title: str, items: int) -> None: ...

    def advance(self, segments: Sequence[ScanSegment]) -> None: ...

    def end(self) -> None: ...


@attrs.define(eq=False, repr=False, kw_only=True)
class Backfill:
    """One pass of a migration over its table."""

    _table: Table
    _migration: Migration
    _rows: MigrationProgress
    _token: int
    _reads: RateLimiter
    _writes: RateLimiter
    _report: MigrationReport
    _page_items: int = PAGE_ITEMS
    _slots: asyncio.Semaphore = attrs.field(
        factory=lambda: asyncio.Semaphore(WRITES_IN_FLIGHT_MAX), init=False
    )
    _segments: list[ScanSegment] = attrs.field(factory=list, init=False)

    async def run(self, segments: int, items: int) -> list[ScanSegment]:
        """Process all segments of the table, which has approximately `items` items.

        Guarantees:
            Idempotent and resumable with the same number of segments.

        Raises:
            Unavailable: DynamoDB does not respond, or the lock is lost.
        """
        number = self._migration.number
        self._segments = [await self._rows.get_segment(number, n) for n in range(segments)]
        self._report.begin(self._migration.title, items)
        try:
            self._report.advance(self._segments)
            async with asyncio.TaskGroup() as group:
                for segment in self._segments:
                    name = f"segment-{segment.number}"
                    group.create_task(self._run_segment(segment), name=name)
        finally:
            self._report.end()
        return self._segments

    async def _run_segment(self, segment: ScanSegment) -> None:
        page_units = 1.0
        while not segment.is_done:
            await self._reads.acquire(page_units)
            response = await self._table.client.call("scan", self._build_scan(segment))
            # Some servers other than AWS do not report consumed units.
            units = float(response.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0))
            self._reads.adjust(units - page_units)
            page_units = max(1.0, units)
            failpoint("migrate.after_scan")
            spent = await self._repair_page(response["Items"])
            failpoint("migrate.before_checkpoint")
            last: Item | None = response.get("LastEvaluatedKey")
            segment = dataclasses.replace(
                segment,
                last_key=last or segment.last_key,
                is_done=last is None,
                read=segment.read + len(response["Items"]),
                filled=segment.filled + sum(amount > 0 for amount in spent),
                read_units=segment.read_units + units,
                write_units=segment.write_units + sum(spent),
            )
            await self._rows.put_segment(self._migration.number, segment, self._token)
            failpoint("migrate.after_checkpoint")
            self._segments[segment.number] = segment
            self._report.advance(self._segments)

    def _build_scan(self, segment: ScanSegment) -> dict[str, Any]:
        scan = self._table.build_scan(
            segment.number,
            len(self._segments),
            only=self._migration.reads,
            limit=self._page_items,
            start=segment.last_key,
            is_consistent=True,
        )
        return scan | {"ReturnConsumedCapacity": "TOTAL"}

    async def _repair_page(self, items: list[Item]) -> list[float]:
        """Repair the items of a page; return the write units that each repair consumed."""
        repair = self._migration.repair
        assert repair is not None  # only migrations with a repair are run here

        async def repair_one(item: Item) -> float:
            async with self._slots:
                await self._writes.acquire(REPAIR_UNITS)
                failpoint("migrate.before_write")
                units = await repair_item(self._table, item, repair)
                failpoint("migrate.after_write")
                self._writes.adjust(units - REPAIR_UNITS)
            return units

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(repair_one(item)) for item in items if repair(item)]
        return [task.result() for task in tasks]


async def repair_item(table: Table, item: Item, repair: Callable[[Item], Repair | None]) -> float:
    """Repair an item; return the write units consumed, 0 if the item needs no repair.

    `item` may be outdated.

    Guarantees:
        Idempotent. A newer write is never overwritten, and a deleted item is not created again.
        Cancellation: safe; the item may or may not have been repaired.

    Raises:
        Unavailable: the item may or may not have been repaired.
    """
    key = table.get_key(item)
    for _ in range(TRIES_MAX):
        item_repair = repair(item)
        if item_repair is None:
            return 0.0
        changes: dict[str, Change] = {name: Raw(value) for name, value in item_repair.sets.items()}
        changes |= dict.fromkeys(item_repair.removes)
        is_unchanged = build_condition(item, item_repair)
        update = table.update_action(key, changes, if_=is_unchanged, keeps_stored=True)["Update"]
        try:
            response = await table.client.call(
                "update_item", update | {"ReturnConsumedCapacity": "TOTAL"}
            )
        except ConditionFailed as exc:
            if exc.stored[0] is None:  # deleted since it was read
                return 0.0
            item = exc.stored[0]
        else:
            return float(response.get("ConsumedCapacity", {}).get("CapacityUnits", 1.0))
    raise Unavailable(f"{table.name}: the item at {key} keeps changing")


def build_condition(item: Item, repair: Repair) -> Condition:
    """Return the condition of a repair: `item` is still up to date."""
    condition = Attr(MessageField.REV) == Raw(item[MessageField.REV])
    for name in (*repair.sets, *repair.removes):
        condition &= Attr(name).matches(Raw(item[name]) if name in item else None)
    return condition
