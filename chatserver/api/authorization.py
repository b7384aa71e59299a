"""Route authorization: each route declares a rule, and one guard enforces all rules.

::

    request ──► limit by address ──► authentication ──► rule of the route ──► limit by user
                 429                  401                401, 403              429

A handler declares ``opt={"rule": USER}``; the server does not start if a handler has no rule
(`check_rules`). Handlers receive the caller as ``principal: Caller`` and the user as
``actor: Actor``.

A rule defines the kinds of callers that a route accepts. The services check whether the caller may
access a given chat or file. If not, the response is 404, as for a missing object.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency, Provide
from litestar.enums import ScopeType
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import Struct

from chatserver.domain.access.caller import CALLER, RequestCaller
from chatserver.domain.access.principals import ACT_AS, Principal
from chatserver.domain.client_addresses import (
    Network,
    get_networks,
    get_subject,
    resolve_client_address,
)
from chatserver.domain.companion_ids import parse_person_id
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, ConfigError, Forbidden, RateLimited, Unauthenticated
from chatserver.hot.users.token_buckets import TOO_MUCH, RateLimits
from chatserver.protocol.redis_memory_costs import ANSWER_BYTES, ENTRY_BYTES
from chatserver.protocol.request_costs import BASE, compute_route_cost
from chatserver.requests.registry import compute_frame_cost
from chatserver.service.chats.user_loader import UserLoader
from chatserver.service.fair_semaphore import FairSemaphore
from chatserver.telemetry import metrics

# Parameter types for handlers.
Caller = NamedDependency[Principal]
Actor = NamedDependency[UserId]

CHAT_AS = "X-Chat-As"
SCHEME = "bearer"
_HELD = "held_slots"  # the request's exit stack in the ASGI scope's state


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """Callers that a route accepts: anyone, users, admins, or API keys with `scope`."""

    is_open: bool = False
    is_for_users: bool = False
    is_for_admins: bool = False
    scope: str | None = None

    def __str__(self) -> str:
        if self.is_open:
            return "anyone"
        kinds = ["user"] if self.is_for_users else ["admin"] if self.is_for_admins else []
        return " or ".join([*kinds, f"an API key with scope {self.scope}"] if self.scope else kinds)


ANYONE = Rule(is_open=True)
USER = Rule(is_for_users=True)


def key(scope: str) -> Rule:
    return Rule(scope=scope)


def user_or_key(scope: str) -> Rule:
    return Rule(is_for_users=True, scope=scope)


def admin_or_key(scope: str) -> Rule:
    """Return the rule that accepts admins of the installation, and API keys with this scope."""
    return Rule(is_for_admins=True, scope=scope)


class Authenticator(Protocol):
    """Authentication of tokens and API keys."""

    async def authenticate(self, token: str) -> Principal:
        """Return the caller. Raises Unauthenticated, Banned, Unavailable."""

    async def check_acted_for(self, user: UserId) -> None:
        """Check that an API key may act for a user. Raises NotFound, Banned or Unavailable."""


class Guard:
    """Guard that authenticates and authorizes every request; see the module docstring."""

    def __init__(
        self, authenticator: Authenticator, limits: RateLimits, trusted: Sequence[Network]
    ) -> None:
        self._authenticator = authenticator
        self._limits = limits
        self._trusted = trusted

    async def __call__(
        self, connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
    ) -> None:
        """Allow the request, or raise the error to respond with."""
        subject = get_subject(self.get_address(connection))
        connection.state.address = subject
        if not handler.opt.get("is_probe"):
            await self._limits.find("calls", subject).pay("many requests from this address")
        rule: Rule | None = handler.opt.get("rule")
        if rule is None:  # only the framework's own routes have no rule (see `check_rules`)
            raise MethodNotAllowedException
        if rule.is_open:
            return
        principal = await self._authenticate(connection, subject)
        check(rule, principal)
        if principal.kind == "key" and principal.user is not None:
            await self._authenticator.check_acted_for(principal.user)
        connection.state.principal = principal
        networks = get_networks(subject) if principal.is_new_account else ()
        caller = RequestCaller(principal.user or "", networks, principal.kind == "key")
        CALLER.set(caller)
        kind = handler.opt.get("limit", "requests")
        cost = compute_cost(connection, handler) if kind == "requests" else 1
        payer = principal.user or str(principal.key)
        if kind in ("sends", "requests") and principal.user is not None:
            limit = self._limits.find_for_caller(kind, caller)
        else:
            limit = self._limits.find(kind, payer)
        is_protective = _is_protective(connection, handler)
        if not (networks and is_protective and limit.owe(cost)):
            await limit.pay(f"many {kind}", cost)
        if principal.user is not None:  # only users have a memory budget
            allowance = self._limits.find_for_caller("memory", caller)
            memory = _memory_cost(connection, handler)
            if memory and not (is_protective and allowance.owe(memory)):
                await allowance.pay(TOO_MUCH, memory)

    def get_address(self, connection: ASGIConnection[Any, Any, Any, Any]) -> str:
        """Return the client's address, resolved through trusted proxies."""
        peer = connection.client.host if connection.client is not None else ""
        forwarded = connection.headers.getall("x-forwarded-for", [])
        return resolve_client_address(peer, forwarded, self._trusted)

    async def _authenticate(
        self, connection: ASGIConnection[Any, Any, Any, Any], subject: str
    ) -> Principal:
        failures = self._limits.find("failures", subject)
        if failures.tokens <= 0 and (wait_ms := failures.wait_ms()):
            reason = "too many invalid tokens from this address"
            metrics.RATE_LIMITED.labels("failures").inc()
            raise RateLimited(reason, retry_after_ms=wait_ms)
        token = read_token(connection.headers.getall("authorization", []))
        try:
            principal = await self._authenticator.authenticate(token)
        except Unauthenticated:
            await failures.pay("many invalid tokens from this address")
            raise
        return apply_chat_as(principal, connection.headers.get(CHAT_AS))


# Maximum bytes charged to a user's Redis memory budget for a body. A body of unknown length is
# charged this maximum.
BODY_COST_MAX = 65_536


def _is_protective(
    connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
) -> bool:
    """Return whether the request deletes something, or protects its user in another way.

    Such requests are allowed when the user's memory budget, or the requests of a new account's
    network, are spent (`Allowance.owe`).
    """
    return connection.scope.get("method") == "DELETE" or "protects" in handler.opt


def _memory_cost(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> int:
    """Return the bytes to charge for what a request stores in Redis, usually an upper bound."""
    opt, is_read = handler.opt, connection.scope.get("method") in ("GET", "HEAD")
    if opt.get("is_memory_declared"):  # the route charges the frame when it has read the body
        return ANSWER_BYTES if opt.get("creates") else 0
    cost: int = opt.get("memory", 0 if is_read else ENTRY_BYTES)
    is_stored = opt.get("creates") or opt.get("accepts_key")
    if not is_stored and "memory" not in opt:
        return cost
    size = _body_bytes(connection)
    return cost + size + size // 4 + (ANSWER_BYTES if is_stored else 0)


def _body_bytes(connection: ASGIConnection[Any, Any, Any, Any]) -> int:
    """Return the body length in bytes; `BODY_COST_MAX` if unknown or larger (RFC 9112, 6.3)."""
    length = connection.headers.get("content-length")
    if length is None and "transfer-encoding" not in connection.headers:
        return 0
    return min(int(length), BODY_COST_MAX) if length and length.isdecimal() else BODY_COST_MAX


def compute_cost(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> int:
    """Return the cost of a request in rate limit tokens, without the cost of its body."""
    if "cost" in handler.opt:
        return int(handler.opt["cost"])
    limit = connection.query_params.get("limit")
    method = str(connection.scope.get("method", "GET"))
    return max(compute_route_cost(method, path, limit) for path in handler.paths)


def read_token(headers: Sequence[str]) -> str:
    """Return the token of an Authorization header (RFC 6750 section 2.1).

    Raises:
        Unauthenticated: the header is missing, malformed or repeated.
    """
    if len(headers) != 1:
        raise Unauthenticated("Authorization: exactly one header is required: `Bearer TOKEN`")
    scheme, _, token = headers[0].partition(" ")
    if scheme.lower() != SCHEME or not token.strip():
        raise Unauthenticated("Authorization: must be `Bearer TOKEN`")
    return token.strip()


def apply_chat_as(principal: Principal, wanted: str | None) -> Principal:
    """Return the principal that acts for the user in X-Chat-As.

    Raises:
        BadRequest: the header is not a valid id.
        Forbidden: the caller is a user, or an API key without the scope.
    """
    if wanted is None:
        return principal
    if principal.kind != "key" or ACT_AS not in principal.scopes:
        raise Forbidden(f"{CHAT_AS}: needs an API key with the scope {ACT_AS}")
    return dataclasses.replace(principal, user=parse_person_id(wanted, CHAT_AS))


def check(rule: Rule, principal: Principal) -> None:
    """Check a principal against a rule that requires authentication.

    Raises:
        Forbidden: the rule does not allow this caller.
    """
    if principal.kind == "user":
        if rule.is_for_admins:
            if not principal.is_admin:
                raise Forbidden("only admins of this server may do this")
        elif not rule.is_for_users:
            raise Forbidden("only API keys of the host application may do this")
    elif rule.scope is None:
        raise Forbidden("API keys may not do this; use a user's token")
    elif rule.scope not in principal.scopes:
        raise Forbidden(f"the API key lacks the scope {rule.scope}")


def check_rules(handlers: Iterable[HTTPRouteHandler]) -> None:
    """Check that every route has a rule.

    Raises:
        ConfigError: a route has no rule; the message names all such routes.
    """
    missing = [
        f"route {', '.join(sorted(handler.paths))}: no authorization rule"
        for handler in handlers
        if not isinstance((handler.opt or {}).get("rule"), Rule)
    ]
    if missing:
        raise ConfigError(*missing)


async def provide_principal(request: Request[Any, Any, Any]) -> Principal:
    """Return the caller that the guard authenticated."""
    principal: Principal = request.state.principal
    return principal


def dependencies(users: UserLoader, slots: FairSemaphore) -> dict[str, Provide]:
    """Return the dependencies that handlers may declare: `principal` and `actor`.

    A request with an `actor` holds one of the `slots` until its response is sent: `ReleaseSlots`
    releases it. Message sends use no slot, because they may wait long for Redis. Body fields must
    not be named `principal` or `actor`: a validation error would not show whether the field or the
    dependency is invalid.

    No dependency is a generator. If one dependency of a batch raises, the framework leaves the
    generators of the others to the garbage collector, with everything that they hold.
    """

    async def provide_actor(request: Request[Any, Any, Any]) -> UserId:
        """Return the user who makes the request; for an API key, the user in X-Chat-As.

        Raises:
            BadRequest: a request with an API key has no X-Chat-As.
            NotFound: the user in X-Chat-As does not exist.
            RateLimited: too many requests from the user are waiting.
        """
        principal: Principal = request.state.principal
        if principal.user is None:
            raise BadRequest(f"{CHAT_AS}: must be the id of the user to act as")
        if request.route_handler.opt.get("limit") != "sends":
            held: contextlib.AsyncExitStack = request.scope["state"][_HELD]
            await held.enter_async_context(slots.hold(principal.user))
        await users.ensure_loaded(principal.user, can_create=principal.kind == "user")
        return principal.user

    return {"principal": Provide(provide_principal), "actor": Provide(provide_actor)}


class ReleaseSlots:
    """ASGI middleware that releases what a request holds when its response is complete."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.AsyncExitStack() as held:
            if scope["type"] == ScopeType.HTTP:
                scope.setdefault("state", {})[_HELD] = held
            await self._app(scope, receive, send)


async def pay_for(limits: RateLimits, caller: RequestCaller, frame: Struct) -> None:
    """Charge what a frame costs above `BASE`, which `Guard` has charged, to the rate limit.

    Raises:
        RateLimited: too many requests.
    """
    allowance = limits.find_for_caller("requests", caller)
    await allowance.pay("many requests", compute_frame_cost(frame) - BASE)
