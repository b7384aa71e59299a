"""CPU cost that `DynamoClient` adds to a call: metering, and the tenant prefix.

    python -m tests.benchmarks.dynamodb_client [--calls 20000] [--out F.json]

A BatchWriteItem of 25 direct messages, as the persist worker sends it, is answered by a function of
this process, so only the client itself is timed. The same call through the SDK, with its HTTP,
takes about 2 ms (`chatserver load bench persist` measures all of it).
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click

from chatserver.config import Warm
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo import client as dynamo_client
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.messages.message_repository import PersistItem, encode_item
from chatserver.warm.schema.tables import MESSAGES

_ROUNDS = 7
_INDEXES = {name: {"CapacityUnits": 25.0} for name in ("sender", "receiver", "status")}
_ANSWERS: dict[str, dict[str, Any]] = {
    "nothing": {"UnprocessedItems": {}},
    "TOTAL": {
        "UnprocessedItems": {},
        "ConsumedCapacity": [{"TableName": "chat_messages", "CapacityUnits": 100.0}],
    },
    "INDEXES": {
        "UnprocessedItems": {},
        "ConsumedCapacity": [
            {
                "TableName": "chat_messages",
                "CapacityUnits": 100.0,
                "Table": {"CapacityUnits": 25.0},
                "GlobalSecondaryIndexes": _INDEXES,
            }
        ],
    },
}


def make_batch() -> dict[str, Any]:
    items = [
        encode_item(
            PersistItem(
                Message(seq, 1_795_000_000_000_000 + seq, f"d-{seq % 12}", f"M{seq}", "alice",
                        f"r{seq}", "text", "x" * 90),
                "bob",
            )
        )
        for seq in range(1, 26)
    ]  # fmt: skip
    table = MESSAGES.name_in(Warm())
    return {"RequestItems": {table: [{"PutRequest": {"Item": item}} for item in items]}}


def _client(answer: dict[str, Any], tenant: str) -> DynamoClient:
    response = {**answer, "ResponseMetadata": {"RequestId": "x"}}

    async def batch_write_item(**_: Any) -> dict[str, Any]:
        return response

    sdk = SimpleNamespace(
        meta=SimpleNamespace(endpoint_url="http://stub"), batch_write_item=batch_write_item
    )
    return DynamoClient(cast(Any, sdk), Warm(tenant=tenant)).for_feature("persist")


async def measure(answer: str, tenant: str, calls: int) -> float:
    """Return microseconds per call."""
    client, request = _client(_ANSWERS[answer], tenant), make_batch()
    raw = json.dumps(_ANSWERS[answer])
    began = time.perf_counter()
    for _ in range(calls):
        json.loads(raw)  # as the SDK does with the response
        await client.call_once("batch_write_item", request)
    return (time.perf_counter() - began) / calls * 1e6


@click.command()
@click.option("--calls", default=20_000, show_default=True, type=click.IntRange(100))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path))
def main(calls: int, out: Path | None) -> None:
    """Measure, and print the median of the rounds."""
    found: dict[str, list[float]] = {}
    request_units = dynamo_client.request_consumed_capacity
    for _ in range(_ROUNDS):
        for name, answer, tenant in (
            ("without units", "nothing", ""),
            ("TOTAL", "TOTAL", ""),
            ("INDEXES", "INDEXES", ""),
            ("TOTAL, with a tenant", "TOTAL", "acme"),
        ):
            dynamo_client.request_consumed_capacity = (
                (lambda _, r: r) if answer == "nothing" else request_units
            )  # type: ignore[assignment]
            found.setdefault(name, []).append(
                asyncio.run(measure(answer, tenant, calls // _ROUNDS))
            )
    medians = {name: round(statistics.median(each), 1) for name, each in found.items()}
    click.echo(json.dumps({"us_per_batch_of_25": medians}, indent=1))
    if out is not None:
        out.write_text(json.dumps({"us_per_batch_of_25": medians}, indent=1) + "\n")


if __name__ == "__main__":
    main()
