"""Forms of a request that every HTTP server must accept (RFC 9110, RFC 9112).

- Every GET route also serves HEAD, with the same headers and no body.
- A request target may have the absolute form, `http://host/path`.
"""

from __future__ import annotations

from typing import Any, cast

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from chatserver.request_targets import to_origin_form


class RequestForms:
    """ASGI middleware that serves HEAD requests as GET, and absolute targets as paths."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and not scope["path"].startswith("/"):
            raw_path = to_origin_form(scope["raw_path"].decode("latin-1")).encode("latin-1")
            path = to_origin_form(scope["path"])
            scope = cast(Any, {**scope, "path": path, "raw_path": raw_path})
        if scope["type"] != ScopeType.HTTP or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = cast(Any, {**message, "body": b""})
            await send(message)

        # The server keeps its own scope with HEAD, and so sends `Content-Length` without a body.
        await self._app(cast(Any, {**scope, "method": "GET"}), receive, send_without_body)
