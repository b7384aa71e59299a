"""What the tests of migrations build with: tables of before them, writers, a client that dies."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import boto3
import pytest
from botocore.config import Config

from chatserver.config import Warm
from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY
from chatserver.protocol.frames import Attachment, Message
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.store import MessageRepository, PersistItem
from chatserver.warm.messages.write_shards import ShardList
from chatserver.warm.schema.migrations.runner import Migrations, Options
from chatserver.warm.schema.migrations.state import MIGRATE_LEASE_S
from chatserver.warm.schema.provisioning import apply_tables
from chatserver.warm.schema.tables import FILES_INDEX, MESSAGES
from tests.integration.warm.support import START_TS, STEP_US, Tables, message
from tests.support.servers.processes import eventually

FILE = Attachment("01JFILE", "plan.pdf", "application/pdf", 1234)
Key = tuple[str, int]
ROUNDS_MAX = 60


@pytest.fixture
async def old_tables(bare: Tables) -> Tables:
    """The four tables as they were before any migration."""
    await make_old(bare)
    return bare


async def make_old(tables: Tables) -> None:
    """Make tables without what migrations bring."""
    await apply_tables(tables.client, tables.settings, poll_s=0.01)
    delete = {"Delete": {"IndexName": FILES_INDEX.name}}
    name = MESSAGES.name_in(tables.settings)
    await tables.client.call(
        "update_table", {"TableName": name, "GlobalSecondaryIndexUpdates": [delete]}
    )
    await eventually(lambda: _has_no_index(tables.client, name))
    for attribute, is_on in (("ttl", False), ("expires_at", True)):
        expiry = {"AttributeName": attribute, "Enabled": is_on}
        request = {"TableName": name, "TimeToLiveSpecification": expiry}
        await tables.client.call("update_time_to_live", request)
    key = {"PK": {"S": "schema"}, "SK": {"S": "schema"}}
    directory = tables.settings.table_prefix + "directory"
    await tables.client.call("delete_item", {"TableName": directory, "Key": key})


async def _has_no_index(client: DynamoClient, name: str) -> bool:
    table = (await client.call("describe_table", {"TableName": name}))["Table"]
    return FILES_INDEX.name not in {i["IndexName"] for i in table["GlobalSecondaryIndexes"]}


def acting(settings: Warm, version: int | None) -> Warm:
    """The settings of a process that acts by an older schema."""
    return settings.model_copy(update={"schema_version": version})


def with_file(seq: int, chat: str = "d-1", **changes: Any) -> PersistItem:
    """A message that has a file."""
    return PersistItem(message(seq, chat=chat, attachments=[FILE], **changes), None)


class Died(Exception):
    """The process is gone."""


class MortalClient(DynamoClient):
    """A client whose process dies with one of its calls: before the server did it, or after."""

    def __init__(self, client: DynamoClient, settings: Warm, calls: int, *, is_after: bool) -> None:
        super().__init__(client._sdk, settings)
        self._left = calls
        self._is_after = is_after

    async def call_once(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._is_after):
            raise Died
        answer = await super().call_once(operation, request)
        if self._left <= 0:
            raise Died
        return answer


class JumpClock:
    """A clock that a test can move on."""

    ahead_s = 0.0

    def time(self) -> float:
        return time.time() + self.ahead_s

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


class Lines:
    """A report that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.advances: list[int] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def begin(self, title: str, items: int) -> None:
        self.said.append(f"{title} of {items}")

    def advance(self, segments: Sequence[Any]) -> None:
        self.advances.append(sum(segment.read for segment in segments))

    def end(self) -> None:
        self.said.append("end")


SMALL = Options(segments=3, page_items=7)


async def up(
    tables: Tables, options: Options = SMALL, clock: JumpClock | None = None
) -> tuple[int, Lines]:
    """Run all migrations that are to be done; return the schema and what was said."""
    lines = Lines()
    migrations = Migrations(tables.client, tables.settings, clock or JumpClock(), lines, options)
    return (await migrations.up("test")).version, lines


async def up_with_deaths(
    tables: Tables, options: Options, clock: JumpClock, dice: random.Random
) -> int:
    """Run the migrations, dying at random calls, until a run comes to its end; count the deaths."""
    for deaths in range(1000):
        client = MortalClient(
            tables.client,
            tables.settings,
            dice.randint(1, 25 + deaths),
            is_after=dice.random() < 0.5,
        )
        migrations = Migrations(client, tables.settings, clock, Lines(), options)
        try:
            await migrations.up(f"run-{deaths}")
        except* Died:
            clock.ahead_s += MIGRATE_LEASE_S + 1  # nobody gave the lock back
        else:
            return deaths
    raise AssertionError("it never came to its end")


class Writer:
    """Writes messages and changes them, as a process that acts by some schema does."""

    def __init__(self, tables: Tables, version: int | None, chat: str, dice: random.Random) -> None:
        settings = acting(tables.settings, version)
        self.shards = ShardList(tables.client, settings)
        self._messages = MessageRepository(tables.client, settings, shards=self.shards)
        self._changes = MessageChanges(tables.client, settings, shards=self.shards)
        self._chat = chat
        self._dice = dice
        self.head = 0
        self.revs: dict[Key, int] = {}
        self.gone: set[Key] = set()

    async def put(self, count: int) -> None:
        """Write so many new messages, nine of ten with a file."""
        made: list[PersistItem] = []
        for _ in range(count):
            self.head += 1
            files = [FILE] if self._dice.random() < 0.9 else []
            made.append(PersistItem(message(self.head, chat=self._chat, attachments=files), None))
            self.revs[self._chat, self.head] = 1
        await self.store(made)

    async def store(self, made: list[PersistItem]) -> None:
        """Write messages that the caller made."""
        await self._messages.put_batch(made, 20.0)
        self.head = max(self.head, made[-1].message.seq)

    async def change(self) -> None:
        """Edit, react to or delete one of the messages."""
        target = self._dice.choice([seq for chat, seq in self.revs if chat == self._chat])
        kind = self._dice.choice(("edit", "reaction", "edit", "delete"))
        await self.apply(kind, target)

    async def apply(self, kind: str, target: int) -> None:
        """Change a message."""
        self.head += 1
        entry = message(
            self.head,
            chat=self._chat,
            kind=kind,
            target=target,
            body="" if kind == "delete" else f"x{self.head}",
        )
        await self._changes.apply(self._chat, message(target).ts, [entry])
        if (self._chat, target) not in self.gone:
            self.revs[self._chat, target] = self.head
        if kind == "delete":
            self.gone.add((self._chat, target))


@contextlib.asynccontextmanager
async def writing(*writers: Writer) -> AsyncIterator[None]:
    """Let writers write beside the block, for a while; their failures are the test's."""
    stop = asyncio.Event()

    async def write(writer: Writer) -> None:
        for _ in range(ROUNDS_MAX):
            if stop.is_set():
                return
            await writer.put(1)
            await writer.change()

    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(write(writer))
        yield
        stop.set()


def rows_of_messages(rows: list[Item]) -> dict[Key, Item]:
    """Items of messages that are no entries, by chat and seq."""
    return {
        (row["chatid"]["S"], int(row["seq"]["N"])): row
        for row in rows
        if row["kind"]["S"] == "text"
    }


async def scan_all(tables: Tables) -> list[Item]:
    """All items of `messages`."""
    found: list[Item] = []
    request: dict[str, Any] = {"TableName": MESSAGES.name_in(tables.settings)}
    while True:
        answer = await tables.client.call("scan", {**request, "ConsistentRead": True})
        found += answer["Items"]
        if (last := answer.get("LastEvaluatedKey")) is None:
            return found
        request["ExclusiveStartKey"] = last


async def listed_by_index(tables: Tables, chat: str) -> set[int]:
    """The seqs of a chat's messages that index `files` leads to."""
    answer = await tables.client.call(
        "query",
        {
            "TableName": MESSAGES.name_in(tables.settings),
            "IndexName": FILES_INDEX.name,
            "KeyConditionExpression": "files_of = :chat",
            "ExpressionAttributeValues": {":chat": {"S": chat}},
        },
    )
    return {(int(row["ts"]["N"]) - START_TS) // STEP_US for row in answer["Items"]}


class Journal:
    """What was written to `messages`, one record a write, from its stream."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._name = MESSAGES.name_in(tables.settings)
        self._arn = ""

    async def begin(self) -> None:
        """Have writes recorded from now on."""
        await self._tables.client.call(
            "update_table",
            {
                "TableName": self._name,
                "StreamSpecification": {
                    "StreamEnabled": True,
                    "StreamViewType": "NEW_AND_OLD_IMAGES",
                },
            },
        )
        table = await self._tables.client.call("describe_table", {"TableName": self._name})
        self._arn = table["Table"]["LatestStreamArn"]

    def changes(self) -> list[tuple[Item, Item]]:
        """What each change of an item made of what, in order."""
        client = boto3.client(
            "dynamodbstreams",
            endpoint_url=self._tables.settings.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(parameter_validation=False),
        )
        found: list[tuple[Item, Item]] = []
        for shard in client.describe_stream(StreamArn=self._arn)["StreamDescription"]["Shards"]:
            place = client.get_shard_iterator(
                StreamArn=self._arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while place is not None:
                page = client.get_records(ShardIterator=place, Limit=1000)
                for record in page["Records"]:
                    images = record["dynamodb"]
                    if record["eventName"] == "MODIFY":
                        found.append((images["OldImage"], images["NewImage"]))
                if not page["Records"]:
                    break
                place = page.get("NextShardIterator")
        return found


def is_fill(old: Item, new: Item) -> bool:
    """Whether a change gave an item its attribute, or took it, and nothing else."""
    return old["rev"] == new["rev"] and old.get("files_of") != new.get("files_of")


__all__ = ["Message", "old_tables"]
