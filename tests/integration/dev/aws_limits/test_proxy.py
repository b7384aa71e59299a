"""`LimitsProxy`: the limits of AWS in front of the local DynamoDB server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from botocore.exceptions import ClientError

from chatserver.dev.aws_limits import rules
from tests.integration.dev.aws_limits.support import (
    Table,
    make_item,
    make_key,
    open_table,
    outcome_of,
)
from tests.support.servers.processes import eventually


def transact(table: Table, *keys: tuple[str, str]) -> Any:
    """Start a transaction that puts these items."""
    actions = [{"Put": table.put(*key, text="by transaction")} for key in keys]
    return table.client.transact_write_items(TransactItems=actions)


async def start_transaction(call: Any, table: Table, key: tuple[str, str]) -> asyncio.Task[Any]:
    """Start a transaction, wait until it has written the item, and return its running task."""
    task = asyncio.ensure_future(call)

    async def is_written() -> bool:
        answer = await table.client.get_item(
            TableName=table.name, Key=make_key(*key), ConsistentRead=True
        )
        return "Item" in answer

    await eventually(is_written)
    assert not task.done()
    return task


async def test_requests_on_an_item_of_a_running_transaction_are_refused(
    dynamodb_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of request gets DynamoDB's error, and requests for other items succeed."""
    end = asyncio.Event()
    monkeypatch.setattr(rules, "sleep_until", lambda _: end.wait())
    async with open_table(dynamodb_server.endpoint) as table:
        client, name = table.client, table.name
        running = await start_transaction(
            transact(table, ("a", "1"), ("b", "1")), table, ("a", "1")
        )
        update = {"TableName": name, "Key": make_key("a"), "UpdateExpression": "SET x = PK"}
        delete = {"TableName": name, "Key": make_key("a")}
        batch = {name: [{"PutRequest": {"Item": make_item(key)}} for key in ("a", "c")]}

        single = await asyncio.gather(
            outcome_of(client.put_item(**table.put("a"))),
            outcome_of(client.update_item(**update)),
            outcome_of(client.delete_item(**delete)),
            outcome_of(client.put_item(**table.put("d"))),
        )
        left = (await client.batch_write_item(RequestItems=batch))["UnprocessedItems"]
        with pytest.raises(ClientError) as write:
            await transact(table, ("e", "1"), ("b", "1"))
        get = {"Get": {"TableName": name, "Key": make_key("a")}}
        with pytest.raises(ClientError) as read:
            await client.transact_get_items(TransactItems=[get])
        end.set()
        await running
        stored = await table.scan()

    assert single == ["TransactionConflictException"] * 3 + [""]
    assert left == {name: [batch[name][0]]}
    for error, codes in ((write, ["None", "TransactionConflict"]), (read, ["TransactionConflict"])):
        response: dict[str, Any] = {**error.value.response}
        assert response["Error"]["Code"] == "TransactionCanceledException"
        assert [reason["Code"] for reason in response["CancellationReasons"]] == codes
    assert set(stored) == {("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")}
    assert stored["a", "1"]["text"] == {"S": "by transaction"}


async def test_hot_partition_is_throttled_and_others_are_not(dynamodb_server: Any) -> None:
    """A write of 10 KB takes 10 units, or 20 in a transaction. Refused writes are not applied."""
    async with open_table(
        dynamodb_server.endpoint, write_units=1.0, read_units=1.0, burst_s=25.0
    ) as table:
        client = table.client
        big = "x" * 10_000
        codes = [
            await outcome_of(client.put_item(**table.put("hot", str(number), text=big)))
            for number in range(4)
        ]
        cold = await outcome_of(client.put_item(**table.put("cold", text=big)))
        with pytest.raises(ClientError) as caught:
            await transact(table, ("cold", "2"), ("hot", "9"))
        batch = [{"PutRequest": {"Item": make_item(key, "5")}} for key in ("hot", "cold")]
        left = await client.batch_write_item(RequestItems={table.name: batch})
        alone = await outcome_of(client.batch_write_item(RequestItems={table.name: batch[:1]}))
        stored = await table.scan()

    response: dict[str, Any] = {**caught.value.response}
    reasons = [reason["Code"] for reason in response["CancellationReasons"]]
    assert codes == ["", "", "", "ProvisionedThroughputExceededException"]
    assert cold == "" and alone == "ProvisionedThroughputExceededException"
    assert reasons == ["None", "ProvisionedThroughputExceeded"]
    assert left["UnprocessedItems"] == {table.name: batch[:1]}
    expected = {("hot", "0"), ("hot", "1"), ("hot", "2"), ("cold", "1"), ("cold", "5")}
    assert set(stored) == expected


async def test_throttled_index_throttles_the_writes_of_its_table(dynamodb_server: Any) -> None:
    """The items are in many partitions of the table but in one partition of the index."""
    async with open_table(dynamodb_server.endpoint, write_units=1.0, burst_s=5.0) as table:
        put = table.client.put_item
        codes = [
            await outcome_of(put(**table.put(f"k{number}", owner="one"))) for number in range(8)
        ]
        other = await outcome_of(put(**table.put("k20", owner="two")))
        sparse = await outcome_of(put(**table.put("k21")))

    assert codes[:5] == [""] * 5 and codes[-1] == "ProvisionedThroughputExceededException"
    assert other == sparse == ""


async def test_reads_are_throttled_by_partition(dynamodb_server: Any) -> None:
    """Strongly consistent reads cost twice as much. A batch returns its throttled keys."""
    async with open_table(dynamodb_server.endpoint, read_units=1.0, burst_s=20.0) as table:
        client, name = table.client, table.name
        big = "x" * 39_000  # 10 read units
        for key in ("eventual", "strong", "cold"):
            await client.put_item(**table.put(key, text=big))

        async def get(key: str, is_consistent: bool) -> str:
            call = client.get_item(TableName=name, Key=make_key(key), ConsistentRead=is_consistent)
            return await outcome_of(call)

        eventual = [await get("eventual", False) for _ in range(6)]
        strong = [await get("strong", True) for _ in range(6)]
        wanted = {name: {"Keys": [make_key("strong"), make_key("cold")]}}
        batch = await client.batch_get_item(RequestItems=wanted)
        query = client.query(
            TableName=name,
            KeyConditionExpression="PK = :p",
            ExpressionAttributeValues={":p": {"S": "strong"}},
        )
        queried = await outcome_of(query)

    refused = "ProvisionedThroughputExceededException"
    assert eventual[:4] == [""] * 4 and eventual[-1] == refused
    assert strong[:2] == [""] * 2 and strong[-2:] == [refused] * 2
    assert queried == refused
    assert [item["PK"]["S"] for item in batch["Responses"][name]] == ["cold"]
    assert batch["UnprocessedKeys"][name]["Keys"] == [make_key("strong")]


async def test_batches_leave_the_configured_share_of_items_unprocessed(
    dynamodb_server: Any,
) -> None:
    """Each item is either stored or returned; retries complete the batch."""
    async with open_table(dynamodb_server.endpoint, unprocessed_share=0.5) as table:
        client, name = table.client, table.name
        left = {name: [{"PutRequest": {"Item": make_item(str(n))}} for n in range(25)]}
        rounds = 0
        while left:
            before = await table.scan()
            answer = await client.batch_write_item(RequestItems=left)
            unprocessed = answer["UnprocessedItems"]
            done = set(await table.scan()) - set(before)
            requested = {each["PutRequest"]["Item"]["PK"]["S"] for each in left[name]}
            kept = {each["PutRequest"]["Item"]["PK"]["S"] for each in unprocessed.get(name, ())}
            assert {key for key, _ in done} == requested - kept
            left, rounds = unprocessed, rounds + 1
        keys: dict[str, Any] = {name: {"Keys": [make_key(str(n)) for n in range(25)]}}
        found: list[str] = []
        while keys:
            got = await client.batch_get_item(RequestItems=keys)
            found += [item["PK"]["S"] for item in got["Responses"].get(name, ())]
            keys = got["UnprocessedKeys"]

    assert rounds > 1
    assert sorted(found, key=int) == [str(n) for n in range(25)]


async def test_index_shows_writes_after_its_lag(dynamodb_server: Any) -> None:
    """Added, moved and removed entries appear after the lag. The table itself has no lag."""
    async with open_table(dynamodb_server.endpoint, index_lag_ms=(600.0, 600.0)) as table:
        client = table.client
        await client.put_item(**table.put("moved", owner="one"))
        await client.put_item(**table.put("removed", owner="one"))

        async def keys_of(owner: str) -> list[str]:
            return sorted(row["PK"]["S"] for row in await table.query_index(owner))

        assert await keys_of("one") == []
        await eventually(lambda: _has(keys_of("one"), ["moved", "removed"]))
        move = {
            "TableName": table.name,
            "Key": make_key("moved"),
            "UpdateExpression": "SET #o = :two",
            "ExpressionAttributeNames": {"#o": "owner"},
            "ExpressionAttributeValues": {":two": {"S": "two"}},
        }
        delete = {"Delete": {"TableName": table.name, "Key": make_key("removed")}}
        await client.transact_write_items(TransactItems=[{"Update": move}, delete])
        late = [await keys_of("one"), await keys_of("two"), sorted(await table.scan())]
        await eventually(lambda: _has(keys_of("two"), ["moved"]))
        await eventually(lambda: _has(keys_of("one"), []))

    assert late == [["moved", "removed"], [], [("moved", "1")]]


async def _has(keys: Any, expected: list[str]) -> bool:
    return bool(await keys == expected)


async def test_errors_and_other_operations_pass_through(dynamodb_server: Any) -> None:
    """Failed conditions, malformed requests and missing tables get the server's own errors."""
    async with open_table(dynamodb_server.endpoint) as table:
        client = table.client
        condition = {"ConditionExpression": "attribute_exists(PK)"}
        codes = [
            await outcome_of(client.put_item(**table.put("a"), **condition)),
            await outcome_of(client.put_item(TableName=table.name, Item={"x": {"S": "1"}})),
            await outcome_of(client.get_item(TableName="missing-table", Key=make_key("a"))),
        ]
        used = await client.put_item(**table.put("a"), ReturnConsumedCapacity="TOTAL")
        unmeasured = await client.put_item(**table.put("a"))
        tables = (await client.list_tables())["TableNames"]

    assert codes == [
        "ConditionalCheckFailedException",
        "ValidationException",
        "ResourceNotFoundException",
    ]
    assert used["ConsumedCapacity"] == {"TableName": table.name, "CapacityUnits": 1.0}
    assert "ConsumedCapacity" not in unmeasured
    assert table.name in tables
