"""DynamoDB Streams test server with controllable content and faults.

It implements the wire format of the four operations (JSON 1.0), so that the SDK and our whole
client run. No development server supports TTL deletions, which carry an identity, nor shard splits,
expired iterators or trimmed records. This one supports them on request.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/{}/stream/2026-01-01T00:00:00.000"
IDENTITY = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}
PAGE_SHARDS = 3
PREFIX = "DynamoDBStreams_20120810."
ERRORS = "com.amazonaws.dynamodb.v20120810#"


class Refused(Exception):
    """An error response."""

    def __init__(self, code: str, status: int = 400) -> None:
        super().__init__(code)
        self.code = code
        self.status = status


@dataclasses.dataclass
class FakeShard:
    """A shard with its records; those before `trimmed` are gone."""

    id: str
    parent: str | None
    records: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    is_closed: bool = False
    trimmed: int = 0


class StreamServer:
    """One stream of one table."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.arn = ARN.format(table)
        self.shards: dict[str, FakeShard] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.port = 0
        self.page_records = 1000
        self._faults: dict[str, list[Refused]] = {}
        self._age = 0  # the age of issued iterators; those of an earlier age have expired
        self._count = 0
        self._made = 0
        self.add_shard()

    # content

    def add_shard(self, parent: FakeShard | None = None) -> FakeShard:
        """Add a shard."""
        self._made += 1
        name = f"shardId-{self._made:020d}-{self._made:08x}"
        shard = FakeShard(name, None if parent is None else parent.id)
        self.shards[name] = shard
        return shard

    def split(self, shard: FakeShard, into: int = 2) -> list[FakeShard]:
        """Close a shard and add child shards."""
        shard.is_closed = True
        return [self.add_shard(shard) for _ in range(into)]

    @property
    def first(self) -> FakeShard:
        """The first shard."""
        return next(iter(self.shards.values()))

    def remove(
        self, item: dict[str, Any], shard: FakeShard | None = None, *, is_by_ttl: bool = True
    ) -> str:
        """Record the removal of an item, by TTL or by a user; return the sequence number."""
        self._count += 1
        sequence = f"{self._count:021d}"
        record: dict[str, Any] = {
            "eventID": f"{self._count:032x}",
            "eventName": "REMOVE",
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "dynamodb": {
                "ApproximateCreationDateTime": time.time(),
                "Keys": {name: item[name] for name in ("chatid", "ts") if name in item},
                "OldImage": item,
                "SequenceNumber": sequence,
                "SizeBytes": 100,
                "StreamViewType": "OLD_IMAGE",
            },
        }
        if is_by_ttl:
            record["userIdentity"] = IDENTITY
        (shard or self.first).records.append(record)
        return sequence

    # faults

    def fail(self, operation: str, code: str, times: int = 1, status: int = 400) -> None:
        """Respond to the next calls of an operation with an error."""
        self._faults.setdefault(operation, []).extend([Refused(code, status)] * times)

    def expire_iterators(self) -> None:
        """Expire all iterators issued so far."""
        self._age += 1

    def trim(self, shard: FakeShard) -> None:
        """Drop the records of a shard, as happens after 24 hours."""
        shard.trimmed = len(shard.records)

    def remove_shard(self, shard: FakeShard) -> None:
        """Remove a shard from the list."""
        del self.shards[shard.id]

    # operations

    def list_streams(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["TableName"] != self.table:
            return {"Streams": []}
        stream = {"StreamArn": self.arn, "TableName": self.table, "StreamLabel": self.arn[-23:]}
        return {"Streams": [stream]}

    def describe_stream(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["StreamArn"] != self.arn:
            raise Refused("ResourceNotFoundException")
        after = request.get("ExclusiveStartShardId", "")
        left = [shard for name, shard in sorted(self.shards.items()) if name > after]
        described: dict[str, Any] = {"StreamArn": self.arn, "StreamStatus": "ENABLED"}
        described["Shards"] = [
            {
                "ShardId": shard.id,
                "SequenceNumberRange": {"StartingSequenceNumber": "1".zfill(21)},
                **({} if shard.parent is None else {"ParentShardId": shard.parent}),
            }
            for shard in left[:PAGE_SHARDS]
        ]
        if len(left) > PAGE_SHARDS:
            described["LastEvaluatedShardId"] = left[PAGE_SHARDS - 1].id
        return {"StreamDescription": described}

    def get_shard_iterator(self, request: dict[str, Any]) -> dict[str, Any]:
        shard = self._find(request["ShardId"])
        place = shard.trimmed
        if request["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER":
            found = [
                number
                for number, record in enumerate(shard.records)
                if record["dynamodb"]["SequenceNumber"] == request["SequenceNumber"]
            ]
            if not found or found[0] < shard.trimmed:
                raise Refused("TrimmedDataAccessException")
            place = found[0] + 1
        return {"ShardIterator": self._iterator(shard, place)}

    def get_records(self, request: dict[str, Any]) -> dict[str, Any]:
        name, place, age = json.loads(request["ShardIterator"])
        if age != self._age:
            raise Refused("ExpiredIteratorException")
        shard = self._find(name)
        if place < shard.trimmed:
            raise Refused("TrimmedDataAccessException")
        end = place + min(self.page_records, request.get("Limit", 1000))
        records = shard.records[place:end]
        answer: dict[str, Any] = {"Records": records}
        if not shard.is_closed or place + len(records) < len(shard.records):
            answer["NextShardIterator"] = self._iterator(shard, place + len(records))
        return answer

    def _find(self, name: str) -> FakeShard:
        if name not in self.shards:
            raise Refused("ResourceNotFoundException")
        return self.shards[name]

    def _iterator(self, shard: FakeShard, place: int) -> str:
        return json.dumps([shard.id, place, self._age])

    # HTTP

    async def _answer(self, request: web.Request) -> web.Response:
        target = request.headers["X-Amz-Target"]
        assert target.startswith(PREFIX), target
        operation = target.removeprefix(PREFIX)
        body = json.loads(await request.read())
        self.asked.append((operation, body))
        headers = {"x-amzn-RequestId": f"R{len(self.asked)}"}
        try:
            if self._faults.get(operation):
                raise self._faults[operation].pop(0)
            handle = {
                "ListStreams": self.list_streams,
                "DescribeStream": self.describe_stream,
                "GetShardIterator": self.get_shard_iterator,
                "GetRecords": self.get_records,
            }[operation]
            status, answer = 200, handle(body)
        except Refused as exc:
            status, answer = (
                exc.status,
                {"__type": ERRORS + exc.code, "message": "requested by the test"},
            )
        return web.Response(
            body=json.dumps(answer).encode(),
            status=status,
            content_type="application/x-amz-json-1.0",
            headers=headers,
        )

    @property
    def endpoint(self) -> str:
        """The endpoint URL."""
        return f"http://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[StreamServer]:
        """Serve on a separate port until the block ends."""
        app = web.Application()
        app.router.add_post("/", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await asyncio.wait_for(runner.cleanup(), 20)
