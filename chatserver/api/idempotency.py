"""``Idempotency-Key``: a repeated request has no second effect and gets the same response.

Routes that create something declare ``opt={"creates": True}``. Routes that handle the key
themselves, with `read_key`, declare ``opt={"accepts_key": True}``. A client may send any key of up
to 255 characters. For 24 hours, a caller's requests with the same key are handled as follows::

    key is new                 ─► the handler runs; the response is stored if it succeeded
    key used, same request     ─► the stored response, with `Idempotency-Replayed: true`
    key used, other request    ─► error: conflict
    first request still runs   ─► waits for its response; after `WAIT_S`, error: unavailable

Only successful responses of at most `RESPONSE_BYTES_MAX` bytes are stored: a rejected request had
no effect and may be corrected. If Redis fails while the handler runs, the response is sent without
being stored.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from typing import Any, Final, NamedTuple

import structlog
from litestar import Request, Response
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPResponseBodyEvent, Message, Receive, Scope, Send

from chatserver.domain.access.principals import Principal
from chatserver.domain.ids import UserId
from chatserver.domain.jitter import add_jitter
from chatserver.errors import BadRequest, ChatError, Conflict, Unavailable
from chatserver.hot.bus.idempotent_responses import IdempotentResponses, StoredResponse

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
RESPONSE_BYTES_MAX = 65_536
KEY_CHARS_MAX = 255
WAIT_S = 5.0
FIRST_PAUSE_S, LAST_PAUSE_S = 0.02, 0.4
_KEY = re.compile(r"[!-~]+")
_BODY: Final = "http.response.body"
_CLAIM = "idempotency_claim"
log = structlog.get_logger()


class _Claim(NamedTuple):
    name: str
    asked: str
    about: UserId | None


class Idempotency:
    """Hook that runs before handlers; `StoreResponses` stores their responses."""

    def __init__(self, responses: IdempotentResponses) -> None:
        self._responses = responses

    async def before(self, request: Request[Any, Any, Any]) -> Response[bytes] | None:
        """Return the stored response to an earlier request; None if the handler must run.

        Raises:
            BadRequest: the key is malformed.
            Conflict: the key was used for another request.
            Unavailable: the first request with the key is still in progress after `WAIT_S`.
        """
        if not request.route_handler.opt.get("creates"):
            return None
        key = read_key(request)
        if key is None:
            return None
        name = make_name(request.state.principal, key)
        request_digest = compute_short_digest(
            request.method, request.url.path, request.url.query, await request.body()
        )
        response = await self._claim(name, request_digest)
        if response is None:
            claim = _Claim(name, request_digest, request.state.principal.user)
            request.scope["state"][_CLAIM] = claim
            return None
        if response.asked != request_digest:
            raise Conflict(f"{HEADER}: already used for another request")
        return Response(
            response.body,
            status_code=response.status,
            media_type=response.content_type,
            headers={REPLAYED: "true"},
        )

    async def _claim(self, name: str, request_digest: str) -> StoredResponse | None:
        """Claim an idempotency key; return None, or the response of the request that claimed it."""
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + WAIT_S, FIRST_PAUSE_S
        while True:
            response = await self._responses.claim(name, request_digest)
            if response is None or response.is_given or response.asked != request_digest:
                return response
            if loop.time() > deadline:
                raise Unavailable(
                    f"{HEADER}: the first request with this key is still in progress; try again"
                )
            await asyncio.sleep(add_jitter(pause_s))
            pause_s = min(2 * pause_s, LAST_PAUSE_S)


class StoreResponses:
    """ASGI middleware that stores the response to a request with an idempotency key."""

    def __init__(self, app: ASGIApp, responses: IdempotentResponses) -> None:
        self._app = app
        self._responses = responses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message | None = None
        body = bytearray()

        async def send_when_complete(message: Message) -> None:
            nonlocal start
            claim: _Claim | None = scope.get("state", {}).get(_CLAIM)
            if claim is None:
                await send(message)
            elif message["type"] == "http.response.start":
                start = message
            elif message["type"] == _BODY:
                body.extend(message.get("body", b""))
                if not message.get("more_body", False) and start is not None:
                    await self._store_response(claim, start, bytes(body))
                    await send(start)
                    await send(HTTPResponseBodyEvent(type=_BODY, body=bytes(body), more_body=False))

        await self._app(
            scope, receive, send_when_complete if scope["type"] == ScopeType.HTTP else send
        )

    async def _store_response(self, claim: _Claim, start: Any, body: bytes) -> None:
        status = start["status"]
        try:
            if 200 <= status < 300 and len(body) <= RESPONSE_BYTES_MAX:
                headers = dict(start.get("headers", ()))
                content_type = headers.get(b"content-type", b"").decode("latin-1")
                response = StoredResponse(claim.asked, status, content_type, body)
                await self._responses.put(claim.name, response, claim.about)
            else:
                await self._responses.release(claim.name)
        except ChatError as exc:
            log.warning("idempotency.store_failed", error=exc.message)


def record_subject(request: Request[Any, Any, Any], user: UserId) -> None:
    """Record that the stored response contains data about `user`, not only about its caller."""
    claim: _Claim | None = request.scope["state"].get(_CLAIM)
    if claim is not None:
        request.scope["state"][_CLAIM] = claim._replace(about=user)


def read_key(request: Request[Any, Any, Any]) -> str | None:
    """Return the idempotency key of a request, or None.

    Raises:
        BadRequest: the key is malformed.
    """
    keys = request.headers.getall(HEADER, [])
    if not keys:
        return None
    key = keys[0] if len(keys) == 1 else ""
    if len(key) > KEY_CHARS_MAX or _KEY.fullmatch(key) is None:
        raise BadRequest(f"{HEADER}: must be 1 to {KEY_CHARS_MAX} visible ASCII characters")
    return key


def make_name(principal: Principal, key: str) -> str:
    """Return the name under which Redis stores the response for a caller's idempotency key."""
    return compute_short_digest(principal.name, principal.user or "", key)


def digest(*parts: str | bytes) -> str:
    """Return a digest of the parts; `("ab", "c")` and `("a", "bc")` give different digests."""
    return _hash(20, parts).hex()


def compute_short_digest(*parts: str | bytes) -> str:
    """Return a 22-character digest. It is short because Redis stores two per response."""
    return base64.urlsafe_b64encode(_hash(16, parts)).rstrip(b"=").decode()


def _hash(size: int, parts: tuple[str | bytes, ...]) -> bytes:
    hasher = hashlib.blake2b(digest_size=size)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(b"%d:" % len(data) + data)
    return hasher.digest()
