"""Helpers of the migration tests: writers of two releases, and a client that crashes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import boto3
from botocore.config import Config

from chatserver.config import Warm
from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.messages import Messages, PersistItem
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.schema.migrations.migration import Migration
from chatserver.warm.schema.migrations.progress_and_lock import MIGRATE_LEASE_S
from chatserver.warm.schema.migrations.runner import MigrationOptions, MigrationRunner
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.schema.examples.migrations import EXAMPLES
from tests.integration.warm.schema.examples.thread_index import THREAD, Threads
from tests.integration.warm.support import FixedClock, Tables, message

Key = tuple[str, int]
ROUNDS_MAX = 60


def with_schema_version(settings: Warm, version: int | None) -> Warm:
    """Return the settings of a process with an older schema version."""
    return settings.model_copy(update={"schema_version": version})


def reply(seq: int, chat: str = "d-1", **changes: Any) -> PersistItem:
    """Create a reply to message 1."""
    return PersistItem(message(seq, chat=chat, reply_to=1, **changes), None)


class Crashed(Exception):
    """Raised in place of a process crash."""


class CrashingClient(DynamoClient):
    """A client whose process crashes in a call, before or after the server executed it."""

    def __init__(self, client: DynamoClient, settings: Warm, calls: int, *, is_after: bool) -> None:
        super().__init__(client._sdk, settings)
        self._left = calls
        self._is_after = is_after

    async def call_once(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._is_after):
            raise Crashed
        answer = await super().call_once(operation, request)
        if self._left <= 0:
            raise Crashed
        return answer


class JumpClock:
    """The system clock, which a test can advance."""

    ahead_s = 0.0

    def time(self) -> float:
        return time.time() + self.ahead_s

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


class Lines:
    """A progress report that records its lines."""

    def __init__(self) -> None:
        self.output: list[str] = []
        self.advances: list[int] = []

    def print_line(self, text: str) -> None:
        self.output.append(text)

    def begin(self, title: str, items: int) -> None:
        self.output.append(f"{title} of {items}")

    def advance(self, segments: Sequence[Any]) -> None:
        self.advances.append(sum(segment.read for segment in segments))

    def end(self) -> None:
        self.output.append("end")


SMALL = MigrationOptions(segments=3, page_items=7)


async def migrate_up(
    tables: Tables, options: MigrationOptions = SMALL, clock: JumpClock | None = None
) -> tuple[int, Lines]:
    """Run the pending example migrations; return the schema version and the output."""
    lines = Lines()
    runner = runner_of(tables, tables.client, options, clock or JumpClock(), lines)
    return (await runner.run("test")).version, lines


def runner_of(
    tables: Tables,
    client: DynamoClient,
    options: MigrationOptions,
    clock: JumpClock,
    report: Lines,
    migrations: Sequence[Migration] = EXAMPLES,
) -> MigrationRunner:
    """Return a runner of migrations with a client."""
    return MigrationRunner(
        client,
        tables.settings,
        clock=clock,
        report=report,
        options=options,
        migrations=migrations,
    )


async def migrate_up_with_crashes(
    tables: Tables,
    options: MigrationOptions,
    clock: JumpClock,
    rng: random.Random,
    migrations: Sequence[Migration] = EXAMPLES,
) -> int:
    """Run the migrations with crashes at random calls until a run completes; return the crashes."""
    for crashes in range(1000):
        client = CrashingClient(
            tables.client,
            tables.settings,
            rng.randint(1, 25 + crashes),
            is_after=rng.random() < 0.5,
        )
        runner = runner_of(tables, client, options, clock, Lines(), migrations)
        try:
            await runner.run(f"run-{crashes}")
        except* Crashed:
            clock.ahead_s += MIGRATE_LEASE_S + 1  # the crashed run did not release the lock
        else:
            return crashes
    raise AssertionError("no run completed")


class Writer:
    """Writes and changes messages like the current release."""

    def __init__(self, tables: Tables, chat: str, rng: random.Random) -> None:
        self.shards = ShardedChats(tables.client)
        self._messages = Messages(tables.client, shards=self.shards)
        self._changes = MessageChanges(tables.client, shards=self.shards)
        self._chat = chat
        self._dice = rng
        self.head = 0
        self.revs: dict[Key, int] = {}
        self.deleted: set[Key] = set()

    async def put(self, count: int) -> None:
        """Write `count` new messages; nine of ten are replies."""
        made: list[PersistItem] = []
        for _ in range(count):
            made.append(PersistItem(self._make(), None))
        await self.store(made)

    def _make(self) -> Message:
        self.head += 1
        self.revs[self._chat, self.head] = 1
        reply_to = self._dice.randint(1, 9) if self._dice.random() < 0.9 else None
        return message(self.head, chat=self._chat, reply_to=reply_to)

    async def store(self, made: list[PersistItem]) -> None:
        """Write messages that the caller created."""
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
        if (self._chat, target) not in self.deleted:
            self.revs[self._chat, target] = self.head
        if kind == "delete":
            self.deleted.add((self._chat, target))


class ThreadWriter(Writer):
    """Writes and edits messages like the release of the examples."""

    def start(self, tables: Tables) -> None:
        """Start like a new process, which reads the schema version once."""
        self.threads = Threads(tables.client, tables.settings, FixedClock(time.time()))

    async def put(self, count: int) -> None:
        for _ in range(count):
            await self.threads.put(self._make())

    async def change(self) -> None:
        target = self._dice.choice([seq for _, seq in self.revs])
        self.head += 1
        self.revs[self._chat, target] = self.head
        body = f"x{self.head}"
        await self.threads.edit(self._chat, message(target).ts, body, self.head)


@contextlib.asynccontextmanager
async def writing(*writers: Writer) -> AsyncIterator[None]:
    """Run writers during the block; their failures fail the test."""
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
    """Return the items of messages, without other entries, by chat and seq."""
    return {
        (row["chatid"]["S"], int(row["seq"]["N"])): row
        for row in rows
        if row["kind"]["S"] == "text"
    }


async def scan_all(tables: Tables) -> list[Item]:
    """Return all items of `messages`."""
    found: list[Item] = []
    request: dict[str, Any] = {"TableName": MESSAGES.name_in(tables.settings)}
    while True:
        answer = await tables.client.call("scan", {**request, "ConsistentRead": True})
        found += answer["Items"]
        if (last := answer.get("LastEvaluatedKey")) is None:
            return found
        request["ExclusiveStartKey"] = last


class ChangeLog:
    """Records writes to `messages` with DynamoDB Streams."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._name = MESSAGES.name_in(tables.settings)
        self._arn = ""

    async def begin(self) -> None:
        """Start recording."""
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
        """Return the changes of items as (before, after), in order."""
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
            iterator = client.get_shard_iterator(
                StreamArn=self._arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while iterator is not None:
                page = client.get_records(ShardIterator=iterator, Limit=1000)
                for record in page["Records"]:
                    images = record["dynamodb"]
                    if record["eventName"] == "MODIFY":
                        found.append((images["OldImage"], images["NewImage"]))
                if not page["Records"]:
                    break
                iterator = page.get("NextShardIterator")
        return found


def is_fill(old: Item, new: Item) -> bool:
    """Return whether a change only added or removed the attribute `thread`."""
    return old["rev"] == new["rev"] and old.get(THREAD) != new.get(THREAD)
