"""DynamoDB stub: responds to every request immediately and stores only new users.

A worker that uses the stub is limited only by its own CPU time.

    python -m tests.benchmarks.support.dynamodb_stub --port 9001

With `--chats N`, reads of the `directory` table find users and chats. Users whose ids begin with
`STORED_USER` exist from the start. Each of them is in N chats; groups of `USERS_PER_CHAT` users
with adjacent numbers share their chats. Other users exist after they have been written. No user has
logins or blocks; with `--restricted`, user items have the flag `restricted`, so the server must
check for both. The request `COUNTS`, and one without a target, return the number of requests by
operation.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
from typing import Any, ClassVar, Final, cast

import msgspec
import uvloop

STORED_USER: Final = "old"
USERS_PER_CHAT: Final = 10
COUNTS: Final = "Counts"
_READY_CHAT: Final = {
    "kind": {"S": "group"}, "version": {"N": "1"}, "created": {"N": "1"}, "state": {"S": "ready"},
    "origin": {"S": "stub"}, "members": {"N": "1"},
}  # fmt: skip
_MEMBER: Final = {
    "role": {"S": "member"}, "joined": {"N": "1"}, "read": {"N": "0"}, "received": {"N": "0"},
}  # fmt: skip
_CONDITION_FAILED = b"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"

_TABLE = b'{"Table":{"TableStatus":"ACTIVE"}}'
_ANSWERS = {
    b"BatchWriteItem": b'{"UnprocessedItems":{}',
    b"BatchGetItem": b'{"Responses":{},"UnprocessedKeys":{}}',
    b"Query": b'{"Items":[],"Count":0,"ScannedCount":0}',
    b"DescribeTable": _TABLE,
}
# The ConsumedCapacity that the stub returns for each value of ReturnConsumedCapacity.
_UNITS = {
    b'"ReturnConsumedCapacity":"TOTAL"': (b'{"TableName":"chat_messages","CapacityUnits":100.0}'),
    b'"ReturnConsumedCapacity":"INDEXES"': (
        b'{"TableName":"chat_messages","CapacityUnits":100.0,"Table":{"CapacityUnits":25.0},'
        b'"GlobalSecondaryIndexes":{"receiver":{"CapacityUnits":25.0},"sender":'
        b'{"CapacityUnits":25.0},"status":{"CapacityUnits":25.0}}}'
    ),
}


def _handle_request(target: bytes, request: bytes) -> bytes:
    response = _ANSWERS.get(target, b"{}")
    if target != b"BatchWriteItem":
        return response
    # The client adds ReturnConsumedCapacity as the last field of the request.
    tail = request[-60:]
    for name, units in _UNITS.items():
        if name in tail:
            return response + b',"ConsumedCapacity":[' + units + b"]}"
    return response + b"}"


class Directory:
    """Computes the responses to requests for the `directory` table."""

    def __init__(self, chats: int, *, is_restricted: bool = False) -> None:
        self._chats = chats
        self._is_restricted = is_restricted
        self._created: set[str] = set()

    def handle_request(self, target: bytes, request: Any) -> tuple[int, Any] | None:
        """Return `(HTTP status, response)`; None for an operation that is not handled here."""
        match target:
            case b"GetItem":
                item = self._find(request["Key"])
                return 200, {} if item is None else {"Item": item}
            case b"PutItem":
                return self._put(request["Item"])
            case b"Query":
                items = self._list(request)
                units = {"TableName": request["TableName"], "CapacityUnits": 0.5}
                counts = {"Count": len(items), "ScannedCount": len(items)}
                return 200, {"Items": items, **counts, "ConsumedCapacity": units}
            case b"BatchGetItem":
                ((table, table_request),) = request["RequestItems"].items()
                present = [
                    item for key in table_request["Keys"] if (item := self._find(key)) is not None
                ]
                units = {"TableName": table, "CapacityUnits": float(len(table_request["Keys"]))}
                responses = {"Responses": {table: present}, "UnprocessedKeys": {}}
                return 200, {**responses, "ConsumedCapacity": [units]}
            case _:
                return None

    def _put(self, item: Any) -> tuple[int, Any]:
        key = item["PK"]["S"]
        if not key.startswith("u#"):
            return 200, {}
        if self._is_user(key):
            return 400, {"__type": _CONDITION_FAILED.decode(), "Item": self._find(item)}
        self._created.add(key)
        return 200, {}

    def _is_user(self, key: str) -> bool:
        return key.startswith(f"u#{STORED_USER}") or key in self._created

    def _find(self, key: Any) -> Any:
        partition, sort = key["PK"]["S"], key["SK"]["S"]
        row = {"PK": {"S": partition}, "SK": {"S": sort}}
        if partition.startswith("c#"):
            return row | (_READY_CHAT if sort == partition else _MEMBER)
        if sort == partition and self._is_user(partition):
            return row | {"created": {"N": "1"}, "restricted": {"BOOL": self._is_restricted}}
        return None

    def _list(self, request: Any) -> list[Any]:
        values = request["ExpressionAttributeValues"].values()
        partition, *bounds = (value.get("S", "") for value in values)
        if partition.startswith("c#g"):
            return self._list_chat(partition)
        if not partition.startswith(f"m#{STORED_USER}"):
            return []
        first = int(partition.removeprefix(f"m#{STORED_USER}")) // USERS_PER_CHAT * self._chats
        chats = [f"c#g{first + n}" for n in range(self._chats)]
        low, high = bounds if len(bounds) == 2 else ("", "~")
        items = [{"PK": {"S": c}, "SK": {"S": partition}} for c in chats if low <= c <= high]
        return items if request.get("ScanIndexForward", True) else items[::-1]

    def _list_chat(self, chat: str) -> list[Any]:
        first = int(chat.removeprefix("c#g")) // self._chats * USERS_PER_CHAT
        sorts = [f"m#{STORED_USER}{first + n}" for n in range(USERS_PER_CHAT)]
        return [self._find({"PK": {"S": chat}, "SK": {"S": sort}}) for sort in (chat, *sorts)]


class Stub(asyncio.Protocol):
    """A connection to the stub, which handles its requests one after another."""

    counts: ClassVar[collections.Counter[str]] = collections.Counter()
    directory: ClassVar[Directory | None] = None

    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while True:
            end = self._rest.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._rest[:end].lower()
            size = int(_render_header(head, b"content-length") or 0)
            if len(self._rest) < end + 4 + size:
                return
            target = _render_header(self._rest[:end], b"x-amz-target").rpartition(b".")[2]
            request = self._rest[end + 4 : end + 4 + size]
            self._rest = self._rest[end + 4 + size :]
            status, body = self._handle_request(target, request)
            self.transport.write(
                b"HTTP/1.1 %d OK\r\nContent-Type: application/x-amz-json-1.0\r\n"
                b"x-amzn-RequestId: stub\r\nContent-Length: %d\r\n\r\n%b"
                % (status, len(body), body)
            )

    def _handle_request(self, target: bytes, request: bytes) -> tuple[int, bytes]:
        if target in (b"", COUNTS.encode()):
            return 200, msgspec.json.encode(self.counts)
        self.counts[target.decode()] += 1
        if self.directory is not None:
            response = self.directory.handle_request(target, msgspec.json.decode(request))
            if response is not None:
                return response[0], msgspec.json.encode(response[1])
        return 200, _handle_request(target, request)


def _render_header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n"):
        header_name, _, value = line.partition(b":")
        if header_name.strip().lower() == name:
            return value.strip()
    return b""


async def serve(port: int, chats: int | None = None, *, is_restricted: bool = False) -> None:
    if chats is not None:
        Stub.directory = Directory(chats, is_restricted=is_restricted)
    server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--chats", type=int)
    parser.add_argument("--restricted", action="store_true")
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.chats, is_restricted=options.restricted))
