"""The product's DynamoDB client on the simulated server.

`SimulatedTransport` replaces the HTTP exchange of `HttpTransport`: a request arrives after a delay,
runs atomically, and its response arrives after another delay. Faults: the server is down, slow, or
loses responses after it has run the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import aiohttp
import msgspec
from botocore.exceptions import ClientError

from chatserver.config import Warm
from chatserver.dev.aws_limits.rules import AwsLimits, Rules
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.http_transport import ITEM_OPERATIONS, HttpTransport
from tests.simulation.dynamodb.server import DynamoDbServer
from tests.simulation.loop import SimulatedLoop
from tests.simulation.process import Process, make_context

DELAY_S = (0.000_3, 0.004)
READ_TIMEOUT_S = 2.5
_SHARES_OF_FAILURES = ("refused", "lost_request", "lost_response", "internal")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class DynamoDb:
    """The server and the condition of its network link."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.server = DynamoDbServer()
        self.rules: Rules | None = None  # AWS's limits, if they are on
        self._process = Process("dynamodb", "dynamodb")
        self.repair()
        self.failed: dict[str, int] = {}  # number of injected failures by kind

    def set_limits(self, limits: AwsLimits) -> None:
        """Refuse requests and delay indexes as AWS does (`chatserver.dev.aws_limits`)."""
        self.rules = Rules(limits, clock=lambda: self.loop.now)

    def repair(self) -> None:
        """End all faults."""
        self.is_down = False
        self.latency_s = 0.0
        self.failure_share = 0.0

    async def exchange(self, name: str, body: bytes) -> tuple[int, bytes]:
        """Send a request and return the status and the response.

        Raises:
            aiohttp.ClientError: there is no response.
        """
        rng, request = self.loop.rng, _decode(body)
        await self._delay()
        failure = ""
        if self.is_down:
            raise self._fail("refused", aiohttp.ClientConnectionError("connection refused"))
        if self.failure_share and rng.random() < self.failure_share:
            failure = rng.choice(_SHARES_OF_FAILURES)
        if failure == "refused":
            raise self._fail(failure, aiohttp.ClientConnectionError("connection reset"))
        if failure == "lost_request":
            await asyncio.sleep(READ_TIMEOUT_S)
            raise self._fail(failure, aiohttp.ServerTimeoutError("timed out"))
        if failure == "internal":
            self._fail(failure)
            return 500, b'{"__type":"InternalServerError","message":"simulated"}'
        if self.rules is not None:
            # In the server's own process: it holds locks, and must not die with the caller.
            handling = self.rules.handle(name, request, self.server.call)
            task = self.loop.create_task(handling, context=make_context(self._process))
            status, response = await asyncio.shield(task)
        else:
            status, response = self.server.handle(name, request)
        payload = _encode(response)
        if failure == "lost_response":
            await asyncio.sleep(READ_TIMEOUT_S)
            raise self._fail(failure, aiohttp.ServerTimeoutError("timed out"))
        await self._delay()
        return status, payload

    def _delay(self) -> asyncio.Future[None]:
        """Return a future that is done when a message has arrived."""
        return self.loop.sleep(self.loop.rng.uniform(*DELAY_S) + self.latency_s)

    def exchange_now(self, name: str, body: bytes) -> tuple[int, bytes]:
        """Run a request without delays and faults."""
        status, response = self.server.handle(name, _decode(body))
        return status, _encode(response)

    def _fail(self, kind: str, error: Exception = RuntimeError()) -> Exception:  # noqa: B008
        self.failed[kind] = self.failed.get(kind, 0) + 1
        return error


class SimulatedTransport(HttpTransport):
    """`HttpTransport` without HTTP."""

    def __init__(self, database: DynamoDb) -> None:
        self._text_url = "http://dynamodb.simulated/"
        self._database = database

    async def _exchange(self, operation: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        status, payload = await self._database.exchange(ITEM_OPERATIONS[operation], body)
        headers = {"x-amzn-requestid": "simulated", "x-amz-crc32": str(zlib.crc32(payload))}
        return status, headers, payload


class _Meta:
    endpoint_url = "http://dynamodb.simulated"
    region_name = "simulated"


class SimulatedSdk:
    """The SDK's client, for operations on tables."""

    meta = _Meta()

    def __init__(self, database: DynamoDb) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        pascal = "".join(part.capitalize() for part in name.split("_"))

        async def call(**request: Any) -> dict[str, Any]:
            status, payload = await self._database.exchange(pascal, _encode(request))
            response: dict[str, Any] = _decode(payload)
            if status != 200:
                code = response["__type"].rpartition("#")[2]
                error = {"Code": code, "Message": response["message"]}
                raise ClientError(cast(Any, {**response, "Error": error}), pascal)
            for record in response.get("Records", ()):
                change = record["dynamodb"]
                at = change["ApproximateCreationDateTime"]
                change["ApproximateCreationDateTime"] = datetime.fromtimestamp(at, UTC)
            return response | {"ResponseMetadata": {"RequestId": "simulated"}}

        return call


@contextlib.asynccontextmanager
async def open_simulated_streams(database: DynamoDb, settings: Warm) -> AsyncIterator[DynamoClient]:
    """Replacement of `open_dynamodb_streams`."""
    yield DynamoClient(SimulatedSdk(database), settings)  # type: ignore[arg-type]


def make_client(database: DynamoDb, settings: Warm) -> DynamoClient:
    """Return a client of the simulated server."""
    return DynamoClient(SimulatedSdk(database), settings, SimulatedTransport(database))  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def open_simulated(database: DynamoDb, settings: Warm) -> AsyncIterator[DynamoClient]:
    """Replacement of `open_dynamodb`."""
    yield make_client(database, settings)
