"""HTTP proxy that applies `Rules` to each request to a DynamoDB server.

`GET /` returns the number of refusals per error code.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Mapping
from typing import Any, Final, Self

import aiohttp
import msgspec
from aiohttp import web

from chatserver.dev.aws_limits.accounting import Response
from chatserver.dev.aws_limits.rules import AwsLimits, Rules

HOST: Final = "127.0.0.1"
BODY_BYTES_MAX: Final = 17_000_000  # maximum bytes of a request body; AWS allows 16 MB
_TARGET: Final = "X-Amz-Target"
_PREFIX: Final = "DynamoDB_20120810."
# The signature is copied into the proxy's own requests, because the local server requires one but
# does not verify it.
_COPIED: Final = ("Host", "Authorization", "X-Amz-Date", "Content-Type")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class LimitsProxy:
    """A proxy that listens on a loopback port. Use it as an async context manager."""

    def __init__(self, target_port: int, limits: AwsLimits | None = None, port: int = 0) -> None:
        self.rules = Rules(limits or AwsLimits())
        self._target = f"http://{HOST}:{target_port}/"
        self._port = port
        self._numbers = itertools.count(1)
        self._stack = contextlib.AsyncExitStack()
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = await stack.enter_async_context(
                aiohttp.ClientSession(connector=connector, auto_decompress=False)
            )
            app = web.Application(client_max_size=BODY_BYTES_MAX)
            app.router.add_route("*", "/{path:.*}", self._respond)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, HOST, self._port).start()
            self._port = runner.addresses[0][1]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self._port}"

    async def _respond(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            return _build_response(200, _encode(self.rules.refusals), "refusals")
        try:
            return await self._forward(request, await request.read())
        except (OSError, aiohttp.ClientError):
            # The server has ended: close this connection, too.
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        headers = {name: request.headers[name] for name in _COPIED if name in request.headers}

        async def call(operation: str, fields: Mapping[str, Any]) -> Response:
            own = {**headers, _TARGET: f"{_PREFIX}{operation}"}
            async with self._session.post(
                self._target, data=_encode(fields), headers=own
            ) as response:
                return response.status, _decode(await response.read())

        target = request.headers.get(_TARGET, "")
        try:
            if not target.startswith(_PREFIX):
                raise ValueError  # DynamoDB Streams
            fields = _decode(body)
        except ValueError:
            async with self._session.post(
                self._target, data=body, headers={**headers, _TARGET: target}
            ) as response:
                return _build_response(response.status, await response.read(), "forwarded")
        status, result = await self.rules.handle(target.removeprefix(_PREFIX), fields, call)
        return _build_response(status, _encode(result), f"limits-{next(self._numbers)}")


def _build_response(status: int, body: bytes, request_id: str) -> web.Response:
    """Return a response in DynamoDB's format."""
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "x-amzn-RequestId": request_id,
        "x-amz-crc32": str(zlib.crc32(body)),
    }
    return web.Response(status=status, body=body, headers=headers)
