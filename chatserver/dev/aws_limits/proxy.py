"""HTTP proxy that applies `Rules` to each request to a DynamoDB server.

Each client connection has its own connection to the server. `GET /` returns the number of
refusals per error code.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec

from chatserver.dev.aws_limits.accounting import Response
from chatserver.dev.aws_limits.http_messages import (
    encode_call,
    encode_response,
    find_header,
    make_head,
    read_message,
)
from chatserver.dev.aws_limits.rules import Limits, Rules

HOST: Final = "127.0.0.1"
_PREFIX: Final = "DynamoDB_20120810."
_STREAM_BYTES_MAX: Final = 1 << 20

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class _Connection:
    """A connection to the server, for the requests of one client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._own_head = b""

    async def call(self, operation: str, request: Mapping[str, Any]) -> Response:
        self._writer.write(encode_call(self._own_head, operation, _encode(request)))
        head, body = await read_message(self._reader)
        return int(head.split(maxsplit=2)[1]), _decode(body)

    def set_head(self, head: bytes) -> None:
        """Save the head of the first client request, for the proxy's own requests."""
        self._own_head = self._own_head or make_head(head)

    async def forward(self, head: bytes, body: bytes) -> bytes:
        self._writer.write(head + body)
        return b"".join(await read_message(self._reader))

    def close(self) -> None:
        self._writer.transport.abort()


class LimitsProxy:
    """A proxy that listens on a loopback port. Use it as an async context manager."""

    def __init__(self, target_port: int, limits: Limits | None = None, port: int = 0) -> None:
        self.rules = Rules(limits or Limits())
        self._target_port = target_port
        self._port = port
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, HOST, self._port, limit=_STREAM_BYTES_MAX
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self._port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        server: _Connection | None = None
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    head, body = await read_message(reader)
                    if head.startswith(b"GET "):
                        writer.write(encode_response(200, _encode(self.rules.refusals), "refusals"))
                        continue
                    if server is None:
                        streams = await asyncio.open_connection(
                            HOST, self._target_port, limit=_STREAM_BYTES_MAX
                        )
                        server = _Connection(*streams)
                    server.set_head(head)
                    writer.write(await self._respond(server, head, body))
                    await writer.drain()
        finally:
            writer.transport.abort()
            if server is not None:
                server.close()

    async def _respond(self, server: _Connection, head: bytes, body: bytes) -> bytes:
        target = find_header(head, "x-amz-target")
        if not target.startswith(_PREFIX):  # DynamoDB Streams
            return await server.forward(head, body)
        try:
            request = _decode(body)
        except ValueError:
            return await server.forward(head, body)
        operation = target.removeprefix(_PREFIX)
        status, response = await self.rules.handle(operation, request, server)
        return encode_response(status, _encode(response), f"limits-{next(self._numbers)}")
