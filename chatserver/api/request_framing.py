"""Rejection of requests that have both `Content-Length` and `Transfer-Encoding`.

Such requests enable request smuggling: a proxy uses one header and the server behind it the other,
so one request can hide a second one. RFC 9112 section 6.1 allows rejecting them; h11 accepts them.
The connection is closed, so the bytes that follow are never parsed as a request.
"""

from __future__ import annotations

from typing import Final

import structlog
from litestar.enums import ScopeType
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, Receive, Scope, Send

from chatserver.api.problems import MEDIA_TYPE, encode_problem

_BOTH: Final = {b"content-length", b"transfer-encoding"}
_REFUSAL: Final = encode_problem(
    400, "bad_request", "Content-Length: must not be sent with Transfer-Encoding"
)
log = structlog.get_logger()


class RequestFramingCheck:
    """ASGI middleware that rejects requests with conflicting framing headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == ScopeType.HTTP and {name for name, _ in scope["headers"]} >= _BOTH:
            log.warning("request.framing_rejected")
            app = ASGIResponse(
                body=_REFUSAL,
                status_code=400,
                media_type=MEDIA_TYPE,
                headers={"connection": "close"},
            )
        await app(scope, receive, send)
