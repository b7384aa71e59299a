"""Early refusal of rate-limited logins, before the HTTP framework runs.

A refusal here costs less than a tenth of one in the framework. If a rate limit refuses a login,
`LoginRateLimits` caches the time at which the refusal ends. Before that time, the middleware
refuses the login without calling Redis, with the same response as the login handler. All other
requests are passed on unchanged.

If a client retries before ``retry_after_ms``, its refusal is delayed by up to `DELAY_MS_MAX`, to
slow down password guessing. If the refusal ends during this delay, the login is passed on.
Concurrently delayed requests are limited to `DELAYED_OF_NETWORK_MAX` per network, and to an eighth
of the process's connections in total. Further requests are refused immediately.
"""

from __future__ import annotations

import asyncio
import collections
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs
import msgspec
from litestar import Request
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from chatserver.api.problems import MEDIA_TYPE, encode_problem
from chatserver.container.storage import StorageContainer
from chatserver.domain.client_addresses import (
    Network,
    get_network,
    get_subject,
    parse_networks,
    resolve_client_address,
)
from chatserver.errors import BadRequest, ClientError, RateLimited
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.login_routes import LOGIN_PATH, PasswordLogin, list_device_tokens
from chatserver.hot.users.login_rate_limits import TOO_MANY_LOGINS

BODY_BYTES_MAX: Final = 8192  # requests with a longer body are passed on without a check
DELAY_MS_MAX: Final = 1000
DELAYED_OF_NETWORK_MAX: Final = 4
_HTTP_STATUS: Final = 429

_decode = msgspec.json.Decoder(PasswordLogin).decode


@attrs.define(eq=False, repr=False)
class EarlyRefusals:
    """ASGI middleware that refuses logins for which a refusal is cached.

    `check_refused(user name, address, device tokens)` raises RateLimited for such a login.
    """

    _app: ASGIApp
    _check_refused: Callable[[str, str, Iterable[str]], None]
    _trusted: Sequence[Network]
    _delayed_max: int
    # Number of refusals being delayed, by network.
    _delayed: collections.Counter[str] = attrs.field(factory=collections.Counter, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != ScopeType.HTTP
            or scope["path"] != LOGIN_PATH
            or scope["method"] != "POST"
        ):
            await self._app(scope, receive, send)
            return
        try:
            body = await _read_body(scope, receive)
        except BadRequest as exc:
            await self._app(scope, _fail(exc), send)  # the framework logs the error
            return
        if body is None:
            await self._app(scope, receive, send)
            return
        request: Request[Any, Any, Any] = Request(scope, receive, send)
        peer = request.client.host if request.client is not None else ""
        forwarded = request.headers.getall("x-forwarded-for", [])
        address = get_subject(resolve_client_address(peer, forwarded, self._trusted))
        wait_ms = self._find_wait(request, body, address)
        if wait_ms:
            waited_ms = await self._delay_refusal(wait_ms, get_network(address), receive)
            if waited_ms is None:
                return  # the client has disconnected
            wait_ms -= waited_ms
        if wait_ms:
            await _refuse(scope, send, wait_ms)
        else:
            await self._app(scope, _replay(body, receive), send)

    def _find_wait(self, request: Request[Any, Any, Any], body: bytes, address: str) -> int:
        """Return the ms until the login is allowed again; 0 if no refusal is cached."""
        try:
            login = _decode(body)
            self._check_refused(login.user, address, list_device_tokens(login, request))
        except RateLimited as exc:
            return exc.retry_after_ms or 0
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ClientError):
            return 0  # pass it on: the framework or the handler rejects it as invalid
        return 0

    async def _delay_refusal(self, wait_ms: int, network: str, receive: Receive) -> int | None:
        """Delay a refusal; return the delay in ms, or None if the client has disconnected.

        The delay is 0 if too many refusals are being delayed.
        """
        delayed, delay_ms = self._delayed, min(wait_ms, DELAY_MS_MAX)
        if delayed[network] >= DELAYED_OF_NETWORK_MAX or delayed.total() >= self._delayed_max:
            return 0
        delayed[network] += 1
        try:
            async with asyncio.timeout(delay_ms / 1000):
                while (await receive())["type"] != "http.disconnect":
                    pass
            return None
        except TimeoutError:
            return delay_ms
        finally:
            delayed[network] -= 1
            if not delayed[network]:
                del delayed[network]


async def _read_body(scope: Scope, receive: Receive) -> bytes | None:
    """Read and return the request body; None if its length is unknown or too large."""
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    if len(lengths) != 1 or not lengths[0].isdigit() or int(lengths[0]) > BODY_BYTES_MAX:
        return None
    body, is_whole = b"", False
    while not is_whole:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("body: the connection closed before the body was complete")
        body += message.get("body", b"")
        is_whole = not message.get("more_body", False)
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that first returns `body`, then calls `receive`."""
    first: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Any:
        return first.pop() if first else await receive()

    return receive_again


def _fail(error: BadRequest) -> Receive:
    async def receive_again() -> Any:
        raise error

    return receive_again


async def _refuse(scope: Scope, send: Send, wait_ms: int) -> None:
    body = encode_problem(_HTTP_STATUS, RateLimited.code, TOO_MANY_LOGINS, wait_ms)
    scope["path_template"] = LOGIN_PATH  # label of the metric that counts responses
    start: Message = {
        "type": "http.response.start",
        "status": _HTTP_STATUS,
        "headers": [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"retry-after", b"%d" % math.ceil(wait_ms / 1000)),
        ],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})


def refuse_logins_early(app: ASGIApp, container: StorageContainer) -> ASGIApp:
    """Wrap the application in the middleware if local accounts are enabled."""
    settings = container.settings
    if not settings.auth.local_accounts:
        return app
    trusted = parse_networks(settings.api.trusted_proxies)
    delayed_max = settings.api.connections_max // 8
    logins = container.get(AccountContainer).password_logins
    return EarlyRefusals(app, logins.check_refused, trusted, delayed_max)
