"""Property test: writes that the proxy refuses are not applied, and all others are."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.integration.dev.aws_limits.support import Table, make_key, open_table

KEYS = [(partition, sort) for partition in ("a", "b", "c") for sort in ("1", "2")]
TASKS = 12
STEPS = 12


class Writer:
    """Makes random writes with unique marks, and records which were applied or refused."""

    def __init__(self, table: Table, number: int, rng: random.Random) -> None:
        self._table = table
        self._name = f"w{number}"
        self._dice = rng
        self._count = 0
        self.applied: set[tuple[tuple[str, str], str]] = set()
        self.refused: set[tuple[tuple[str, str], str]] = set()
        self.codes: set[str] = set()

    async def run(self) -> None:
        for _ in range(STEPS):
            await self._dice.choice((self._update, self._transact, self._transact, self._batch))()

    def _next_mark(self) -> str:
        self._count += 1
        return f"{self._name}m{self._count}"

    def _update_of(self, key: tuple[str, str], mark: str) -> dict[str, Any]:
        return {
            "TableName": self._table.name,
            "Key": make_key(*key),
            "UpdateExpression": "SET #mark = :one",
            "ExpressionAttributeNames": {"#mark": mark},
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }

    async def _update(self) -> None:
        key, mark = self._dice.choice(KEYS), self._next_mark()
        await self._do({(key, mark)}, self._table.client.update_item(**self._update_of(key, mark)))

    async def _transact(self) -> None:
        mark, keys = self._next_mark(), self._dice.sample(KEYS, self._dice.randint(1, 4))
        actions = [{"Update": self._update_of(key, mark)} for key in keys]
        call = self._table.client.transact_write_items(TransactItems=actions)
        await self._do({(key, mark) for key in keys}, call)

    async def _batch(self) -> None:
        name, mark = self._table.name, self._next_mark()
        keys = [(self._dice.choice("abc"), f"{mark}-{number}") for number in range(5)]
        writes = [{"PutRequest": {"Item": {**make_key(*key), "mark": {"S": mark}}}} for key in keys]
        marks = {(key, "mark") for key in keys}
        try:
            answer = await self._table.client.batch_write_item(RequestItems={name: writes})
        except ClientError as exc:
            self.codes.add(exc.response["Error"]["Code"])
            self.refused |= marks
            return
        left = [each["PutRequest"]["Item"] for each in answer["UnprocessedItems"].get(name, ())]
        kept = {((item["PK"]["S"], item["SK"]["S"]), "mark") for item in left}
        if kept:
            self.codes.add("UnprocessedItems")
        self.refused |= kept
        self.applied |= marks - kept

    async def _do(self, marks: set[tuple[tuple[str, str], str]], call: Any) -> None:
        try:
            await call
        except ClientError as exc:
            self.codes.add(exc.response["Error"]["Code"])
            self.refused |= marks
        else:
            self.applied |= marks


@pytest.mark.parametrize("seed", range(4))
async def test_refused_writes_are_not_applied_and_all_others_are(
    dynamodb_server: Any, seed: int
) -> None:
    """Concurrent writes, transactions and batches on few items, with little capacity."""
    limits = {"write_units": 1.0, "burst_s": 20.0, "transaction_ms": 5.0}
    limits |= {"unprocessed_share": 0.2, "seed": seed}
    async with open_table(dynamodb_server.endpoint, **limits) as table:
        rng = random.Random(seed)
        writers = [Writer(table, number, random.Random(rng.random())) for number in range(TASKS)]

        await asyncio.gather(*(writer.run() for writer in writers))
        stored = await table.scan()

    marks = {(key, name) for key, item in stored.items() for name in item if name[0] in "wm"}
    applied = set[Any]().union(*(writer.applied for writer in writers))
    refused = set[Any]().union(*(writer.refused for writer in writers))
    codes = set[str]().union(*(writer.codes for writer in writers))
    assert marks == applied
    assert not marks & refused
    assert {
        "TransactionCanceledException",
        "TransactionConflictException",
        "ProvisionedThroughputExceededException",
        "UnprocessedItems",
    } <= codes
