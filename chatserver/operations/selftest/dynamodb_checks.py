"""Self-test checks of DynamoDB, on tables created for the run."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from chatserver.config import Settings
from chatserver.errors import ChatError
from chatserver.operations.selftest.model import CheckFailed, CheckSkipped, SelftestCheck, require
from chatserver.warm.dynamo.batches import put_items
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.conditions import Add, Attr
from chatserver.warm.dynamo.connections import open_dynamodb_streams
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.schema.provisioning import apply_tables
from chatserver.warm.schema.tables import DIRECTORY, MEMBER_INDEX, MESSAGES, TABLES, DirectoryField

STORE: Final = "dynamodb"
BATCH: Final = 25
AT_ONCE: Final = 8  # number of concurrent transactions on one item
LAG_SAMPLES: Final = 10
LAG_S_MAX: Final = 30.0
STREAM_S_MAX: Final = 60.0
POLL_S: Final = 0.02


class DynamodbChecks:
    """The checks, in order: the first one creates the tables that the others use."""

    def __init__(self, client: DynamoClient, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._directory = Table(client, DIRECTORY)

    def list_checks(self) -> list[SelftestCheck]:
        return [
            SelftestCheck(STORE, "create tables, indexes and TTL", self._check_create),
            SelftestCheck(STORE, "write and read back", self._check_read),
            SelftestCheck(STORE, "batches", self._check_batches),
            SelftestCheck(STORE, "conditional transaction", self._check_transaction),
            SelftestCheck(STORE, "concurrent transactions on one item", self._check_conflicts),
            SelftestCheck(STORE, "TTL setting", self._check_expiry),
            SelftestCheck(STORE, "index lag", self._check_index_lag),
            SelftestCheck(STORE, "Stream", self._check_stream),
        ]

    async def _check_create(self) -> str:
        changes = await apply_tables(self._client, self._settings.warm)
        return f"{len(changes)} steps"

    async def _check_read(self) -> str:
        item = self._directory.encode_key(("one", "one")) | {"text": {"S": "é " * 100}}
        await self._directory.put(item)
        require(await self._find("one") == item, "the item differs from what was written")
        return "consistent read returns the item"

    async def _check_batches(self) -> str:
        keys: list[Key] = [("batch", f"{number:03d}") for number in range(BATCH)]
        items = [self._directory.encode_key(key) for key in keys]
        await put_items(self._client, self._directory.name, items)
        stored = await self._directory.get_items(keys)
        require(len(stored) == BATCH, f"{len(stored)} of {BATCH} items were read back")
        return f"{BATCH} items"

    async def _check_transaction(self) -> str:
        free, is_put = self._put_if_absent("free"), self._put_if_absent("one")
        try:
            await self._client.transact([free, is_put])
        except ConditionFailed:
            require(await self._find("free") is None, "a cancelled transaction wrote an item")
        else:
            raise CheckFailed("a transaction with a false condition succeeded")
        await self._client.transact([free])
        require(await self._find("free"), "a transaction wrote nothing")
        return "all or nothing"

    async def _check_conflicts(self) -> str:
        """Increment one item in concurrent transactions; each must be applied exactly once."""

        async def add(number: int) -> None:
            changes = {DirectoryField.MEMBERS: Add(1)}
            update = self._directory.update_action(("counter", "counter"), changes)
            mark = self._put_if_absent(f"mark{number}")
            # If a response is lost, the retry fails, because the item already exists.
            await try_write(self._client.transact([update, mark]))

        await asyncio.gather(*(add(number) for number in range(AT_ONCE)))
        item = await self._find("counter")
        count = 0 if item is None else int(item[DirectoryField.MEMBERS]["N"])
        require(count == AT_ONCE, f"the counter is {count} after {AT_ONCE} transactions")
        return f"{AT_ONCE} concurrently, each applied once"

    async def _check_expiry(self) -> str:
        for table in TABLES:
            if table.expiry is None:
                continue
            request = {"TableName": table.name_in(self._settings.warm)}
            response = await self._client.call("describe_time_to_live", request)
            described: dict[str, Any] = response["TimeToLiveDescription"]
            status, name = described["TimeToLiveStatus"], described.get("AttributeName")
            text = f"table {table.name}: TTL is {status} on {name}, expected {table.expiry}"
            require(status in ("ENABLED", "ENABLING") and name == table.expiry, text)
        return "enabled on all tables with expiring items"

    async def _check_index_lag(self) -> str:
        lags = [await self._measure_lag(number) for number in range(LAG_SAMPLES)]
        return f"median {sorted(lags)[len(lags) // 2]:.0f} ms, longest {max(lags):.0f} ms"

    async def _measure_lag(self, number: int) -> float:
        """Return the time in milliseconds until an index contains a new item."""
        name = f"lag{number}"
        await self._directory.put((name, name))
        began = time.monotonic()
        while time.monotonic() - began < LAG_S_MAX:
            if await self._directory.query(Span(DIRECTORY, name, MEMBER_INDEX)):
                return (time.monotonic() - began) * 1000
            await asyncio.sleep(POLL_S)
        raise CheckFailed(
            f"index {MEMBER_INDEX.name}: the test item did not appear within {LAG_S_MAX:g} s"
        )

    async def _check_stream(self) -> str:
        """Check that the removal of an item appears in the Stream of the `messages` table."""
        if not self._settings.warm.stream:
            raise CheckSkipped("warm.stream is off")
        table = Table(self._client, MESSAGES)
        key = table.encode_key(("selftest", 1))
        async with open_dynamodb_streams(self._settings.warm) as streams:
            await table.put(key)
            await table.delete(key)
            deadline = time.monotonic() + STREAM_S_MAX
            while time.monotonic() < deadline:
                if await _has_removal(streams, table.name, key):
                    return "the Stream contains the removal, with the old item"
                await asyncio.sleep(1.0)
        raise CheckFailed(f"the removal did not appear in the Stream within {STREAM_S_MAX:g} s")

    def _put_if_absent(self, name: str) -> Action:
        return self._directory.put_action((name, name), if_=Attr(DirectoryField.PK).is_absent)

    async def _find(self, name: str) -> Item | None:
        return await self._directory.find((name, name))


async def _has_removal(streams: DynamoClient, table: str, key: Item) -> bool:
    """Return whether the table's Stream contains the removal of the item with `key`."""
    try:
        listed = await streams.call("list_streams", {"TableName": table})
        for stream in listed["Streams"]:
            arn = {"StreamArn": stream["StreamArn"]}
            described = (await streams.call("describe_stream", arn))["StreamDescription"]
            for shard in described["Shards"]:
                start = {"ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
                iterator = await streams.call("get_shard_iterator", {**arn, **start})
                read = {"ShardIterator": iterator["ShardIterator"], "Limit": 100}
                for record in (await streams.call("get_records", read))["Records"]:
                    change = record["dynamodb"]
                    if record["eventName"] == "REMOVE" and change["Keys"] == key:
                        require("OldImage" in change, "the Stream lacks the old item")
                        return True
    except ChatError:
        return False
    return False
