"""Rejection of all API requests while the tenant is blocked."""

from __future__ import annotations

from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from chatserver.api.problems import MEDIA_TYPE, encode_problem
from chatserver.hot.redis.client import HotClient

PROBES: Final = frozenset({"/healthz", "/readyz"})


class BlockedTenant:
    """ASGI middleware that rejects all requests except health probes, with 403 and the reason."""

    def __init__(self, app: ASGIApp, hot: HotClient) -> None:
        self._app = app
        self._hot = hot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason = self._hot.blocked
        if not reason or scope["type"] != ScopeType.HTTP or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        body = encode_problem(403, "forbidden", reason)
        await send(
            {
                "type": "http.response.start",
                "status": 403,
                "headers": [
                    (b"content-type", MEDIA_TYPE.encode()),
                    (b"content-length", str(len(body)).encode()),
                ],
            }
        )
        await send({"type": "http.response.body", "body": body, "more_body": False})
