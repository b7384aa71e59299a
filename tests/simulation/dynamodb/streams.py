"""TTL and the Stream of table `messages` in the simulated DynamoDB.

`remove_expired` removes items some time after their TTL, if the archive has reached them: before
that, guarantees need the archive worker to be in time (docs/archive.md). The removals are recorded
as DynamoDB does. A Stream has a few shards; after some records, a child replaces its shard.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.dynamodb.expressions import Item
from tests.simulation.dynamodb.server import Body, DynamoDbServer, Failure
from tests.simulation.dynamodb.tables import Table

SHARDS: Final = 2
RECORDS_OF_SHARD: Final = 60  # more than these are in a child shard
PAGE_MAX: Final = 20
DELAY_S_MAX: Final = 3  # time until an expired item is removed
_IDENTITY: Final = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}


class Shard:
    """Records in order. It is closed when it has a child."""

    def __init__(self, name: str, parent: str | None) -> None:
        self.name = name
        self.parent = parent
        self.records: list[Body] = []
        self.is_closed = False


class Streams:
    """The Streams of all tables that have one, and the removal of expired items."""

    def __init__(
        self,
        server: DynamoDbServer,
        clock: Callable[[], float],
        rng: random.Random,
        is_archived: Callable[[Item], bool],
    ) -> None:
        self._server = server
        self._is_archived = is_archived
        self._clock = clock
        self._rng = rng
        self._shards: dict[str, Shard] = {}
        self._open: list[Shard] = []
        self._arn = ""
        self._table = ""
        self._sequence = 10**20
        self.removed: list[Item] = []  # by TTL
        server.on_change.append(self._handle_change)
        server.add_operations(
            {
                "ListStreams": self._list_streams,
                "DescribeStream": self._describe_stream,
                "GetShardIterator": self._get_iterator,
                "GetRecords": self._get_records,
            }
        )

    # TTL

    def remove_expired(self) -> None:
        """Remove some of the expired items of tables with a Stream."""
        now = self._clock()
        for table in self._server.tables.values():
            if table.expiry is None or "StreamSpecification" not in table.description:
                continue
            expired = [item for _, item in table.items.iter_all() if _is_over(item, table, now)]
            for item in expired:
                if not self._is_archived(item):
                    continue
                if int(item[table.expiry]["N"]) + self._rng.uniform(0, DELAY_S_MAX) < now:
                    table.remove(item)
                    self.removed.append(item)
                    self._record(table, item, None, userIdentity=_IDENTITY)

    # records

    def _handle_change(self, table: Table, old: Item | None, new: Item | None) -> None:
        if "StreamSpecification" in table.description:
            self._record(table, old, new)

    def _record(self, table: Table, old: Item | None, new: Item | None, **more: Any) -> None:
        if not self._open:
            self._table, self._arn = table.name, table.description["LatestStreamArn"]
            self._open = [self._add_shard(None) for _ in range(SHARDS)]
        item = new if new is not None else old
        assert item is not None
        at = zlib.crc32(repr(table.items.get_value(item)).encode()) % SHARDS
        if len(self._open[at].records) >= RECORDS_OF_SHARD:
            self._open[at].is_closed = True
            self._open[at] = self._add_shard(self._open[at].name)
        self._sequence += self._rng.randint(1, 9)
        change: Body = {
            "SequenceNumber": str(self._sequence),
            "ApproximateCreationDateTime": int(self._clock()),
        }
        if old is not None:
            change["OldImage"] = old
        name = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
        self._open[at].records.append({"eventName": name, "dynamodb": change, **more})

    def _add_shard(self, parent: str | None) -> Shard:
        shard = Shard(f"shardId-{len(self._shards):08d}", parent)
        self._shards[shard.name] = shard
        return shard

    # operations

    def _list_streams(self, body: Body) -> Body:
        if not self._open:  # nothing was written yet
            return {"Streams": [{"StreamArn": f"none/{body['TableName']}"}]}
        return {"Streams": [{"StreamArn": self._arn, "TableName": self._table}]}

    def _describe_stream(self, body: Body) -> Body:
        shards = [
            {"ShardId": each.name} | ({} if each.parent is None else {"ParentShardId": each.parent})
            for each in self._shards.values()
        ]
        return {"StreamDescription": {"StreamArn": body["StreamArn"], "Shards": shards}}

    def _get_iterator(self, body: Body) -> Body:
        shard = self._find(body["ShardId"])
        start = 0
        if body["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER":
            last = int(body["SequenceNumber"])
            numbers = (int(each["dynamodb"]["SequenceNumber"]) for each in shard.records)
            start = sum(number <= last for number in numbers)
        return {"ShardIterator": f"{shard.name}/{start}"}

    def _get_records(self, body: Body) -> Body:
        name, _, position = body["ShardIterator"].partition("/")
        shard, start = self._find(name), int(position)
        page = shard.records[start : start + min(body["Limit"], PAGE_MAX)]
        end = start + len(page)
        response: Body = {"Records": page}
        if not (shard.is_closed and end == len(shard.records)):
            response["NextShardIterator"] = f"{name}/{end}"
        return response

    def _find(self, name: str) -> Shard:
        if name not in self._shards:
            raise Failure("ResourceNotFoundException", "Requested resource not found")
        return self._shards[name]


def _is_over(item: Item, table: Table, now: float) -> bool:
    expiry = item.get(table.expiry or "", {}).get("N")
    return expiry is not None and int(expiry) < now
