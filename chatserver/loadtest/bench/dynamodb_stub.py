"""DynamoDB stub: answers every write at once and stores nothing.

A worker that writes to it is limited by its own process only. One process, no checks.

    python -m chatserver.loadtest.bench.dynamodb_stub --port 9001
"""

from __future__ import annotations

import argparse
import asyncio
from typing import cast

import uvloop

_TABLE = b'{"Table":{"TableStatus":"ACTIVE"}}'
_ANSWERS = {
    b"BatchWriteItem": b'{"UnprocessedItems":{}',
    b"BatchGetItem": b'{"Responses":{},"UnprocessedKeys":{}}',
    b"Query": b'{"Items":[],"Count":0,"ScannedCount":0}',
    b"DescribeTable": _TABLE,
}
# ReturnConsumedCapacity of a request, and the answer of a table with three indexes.
_UNITS = {
    b'"ReturnConsumedCapacity":"TOTAL"': (b'{"TableName":"chat_messages","CapacityUnits":100.0}'),
    b'"ReturnConsumedCapacity":"INDEXES"': (
        b'{"TableName":"chat_messages","CapacityUnits":100.0,"Table":{"CapacityUnits":25.0},'
        b'"GlobalSecondaryIndexes":{"receiver":{"CapacityUnits":25.0},"sender":'
        b'{"CapacityUnits":25.0},"status":{"CapacityUnits":25.0}}}'
    ),
}


def _answer_to(target: bytes, request: bytes) -> bytes:
    answer = _ANSWERS.get(target, b"{}")
    if target != b"BatchWriteItem":
        return answer
    # The client adds ReturnConsumedCapacity as the last field of the request.
    tail = request[-60:]
    for asked, units in _UNITS.items():
        if asked in tail:
            return answer + b',"ConsumedCapacity":[' + units + b"]}"
    return answer + b"}"


class Stub(asyncio.Protocol):
    """One connection with sequential requests."""

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
            size = int(_header(head, b"content-length") or 0)
            if len(self._rest) < end + 4 + size:
                return
            target = _header(self._rest[:end], b"x-amz-target").rpartition(b".")[2]
            request = self._rest[end + 4 : end + 4 + size]
            self._rest = self._rest[end + 4 + size :]
            body = _answer_to(target, request)
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n"
                b"x-amzn-RequestId: stub\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n"):
        found, _, value = line.partition(b":")
        if found.strip().lower() == name:
            return value.strip()
    return b""


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
