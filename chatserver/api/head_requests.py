"""HEAD requests: every GET route also serves HEAD, with the same headers and no body (RFC 9110)."""

from __future__ import annotations

from typing import Any, cast

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send


class HeadRequests:
    """ASGI middleware that runs a HEAD request as GET and drops the body of the response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = cast(Any, {**message, "body": b""})
            await send(message)

        # The server keeps its own scope with HEAD, and so sends `Content-Length` without a body.
        await self._app(cast(Any, {**scope, "method": "GET"}), receive, send_without_body)
