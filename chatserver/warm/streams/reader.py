"""Stream reader for table `messages`: shards and records.

DynamoDB keeps a record for 24 hours. It may replace a shard with child shards at any time, and does
so at least every few hours. If a table's Stream is disabled and then enabled again, the table has
two Streams for a day.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

from chatserver.config import Warm
from chatserver.errors import CorruptData
from chatserver.warm.dynamo.client import DynamoClient, Item, TableMissing
from chatserver.warm.dynamo.tenancy import Tenancy
from chatserver.warm.schema.tables import MESSAGES
from chatserver.warm.streams.shard_lineage import Shard

STREAMS_MAX: Final = 100  # maximum Streams per page
SHARDS_MAX: Final = 100_000
RECORDS_MAX: Final = 1000  # maximum records per page; AWS allows 1,000 and 1 MB
_TTL: Final = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}


class StreamRecord(NamedTuple):
    """A change to an item. `removed` is the old item if TTL removed it."""

    sequence: str
    created_s: float
    removed: Item | None


class RecordPage(NamedTuple):
    """Records in order, and the next iterator, which is None at the end of the shard."""

    records: list[StreamRecord]
    next: str | None


class StreamReader:
    """Reads the shards and records of the table's Stream."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = MESSAGES.name_in(settings)
        self._tenancy = Tenancy(settings) if settings.tenant else None

    async def list_shards(self) -> list[Shard]:
        """Return the shards that may still have records, from all of the table's Streams.

        Raises:
            TableMissing: the table has no Stream.
        """
        arns: list[str] = []
        request: dict[str, Any] = {"TableName": self._table, "Limit": STREAMS_MAX}
        while True:
            response = await self._client.call("list_streams", request)
            arns += [stream["StreamArn"] for stream in response["Streams"]]
            if (last := response.get("LastEvaluatedStreamArn")) is None:
                break
            request["ExclusiveStartStreamArn"] = last
        if not arns:
            raise TableMissing(f"table {self._table}: Streams are off; set CHAT_WARM_STREAM")
        return [shard for arn in arns for shard in await self._list_stream_shards(arn)]

    async def _list_stream_shards(self, arn: str) -> list[Shard]:
        request: dict[str, Any] = {"StreamArn": arn}
        shards: list[Shard] = []
        while True:
            try:
                response = await self._client.call("describe_stream", request)
            except TableMissing:
                return []  # the Stream was disabled, and has just been deleted
            description = response["StreamDescription"]
            shards += [
                Shard(shard["ShardId"], shard.get("ParentShardId"), arn)
                for shard in description["Shards"]
            ]
            if (last := description.get("LastEvaluatedShardId")) is None:
                return shards
            if len(shards) > SHARDS_MAX:
                raise CorruptData(f"stream {arn}: has more than {SHARDS_MAX} shards")
            request["ExclusiveStartShardId"] = last

    async def open_iterator(self, shard: Shard, after: str | None) -> str:
        """Return an iterator after sequence number `after` (None: at the start of the shard).

        Raises:
            StreamTrimmed: records after `after` have been trimmed.
            TableMissing: the shard no longer exists.
        """
        request = {
            "StreamArn": shard.arn,
            "ShardId": shard.id,
            "ShardIteratorType": "TRIM_HORIZON" if after is None else "AFTER_SEQUENCE_NUMBER",
        }
        if after is not None:
            request["SequenceNumber"] = after
        response = await self._client.call("get_shard_iterator", request)
        iterator: str | None = response.get("ShardIterator")
        if iterator is None:
            raise TableMissing(f"shard {shard.id}: has no iterator")
        return iterator

    async def read(self, iterator: str) -> RecordPage:
        """Return the records at an iterator. An empty page does not mean the end of the shard.

        Raises:
            IteratorExpired: open a new iterator.
            StreamTrimmed: the records have been trimmed.
        """
        response = await self._client.call(
            "get_records", {"ShardIterator": iterator, "Limit": RECORDS_MAX}
        )
        records = [
            self._remove_foreign_item(_decode_record(record)) for record in response["Records"]
        ]
        return RecordPage(records, response.get("NextShardIterator"))

    def _remove_foreign_item(self, record: StreamRecord) -> StreamRecord:
        """Return `record`, without its removed item if the item belongs to another tenant."""
        if self._tenancy is None or record.removed is None:
            return record
        return record._replace(removed=self._tenancy.find_own(self._table, record.removed))


def _decode_record(raw: dict[str, Any]) -> StreamRecord:
    change = raw["dynamodb"]
    created: datetime | None = change.get("ApproximateCreationDateTime")
    # Only TTL removals have a user identity. A removal whose identity lacks attributes also counts
    # as a TTL removal, because an unnecessary check of an item costs little.
    identity: dict[str, str] | None = raw.get("userIdentity")
    is_by_ttl = (
        raw["eventName"] == "REMOVE"
        and identity is not None
        and all(identity.get(name, word) == word for name, word in _TTL.items())
    )
    removed = change.get("OldImage") if is_by_ttl else None
    created_s = 0.0 if created is None else created.timestamp()
    return StreamRecord(change["SequenceNumber"], created_s, removed)
