"""Helpers of the warm tier's tests: settings, items, and faults of DynamoDB calls.

Faults are injected between the product's client and its HTTP connections, so that most of the
client runs and most calls reach the real server.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.client
import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any, cast

import httpx
from aiobotocore.awsrequest import AioAWSResponse
from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from pydantic import SecretStr

from chatserver.config import Warm
from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.http_transport import ITEM_OPERATIONS
from chatserver.warm.messages.messages import PersistItem, encode_item
from chatserver.warm.schema.active_version import make_schema_item
from chatserver.warm.schema.provisioning import make_create_request
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES, TABLES

START_TS = 1_795_000_000_000_000
STEP_US = 1_000_000


# The server requires a signature, but does not check it.
UNCHECKED_SIGNATURE = (
    f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20300101/{REGION}/dynamodb/aws4_request,"
    " SignedHeaders=host, Signature=0"
)
# A response of a server that is not DynamoDB.
NOT_DYNAMODB: dict[str, Any] = {"hello": "world"}


def settings_for(endpoint: str | None, /, **changes: Any) -> Warm:
    """Settings for an endpoint, with a unique table prefix."""
    prefix = f"t{secrets.token_hex(6)}_"
    return Warm(
        **{
            "endpoint": endpoint,
            "access_key": ACCESS_KEY,
            "secret_key": SecretStr(SECRET_KEY),
            "table_prefix": prefix,
            "call_timeout_s": 20.0,  # enough for a slow machine
            **changes,
        }
    )


def create_tables(settings: Warm) -> None:
    """Create the tables of new settings, as `apply_tables` does.

    Hundreds of tests need them. The AWS SDK takes 20 times the CPU time of these plain requests.
    """
    requests: list[tuple[str, dict[str, Any]]] = [
        ("CreateTable", make_create_request(table, settings)) for table in TABLES
    ]
    for table in TABLES:
        if table.expiry is not None:
            expiry = {"Enabled": True, "AttributeName": table.expiry}
            request = {"TableName": table.name_in(settings), "TimeToLiveSpecification": expiry}
            requests.append(("UpdateTimeToLive", request))
    item = {"TableName": DIRECTORY.name_in(settings), "Item": make_schema_item()}
    address = httpx.URL(settings.endpoint or "")
    with contextlib.closing(http.client.HTTPConnection(address.host, address.port)) as connection:
        for operation, body in [*requests, ("PutItem", item)]:
            headers = {
                "Authorization": UNCHECKED_SIGNATURE,
                "Content-Type": "application/x-amz-json-1.0",
                "X-Amz-Date": "20300101T000000Z",
                "X-Amz-Target": f"DynamoDB_20120810.{operation}",
            }
            connection.request("POST", "/", json.dumps(body), headers)
            response = connection.getresponse()
            answer = response.read()
            assert response.status == 200, (operation, answer)


@dataclasses.dataclass
class Tables:
    """Tables of one test, on the real server."""

    client: DynamoClient
    settings: Warm
    faults: Faults

    async def put_rows(self, *rows: Item) -> None:
        """Write message items without the repository, as another system would."""
        table = MESSAGES.name_in(self.settings)
        for row in rows:
            await self.client.call("put_item", {"TableName": table, "Item": row})

    async def scan(self, table: str) -> list[Item]:
        """Return all items of a table."""
        answer = await self.client.call(
            "scan", {"TableName": self.settings.table_prefix + table, "ConsistentRead": True}
        )
        items: list[Item] = answer["Items"]
        return items


class _Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self) -> bytes:
        return self._data


Reply = tuple[int, dict[str, Any]]
Fault = Callable[[dict[str, Any]], Reply | Exception | None]


class Faults:
    """Injects faults into the calls of a client, and records all requests."""

    def __init__(self, client: DynamoClient) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._faults: dict[str, list[Fault]] = {}
        self._answer_faults: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
        http = client._http
        assert http is not None
        self._exchange = http._exchange
        cast(Any, http)._exchange = self._exchange_with_faults
        # The AWS SDK sends operations on tables.
        cast(Any, client._sdk.meta.events).register("before-send.dynamodb", self._before_send)

    def add(self, operation: str, *faults: Fault) -> None:
        """Inject these faults into the next calls of an operation (``"Query"``), one per call.

        A fault gets the request body and may change it. It returns status and body of a response,
        or an exception, or None to send the call to the server.
        """
        self._faults.setdefault(operation, []).extend(faults)

    def drop_responses(self, operation: str, times: int) -> None:
        """Drop the responses to the next calls of an operation that the server executes."""
        left = times

        def drop(answer: dict[str, Any]) -> dict[str, Any]:
            nonlocal left
            if left:
                left -= 1
                raise ConnectionResetError("the response was lost")
            return answer

        self._answer_faults[operation] = drop

    def leave_unprocessed(self, *counts: int) -> None:
        """Make the next BatchWriteItem calls write `counts` items and return the others."""
        # By task: several calls may be in flight, and each task gets its own response.
        left: dict[Any, dict[str, Any]] = {}

        def write_first(count: int) -> Fault:
            def fault(body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
                ((table, writes),) = body["RequestItems"].items()
                if count == 0:  # the server rejects an empty batch
                    return 200, {"UnprocessedItems": {table: writes}}
                left[asyncio.current_task()] = {table: writes[count:]}
                body["RequestItems"] = {table: writes[:count]}
                return None

            return fault

        def return_unprocessed(answer: dict[str, Any]) -> dict[str, Any]:
            rest = left.pop(asyncio.current_task(), None)
            return {**answer, "UnprocessedItems": rest} if rest else answer

        self.add("BatchWriteItem", *map(write_first, counts))
        self._answer_faults["BatchWriteItem"] = return_unprocessed

    def bodies(self, operation: str) -> list[dict[str, Any]]:
        """Return the request bodies of all calls of an operation."""
        return [body for name, body in self.requests if name == operation]

    def _apply_fault(self, operation: str, raw: bytes) -> tuple[bytes, Reply | None]:
        body = json.loads(raw)
        self.requests.append((operation, json.loads(raw)))
        waiting = self._faults.get(operation)
        if not waiting:
            return raw, None
        reply = waiting.pop(0)(body)
        if isinstance(reply, Exception):
            raise reply
        return json.dumps(body).encode(), reply

    async def _exchange_with_faults(
        self, operation: str, raw: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        name = ITEM_OPERATIONS[operation]
        raw, reply = self._apply_fault(name, raw)
        if reply is not None:
            return reply[0], _headers_of(reply), json.dumps(reply[1]).encode()
        status, headers, payload = await self._exchange(operation, raw)
        change = self._answer_faults.get(name)
        if change is None or status != 200:
            return status, headers, payload
        headers = {key.lower(): value for key, value in headers.items()}
        headers.pop("x-amz-crc32", None)
        return status, headers, json.dumps(change(json.loads(payload))).encode()

    async def _before_send(self, request: AWSPreparedRequest, **_: Any) -> AioAWSResponse | None:
        name = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        request.body, reply = self._apply_fault(name, request.body)
        request.headers["Content-Length"] = str(len(request.body))
        if reply is None:
            return None
        headers = HTTPHeaders.from_dict(_headers_of(reply))
        return AioAWSResponse(request.url, reply[0], headers, _Body(json.dumps(reply[1]).encode()))


def _headers_of(reply: Reply) -> dict[str, str]:
    return {} if reply[1] is NOT_DYNAMODB else {"x-amzn-requestid": "injected"}


def refuse(code: str, status: int = 400) -> Fault:
    """Respond with an error without executing the operation."""
    return lambda _: (status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}"})


def reply(body: dict[str, Any]) -> Fault:
    """Respond with this body without executing the operation."""
    return lambda _: (200, body)


class FixedClock:
    """A clock that does not advance."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def time(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return 0.0


def message(seq: int, chat: str = "d-1", sender: str = "alice", **changes: Any) -> Message:
    """Create a message; the ts of consecutive seqs differ by a second."""
    fields = {
        "seq": seq,
        "ts": START_TS + seq * STEP_US,
        "chat": chat,
        "mid": f"m{seq}",
        "sender": sender,
        "ref": f"r{seq}",
        "kind": "text",
        "body": f"text {seq}",
        **changes,
    }
    return Message(**fields)


def batch(*messages: Message, receiver: str | None = None) -> list[PersistItem]:
    """Convert messages to the argument of `put_batch`."""
    return [PersistItem(each, receiver) for each in messages]


def expiring(seq: int, at_s: int, **changes: Any) -> Item:
    """Return the item of a message with an expiry."""
    row = encode_item(PersistItem(message(seq, **changes), None))
    return row | {"expires_at": {"N": str(at_s)}}


def seqs(messages: list[Message]) -> list[int]:
    """Return the seqs of messages, in their order."""
    return [each.seq for each in messages]
