"""The Stream of table `messages`: its shards, and the records in them.

Owns nothing: what is read up to where, `chatserver.warm.streamrows` knows. DynamoDB keeps a record
for 24 hours, and splits shards as it likes, at least every few hours; a shard names the one that it
continues. A table whose stream was switched off and on again has two of them for a day.

A record tells who removed an item: TTL is DynamoDB itself.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

from chatserver.config import Warm
from chatserver.errors import CorruptData
from chatserver.warm.client import DynamoClient, Item, TableMissing
from chatserver.warm.lineage import Shard
from chatserver.warm.tables import MESSAGES
from chatserver.warm.tenancy import Tenancy

STREAMS_MAX: Final = 100  # of one table, of which all but one are from before it was switched off
SHARDS_MAX: Final = 100_000
RECORDS_MAX: Final = 1000  # of one page; AWS: at most so many, and 1 MB
_TTL: Final = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}


class Record(NamedTuple):
    """A change of an item. `removed` is what the item was, if TTL removed it."""

    sequence: str
    created_s: float
    removed: Item | None


class RecordPage(NamedTuple):
    """Records in their order, and where to go on; None: the shard ends here."""

    records: list[Record]
    next: str | None


class Streams:
    """Reads the Stream."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = MESSAGES.name_in(settings)
        self._tenancy = Tenancy(settings) if settings.tenant else None

    async def list_shards(self) -> list[Shard]:
        """Return the shards of which something may still be there, of all streams of the table.

        Raises:
            TableMissing: the table has no stream.
        """
        arns: list[str] = []
        request: dict[str, Any] = {"TableName": self._table, "Limit": STREAMS_MAX}
        while True:
            answer = await self._client.call("list_streams", request)
            arns += [each["StreamArn"] for each in answer["Streams"]]
            if (last := answer.get("LastEvaluatedStreamArn")) is None:
                break
            request["ExclusiveStartStreamArn"] = last
        if not arns:
            raise TableMissing([f"table {self._table}: has no stream (CHAT_WARM_STREAM)"])
        return [shard for arn in arns for shard in await self._list_shards_of(arn)]

    async def _list_shards_of(self, arn: str) -> list[Shard]:
        request: dict[str, Any] = {"StreamArn": arn}
        found: list[Shard] = []
        while True:
            try:
                answer = await self._client.call("describe_stream", request)
            except TableMissing:
                return []  # an old one, which has just ended
            description = answer["StreamDescription"]
            found += [
                Shard(each["ShardId"], each.get("ParentShardId"), arn)
                for each in description["Shards"]
            ]
            if (last := description.get("LastEvaluatedShardId")) is None:
                return found
            if len(found) > SHARDS_MAX:
                raise CorruptData(f"stream {arn}: has more than {SHARDS_MAX} shards")
            request["ExclusiveStartShardId"] = last

    async def open_iterator(self, shard: Shard, after: str | None) -> str:
        """Return the place in a shard behind a record; without one, its beginning.

        Raises:
            StreamTrimmed: what follows that record is gone, or some of it.
            TableMissing: the shard is gone as a whole.
        """
        request = {
            "StreamArn": shard.arn,
            "ShardId": shard.id,
            "ShardIteratorType": "TRIM_HORIZON" if after is None else "AFTER_SEQUENCE_NUMBER",
        }
        if after is not None:
            request["SequenceNumber"] = after
        answer = await self._client.call("get_shard_iterator", request)
        iterator: str | None = answer.get("ShardIterator")
        if iterator is None:
            raise TableMissing([f"shard {shard.id}: has no iterator"])
        return iterator

    async def read(self, iterator: str) -> RecordPage:
        """Return the records at a place. None of them do not mean that none follow.

        Raises:
            IteratorExpired: ask for the place again.
            StreamTrimmed: they are gone.
        """
        answer = await self._client.call(
            "get_records", {"ShardIterator": iterator, "Limit": RECORDS_MAX}
        )
        records = [self._own(_record_of(each)) for each in answer["Records"]]
        return RecordPage(records, answer.get("NextShardIterator"))

    def _own(self, record: Record) -> Record:
        """Return a record without what is another tenant's: the Stream is of the whole table."""
        if self._tenancy is None or record.removed is None:
            return record
        return record._replace(removed=self._tenancy.find_own(self._table, record.removed))


def _record_of(raw: dict[str, Any]) -> Record:
    change = raw["dynamodb"]
    created: datetime | None = change.get("ApproximateCreationDateTime")
    # Nobody else's removals have an identity. One without names is taken for TTL's: what is judged
    # in vain costs little.
    identity: dict[str, str] | None = raw.get("userIdentity")
    is_by_ttl = (
        raw["eventName"] == "REMOVE"
        and identity is not None
        and all(identity.get(name, word) == word for name, word in _TTL.items())
    )
    removed = change.get("OldImage") if is_by_ttl else None
    created_s = 0.0 if created is None else created.timestamp()
    return Record(change["SequenceNumber"], created_s, removed)
