"""Reads that share BatchGetItem calls: few calls, and independent callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from chatserver.errors import CorruptData, Unavailable
from chatserver.warm.dynamo.batched_reads import BatchedReads
from chatserver.warm.dynamo.batches import READS_MAX
from chatserver.warm.dynamo.client import DynamoClient, Item

TABLE = "table"
ATTEMPTS = 3


def key(name: str) -> Item:
    """Return a key of the table."""
    return {"PK": {"S": name}, "SK": {"S": name}}


class FakeDynamo:
    """A table with every item except those whose name begins with "missing"."""

    endpoint = "test"

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.throttled: set[str] = set()
        self.invalid: set[str] = set()
        self.is_down = False
        self.gate: asyncio.Event | None = None  # calls wait for this event

    async def retry(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Repeat a failing attempt without delay."""
        for number in range(ATTEMPTS):
            try:
                return await attempt()
            except Unavailable:
                if number == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(0)
        return None

    async def call_once(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        assert operation == "batch_get_item"
        names = [each["PK"]["S"] for each in request["RequestItems"][TABLE]["Keys"]]
        assert len(set(names)) == len(names) <= READS_MAX
        assert request["RequestItems"][TABLE]["ConsistentRead"]
        self.calls.append(names)
        if self.gate is not None:
            await self.gate.wait()
        if self.is_down:
            raise Unavailable("down")
        if self.invalid & set(names):
            raise CorruptData("invalid key")
        left = [name for name in names if name in self.throttled]
        found = [name for name in names if name not in left and not name.startswith("missing")]
        return {
            "Responses": {TABLE: [key(name) | {"n": {"S": name}} for name in found]},
            "UnprocessedKeys": {TABLE: {"Keys": [key(name) for name in left]}} if left else {},
        }


def reads_of(dynamo: FakeDynamo) -> BatchedReads:
    """Return batched reads of this table."""
    return BatchedReads(cast(DynamoClient, dynamo), TABLE)


def names_of(items: list[Item]) -> set[str]:
    return {item["n"]["S"] for item in items}


async def test_reads_of_one_tick_share_a_call_and_each_gets_its_own_items() -> None:
    """A key that several callers need is read once."""
    dynamo = FakeDynamo()
    reads = reads_of(dynamo)

    one, other, none = await asyncio.gather(
        reads.get([key("a"), key("shared"), key("missing")]),
        reads.get([key("shared"), key("b")]),
        reads.get([]),
    )

    assert (names_of(one), names_of(other), none) == ({"a", "shared"}, {"shared", "b"}, [])
    assert len(dynamo.calls) == 1


async def test_reads_of_many_keys_use_calls_of_at_most_a_hundred() -> None:
    """The limit holds for the keys of one caller too."""
    dynamo = FakeDynamo()

    found = await reads_of(dynamo).get([key(f"k{n}") for n in range(250)])

    assert len(found) == 250
    assert [len(names) for names in dynamo.calls] == [100, 100, 50]


async def test_reads_during_a_call_wait_for_its_response_and_share_the_next_call() -> None:
    """A burst makes few calls, and a single read does not wait."""
    dynamo = FakeDynamo()
    dynamo.gate = asyncio.Event()
    reads = reads_of(dynamo)
    first = asyncio.create_task(reads.get([key("a")]))
    while not dynamo.calls:
        await asyncio.sleep(0)

    later = []
    for name in ("b", "c", "d"):
        later.append(asyncio.create_task(reads.get([key(name)])))
        await asyncio.sleep(0)
    dynamo.gate.set()
    found = await asyncio.gather(first, *later)

    assert [names_of(items) for items in found] == [{"a"}, {"b"}, {"c"}, {"d"}]
    assert dynamo.calls == [["a"], ["b", "c", "d"]]


async def test_read_starts_after_its_caller_requests_it() -> None:
    """A key that is in flight is read again: the caller must see what was written before."""
    dynamo = FakeDynamo()
    dynamo.gate = asyncio.Event()
    reads = reads_of(dynamo)
    first = asyncio.create_task(reads.get([key("a")]))
    while not dynamo.calls:
        await asyncio.sleep(0)

    again = asyncio.create_task(reads.get([key("a")]))
    await asyncio.sleep(0)
    dynamo.gate.set()
    await asyncio.gather(first, again)

    assert dynamo.calls == [["a"], ["a"]]


async def test_throttled_key_fails_only_its_own_caller_and_delays_no_other() -> None:
    """The other callers get their items from the first response."""
    dynamo = FakeDynamo()
    dynamo.throttled = {"hot"}
    reads = reads_of(dynamo)

    hot = asyncio.create_task(reads.get([key("hot"), key("a")]))
    other = asyncio.create_task(reads.get([key("a"), key("b")]))

    assert names_of(await other) == {"a", "b"}
    assert not hot.done()
    with pytest.raises(Unavailable, match="capacity exceeded"):
        await hot
    assert [set(names) for names in dynamo.calls] == [{"hot", "a", "b"}, {"hot"}, {"hot"}]


async def test_rejected_key_fails_only_its_own_caller() -> None:
    """DynamoDB rejects the whole call, so each caller's keys are read alone."""
    dynamo = FakeDynamo()
    dynamo.invalid = {"bad"}
    reads = reads_of(dynamo)

    found = await asyncio.gather(
        reads.get([key("a")]), reads.get([key("bad")]), reads.get([key("b")]),
        return_exceptions=True,
    )  # fmt: skip

    assert isinstance(found[1], CorruptData)
    assert names_of(cast(Any, found[0])) == {"a"}
    assert names_of(cast(Any, found[2])) == {"b"}
    assert len(dynamo.calls) == 4


async def test_canceled_caller_does_not_affect_the_others() -> None:
    """The shared call continues."""
    dynamo = FakeDynamo()
    dynamo.gate = asyncio.Event()
    reads = reads_of(dynamo)
    one = asyncio.create_task(reads.get([key("a")]))
    other = asyncio.create_task(reads.get([key("a"), key("b")]))
    while not dynamo.calls:
        await asyncio.sleep(0)

    one.cancel()
    dynamo.gate.set()

    assert names_of(await other) == {"a", "b"}
    assert one.cancelled()


async def test_reads_continue_after_dynamodb_was_down() -> None:
    """All callers of the failed call get the error, and later ones are served."""
    dynamo = FakeDynamo()
    dynamo.is_down = True
    reads = reads_of(dynamo)

    failed = await asyncio.gather(
        reads.get([key("a")]), reads.get([key("b")]), return_exceptions=True
    )
    dynamo.is_down = False

    assert [type(error) for error in failed] == [Unavailable, Unavailable]
    assert names_of(await reads.get([key("a")])) == {"a"}


async def test_failure_of_one_call_fails_a_read_of_several_calls() -> None:
    """A read returns all its items or an error."""
    dynamo = FakeDynamo()
    dynamo.throttled = {"k200"}
    reads = reads_of(dynamo)

    long, other = await asyncio.gather(
        reads.get([key(f"k{n}") for n in range(250)]), reads.get([key("a")]),
        return_exceptions=True,
    )  # fmt: skip

    assert isinstance(long, Unavailable)
    assert names_of(cast(Any, other)) == {"a"}
