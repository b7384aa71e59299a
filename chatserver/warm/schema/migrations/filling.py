"""Backfill: scans a table in parallel segments and repairs items.

A segment is read page by page; the items of a page are repaired concurrently, then the position is
recorded. Resumable: after a crash the next run continues from the last checkpoint and finds the
items already repaired. Reads are strongly consistent: an item that existed before its segment was
read is found, or it has been written since.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Final, Protocol

from chatserver.config import Warm
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.messages.item_repair import mend_item
from chatserver.warm.schema.migrations.pace import Pace
from chatserver.warm.schema.migrations.state import MigrationRows, Segment
from chatserver.warm.schema.migrations.steps import Migration

PAGE_ITEMS: Final = 200
WRITES_IN_FLIGHT_MAX: Final = 16
MEND_UNITS: Final = 2.0  # estimate before the response: the item and one index entry


class Report(Protocol):
    """Progress output of a run."""

    def say(self, text: str) -> None: ...

    def begin(self, title: str, items: int) -> None: ...

    def advance(self, segments: list[Segment]) -> None: ...

    def end(self) -> None: ...


class Filling:
    """One pass of a migration over its table."""

    def __init__(
        self,
        client: DynamoClient,
        settings: Warm,
        migration: Migration,
        turn: int,
        reads: Pace,
        writes: Pace,
        report: Report,
        page_items: int = PAGE_ITEMS,
    ) -> None:
        self._client = client
        self._rows = MigrationRows(client, settings)
        self._migration = migration
        self._table = migration.table.name_in(settings)
        self._turn = turn
        self._reads = reads
        self._writes = writes
        self._report = report
        self._page_items = page_items
        self._slots = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)
        self._segments: list[Segment] = []

    async def run(self, segments: int, items: int) -> list[Segment]:
        """Run until all segments are complete; `items` is their approximate total number.

        Guarantees:
            Idempotent and resumable with the same number of segments.

        Raises:
            Unavailable: DynamoDB does not respond, or the lock is lost.
        """
        number = self._migration.number
        self._segments = [await self._rows.get_segment(number, n) for n in range(segments)]
        self._report.begin(f"{number} {self._migration.name}", items)
        try:
            self._report.advance(self._segments)
            async with asyncio.TaskGroup() as group:
                for segment in self._segments:
                    name = f"segment-{segment.number}"
                    group.create_task(self._run(segment, segments), name=name)
        finally:
            self._report.end()
        return self._segments

    async def _run(self, segment: Segment, total: int) -> None:
        page_units = 1.0
        while not segment.is_done:
            await self._reads.take(page_units)
            answer = await self._client.call("scan", self._scan(segment, total))
            units = _units_of(answer)
            self._reads.settle(units - page_units)
            page_units = max(1.0, units)
            failpoint("migrate.after_scan")
            spent = await self._mend(answer["Items"])
            failpoint("migrate.before_checkpoint")
            last: Item | None = answer.get("LastEvaluatedKey")
            segment = dataclasses.replace(
                segment,
                place=last or segment.place,
                is_done=last is None,
                read=segment.read + len(answer["Items"]),
                filled=segment.filled + sum(each > 0 for each in spent),
                read_units=segment.read_units + units,
                write_units=segment.write_units + sum(spent),
            )
            await self._rows.put_segment(self._migration.number, segment, self._turn)
            failpoint("migrate.after_checkpoint")
            self._segments[segment.number] = segment
            self._report.advance(self._segments)

    def _scan(self, segment: Segment, total: int) -> dict[str, Any]:
        names = {f"#r{n}": name for n, name in enumerate(self._migration.reads)}
        request: dict[str, Any] = {
            "TableName": self._table,
            "Segment": segment.number,
            "TotalSegments": total,
            "Limit": self._page_items,
            "ConsistentRead": True,
            "ProjectionExpression": ", ".join(names),
            "ExpressionAttributeNames": names,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if segment.place is not None:
            request["ExclusiveStartKey"] = segment.place
        return request

    async def _mend(self, items: list[Item]) -> list[float]:
        """Repair the items of a page; return the write units of each."""
        mend = self._migration.mend
        assert mend is not None  # only migrations with `mend` are run here
        lacking = [item for item in items if mend(item) is not None]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._mend_one(item)) for item in lacking]
        return [task.result() for task in tasks]

    async def _mend_one(self, item: Item) -> float:
        assert self._migration.mend is not None
        async with self._slots:
            await self._writes.take(MEND_UNITS)
            failpoint("migrate.before_write")
            units = await mend_item(
                self._client, self._migration.table, self._table, item, self._migration.mend
            )
            failpoint("migrate.after_write")
            self._writes.settle(units - MEND_UNITS)
        return units


def _units_of(answer: dict[str, Any]) -> float:
    """Return the units of a response, or 0 if the server does not report them."""
    return float(answer.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0))
