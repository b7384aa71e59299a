"""Checkpoints and shard leases for the Stream of table `messages`.

Owns, in table `directory`:

    PK "stream"  SK "shard#<stream>/<shard>"  parent S  place S  done BOOL  read_to N (ms)
                                              holder S  held_until N (ms)  turn N  expires_at N
    PK "stream"  SK "reader#<name>"           seen N (ms)  expires_at N

`place` is the sequence number of the last processed record. `read_to` is the time up to which the
shard has been read.

A reader holds the lease of a shard while it reads the shard. Each holder gets a higher fencing
token (`turn`). A checkpoint with a lower token is rejected, so a reader that was paused for longer
than its lease cannot write one. The next holder processes the records after the last checkpoint
again, so processing must be idempotent.

The item of a completed shard is kept for a week, longer than DynamoDB lists the shard. The item of
an incomplete shard is kept forever, so that the loss of unread records is detected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from chatserver.config import Warm
from chatserver.errors import Unavailable
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import iter_pages, write_conditionally
from chatserver.warm.schema.directory_attributes import StreamField as Field
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.streams.shard_lineage import Shard, ShardProgress

_PARTITION: Final = "stream"
_SHARD: Final = "shard#"
_READER: Final = "reader#"
DONE_KEPT_S: Final = 7 * 86_400
READER_KEPT_S: Final = 86_400


class LeaseLost(Unavailable):
    """Another reader holds the shard's lease."""


class ShardLease(NamedTuple):
    """A shard lease held by a reader."""

    name: str
    holder: str
    turn: int
    place: str | None
    read_to_ms: int


class StreamState(NamedTuple):
    """Progress of all shards, and the readers with a recent heartbeat."""

    progress: dict[str, ShardProgress]
    readers: set[str]


class StreamCheckpoints:
    """Repository of checkpoints, leases and readers. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient, settings: Warm, lease_s: float) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)
        self._lease_s = lease_s

    async def get_state(self, now: float) -> StreamState:
        """Return the progress of all shards, and the live readers. Strongly consistent."""
        now_ms = int(now * 1000)
        state = StreamState({}, set())
        async for item in self._iter_rows():
            sort = item[Field.SK]["S"]
            if sort.startswith(_READER):
                if _get_number(item, Field.SEEN) > now_ms - 1000 * self._lease_s:
                    state.readers.add(sort.removeprefix(_READER))
                continue
            name = sort.removeprefix(_SHARD)
            is_held = _get_number(item, Field.HELD_UNTIL) > now_ms
            state.progress[name] = ShardProgress(
                name,
                item[Field.PLACE]["S"] if Field.PLACE in item else None,
                Field.DONE in item,
                _get_number(item, Field.READ_TO),
                item[Field.HOLDER]["S"] if is_held else None,
            )
        return state

    async def _iter_rows(self) -> AsyncIterator[Item]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#pk = :pk",
            "ExpressionAttributeNames": {"#pk": Field.PK},
            "ExpressionAttributeValues": {":pk": {"S": _PARTITION}},
            "ConsistentRead": True,
        }
        async for items in iter_pages(self._client, "query", request):
            for item in items:
                yield item

    async def put_reader(self, reader: str, now: float) -> None:
        item = _key(_READER + reader) | {
            Field.SEEN: {"N": str(int(now * 1000))},
            Field.EXPIRES_AT: {"N": str(int(now) + READER_KEPT_S)},
        }
        await self._client.call("put_item", {"TableName": self._table, "Item": item})

    async def remove_reader(self, reader: str) -> None:
        """Delete the item of a stopping reader. Idempotent."""
        key = _key(_READER + reader)
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    async def claim(
        self, shard: Shard, reader: str, now: float, read_to_ms: int | None = None
    ) -> ShardLease | None:
        """Claim a shard; return None if another reader holds it, or if the shard is complete.

        `read_to_ms` is the time up to which the parent shard has been read (None: `now`). It
        becomes the shard's own `read_to` if the shard has none yet.
        """
        now_ms = int(now * 1000)
        sets = "#holder = :holder, #until = :until, #read = if_not_exists(#read, :from)"
        values: Item = {
            ":holder": {"S": reader},
            ":until": {"N": str(now_ms + int(self._lease_s * 1000))},
            ":now": {"N": str(now_ms)},
            ":from": {"N": str(now_ms if read_to_ms is None else read_to_ms)},
            ":one": {"N": "1"},
        }
        names = {
            "#holder": Field.HOLDER,
            "#until": Field.HELD_UNTIL,
            "#read": Field.READ_TO,
            "#turn": Field.TURN,
            "#done": Field.DONE,
        }
        if shard.parent is not None:
            sets += ", #parent = :parent"
            names["#parent"] = Field.PARENT
            values[":parent"] = {"S": shard.parent}
        request = {
            "TableName": self._table,
            "Key": _key(_SHARD + shard.name),
            "UpdateExpression": f"SET {sets} ADD #turn :one",
            "ConditionExpression": (
                "attribute_not_exists(#done) AND "
                "(attribute_not_exists(#until) OR #until <= :now OR #holder = :holder)"
            ),
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "ReturnValues": "ALL_NEW",
        }
        try:
            item: Item = (await self._client.call("update_item", request))["Attributes"]
        except ConditionFailed:
            return None
        place = item[Field.PLACE]["S"] if Field.PLACE in item else None
        turn, read_to_ms = _get_number(item, Field.TURN), _get_number(item, Field.READ_TO)
        return ShardLease(shard.name, reader, turn, place, read_to_ms)

    async def save(
        self, hold: ShardLease, now: float, *, is_done: bool = False, keep: bool = True
    ) -> None:
        """Record the progress of a shard, and keep or release its lease.

        Raises:
            LeaseLost: another reader holds the shard.
        """
        until_ms = int((now + self._lease_s) * 1000) if keep and not is_done else 0
        sets = "#until = :until, #read = :read"
        names = {
            "#until": Field.HELD_UNTIL,
            "#read": Field.READ_TO,
            "#turn": Field.TURN,
            "#holder": Field.HOLDER,
        }
        values: Item = {
            ":until": {"N": str(until_ms)},
            ":read": {"N": str(hold.read_to_ms)},
            ":turn": {"N": str(hold.turn)},
            ":holder": {"S": hold.holder},
        }
        if hold.place is not None:
            sets += ", #place = :place"
            names["#place"] = Field.PLACE
            values[":place"] = {"S": hold.place}
        if is_done:
            sets += ", #done = :yes, #expires = :expires"
            names |= {"#done": Field.DONE, "#expires": Field.EXPIRES_AT}
            values |= {
                ":yes": {"BOOL": True},
                ":expires": {"N": str(int(now) + DONE_KEPT_S)},
            }
        request = {
            "TableName": self._table,
            "Key": _key(_SHARD + hold.name),
            "UpdateExpression": f"SET {sets}",
            "ConditionExpression": "#turn = :turn AND #holder = :holder",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        try:
            await self._client.call("update_item", request)
        except ConditionFailed as exc:
            raise LeaseLost(f"shard {hold.name}: claimed by another reader") from exc

    async def close(self, progress: ShardProgress, now: float) -> bool:
        """Mark a shard that no longer exists as complete; return False if it already was."""
        request = {
            "TableName": self._table,
            "Key": _key(_SHARD + progress.name),
            "UpdateExpression": "SET #done = :yes, #expires = :expires",
            "ConditionExpression": "attribute_not_exists(#done)",
            "ExpressionAttributeNames": {"#done": Field.DONE, "#expires": Field.EXPIRES_AT},
            "ExpressionAttributeValues": {
                ":yes": {"BOOL": True},
                ":expires": {"N": str(int(now) + DONE_KEPT_S)},
            },
        }
        return await write_conditionally(self._client, "update_item", request)


def _key(sort: str) -> Item:
    return {Field.PK: {"S": _PARTITION}, Field.SK: {"S": sort}}


def _get_number(item: Item, name: str) -> int:
    return int(item[name]["N"]) if name in item else 0
