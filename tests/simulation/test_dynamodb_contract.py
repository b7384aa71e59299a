"""The simulated DynamoDB answers like the development server: random requests, compared."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from chatserver.errors import ChatError
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.integration.warm.support import settings_for
from tests.simulation.dynamodb.client import DynamoDb, make_client
from tests.simulation.dynamodb_calls import CREATE, Requests
from tests.simulation.loop import SimulatedLoop
from tests.simulation.trace import Trace

REQUESTS = 250


async def perform(client: DynamoClient, operation: str, request: dict[str, Any]) -> Any:
    """Return the outcome of a request in a form that is equal for equal outcomes."""
    try:
        response = await client.call_once(operation, request)
    except ConditionFailed as exc:
        # The development server has no items for conditions without ReturnValues….
        return ("condition", [None if not item else sort(item) for item in exc.stored])
    except ChatError as exc:
        return type(exc).__name__
    ignored = ("ResponseMetadata", "ConsumedCapacity", "ItemCollectionMetrics")
    found = sort({key: value for key, value in response.items() if key not in ignored})
    if operation == "scan":
        found["Items"].sort(key=str)
    if found.get("Attributes", {}).keys() == {"PK", "SK"}:
        del found["Attributes"]  # the development server returns the key of an item that was absent
    return found


def sort(value: Any) -> Any:
    """Return a value with its sets in order."""
    if isinstance(value, dict):
        return {key: sorted(v) if key == "SS" else sort(v) for key, v in sorted(value.items())}
    return [sort(each) for each in value] if isinstance(value, list) else value


class InstantDynamoDb(DynamoDb):
    """The simulated server without delays, on any event loop."""

    async def exchange(self, name: str, body: bytes) -> tuple[int, bytes]:
        return self.exchange_now(name, body)


@pytest.mark.parametrize("seed", range(4))
async def test_random_requests_have_the_responses_of_the_server(dynamodb: str, seed: int) -> None:
    """Each request has the same response, also after failed conditions and invalid updates."""
    table = f"contract{secrets.token_hex(4)}"
    settings = settings_for(dynamodb)
    simulated = make_client(InstantDynamoDb(SimulatedLoop(1, Trace())), settings)

    async with open_dynamodb(settings) as real:
        for client in (real, simulated):
            await client.call("create_table", {"TableName": table, **CREATE})
        for number, (operation, request) in enumerate(Requests(seed, table).iter(REQUESTS)):
            wanted = await perform(real, operation, request)
            got = await perform(simulated, operation, request)
            assert got == wanted, f"request {number}: {operation} {request}"
