"""CPU cost of a DynamoDB call through `DynamoClient` and through the SDK, against a stub.

    python -m tests.benchmarks.dynamodb_transport

Prints the median of five alternating rounds of 400 calls, for a Query with an empty result and a
BatchWriteItem of 25 direct messages. The stub is a separate process and is not counted.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from typing import Any

from chatserver.warm.dynamo.client import DynamoClient, open_dynamodb
from tests.benchmarks.dynamodb_client import make_batch
from tests.integration.warm.support import settings_for
from tests.support.deadlines import EXIT_S
from tests.support.servers.processes import eventually, free_port

ROUNDS = 5
CALLS = 400
QUERY: dict[str, Any] = {
    "TableName": "t",
    "KeyConditionExpression": "#pk = :pk",
    "ExpressionAttributeNames": {"#pk": "pk"},
    "ExpressionAttributeValues": {":pk": {"S": "x"}},
}


async def measure(client: DynamoClient, operation: str, request: dict[str, Any]) -> float:
    """Return the CPU time of this process per call, in microseconds."""
    await client.call_once(operation, request)
    began = time.process_time()
    for _ in range(CALLS):
        await client.call_once(operation, request)
    return (time.process_time() - began) / CALLS * 1e6


async def is_listening(port: int) -> bool:
    """Return whether the stub accepts connections."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def compare(port: int) -> None:
    """Measure both clients alternately, and print the medians."""
    await eventually(lambda: is_listening(port), what="the stub")
    found: dict[tuple[str, str], list[float]] = {}
    async with open_dynamodb(settings_for(f"http://127.0.0.1:{port}")) as client:
        sdk = DynamoClient(client._sdk, client._settings)
        for _ in range(ROUNDS):
            for operation, request in (("query", QUERY), ("batch_write_item", make_batch())):
                for name, each in (("sdk", sdk), ("transport", client)):
                    cost = await measure(each, operation, request)
                    found.setdefault((operation, name), []).append(cost)
    for (operation, name), costs in found.items():
        sys.stdout.write(f"{operation} {name}: {statistics.median(costs):.0f} us\n")


def main() -> None:
    """Start the stub and compare."""
    port = free_port()
    argv = [sys.executable, "-m", "chatserver.loadtest.bench.dynamodb_stub", "--port", str(port)]
    stub = subprocess.Popen(argv)
    try:
        asyncio.run(compare(port))
    finally:
        stub.kill()
        stub.wait(EXIT_S)


if __name__ == "__main__":
    main()
