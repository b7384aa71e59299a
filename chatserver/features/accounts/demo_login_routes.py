"""Demo login: the HTTP route that issues a token to any caller, only in `chatserver dev`.

It accepts only direct connections from this machine, and `Settings` rejects demo users unless the
server listens on loopback. It also checks `Host` and `Origin` to prevent DNS rebinding. A page of
another site can reach a loopback port by a DNS name that resolves to 127.0.0.1. But its requests
have that name as `Host` and that site as `Origin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from chatserver.api.authorization import ANYONE
from chatserver.container.storage import StorageContainer
from chatserver.domain.client_addresses import parse_address
from chatserver.domain.ids import ID_PATTERN, UserId
from chatserver.errors import Forbidden, NotFound

TTL_S = 3600
_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class DemoLogin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The demo user to log in as."""

    user: Annotated[str, msgspec.Meta(pattern=ID_PATTERN)]


class DemoToken(msgspec.Struct, frozen=True):
    """A token, its user and its expiry time (seconds since 1970)."""

    token: str
    user: str
    expires_at: int


def build_demo_login_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return the route ``POST /v1/dev/login``; none if there are no demo users."""
    users, tokens = frozenset(container.settings.api.demo_users), container.tokens
    if not users:
        return []

    @post("/v1/dev/login", status_code=200, opt={"rule": ANYONE}, include_in_schema=False)
    async def log_in_demo_user(
        data: JSONBody[DemoLogin], request: Request[Any, Any, Any]
    ) -> DemoToken:
        """Log in as a demo user, without a password."""
        check_is_direct(request.client.host if request.client else "", request.headers)
        check_is_local(request.headers.get("host", ""), request.headers.get("origin"))
        if data.user not in users:
            raise NotFound(f"user: must be one of {', '.join(sorted(users))}")
        token = tokens.issue(UserId(data.user), TTL_S)
        return DemoToken(token, data.user, tokens.verify(token).expires_at)

    return [log_in_demo_user]


def check_is_direct(peer: str, headers: Mapping[str, str]) -> None:
    """Reject a request from another machine or through a proxy.

    Raises:
        Forbidden: the peer is not on loopback, or a header names a proxy.
    """
    address = parse_address(peer)
    if address is None or not address.is_loopback:
        raise Forbidden("demo login works only from this machine")
    if any(name in headers for name in _PROXY_HEADERS):
        raise Forbidden("demo login does not work through a proxy")


def check_is_local(host: str, origin: str | None) -> None:
    """Reject a request that a page of another site may have sent.

    Raises:
        Forbidden: `Host` is not a loopback name, or `Origin` is not this server.
    """
    if urlsplit(f"//{host}").hostname not in _LOOPBACK:
        raise Forbidden("host: demo login works only on 127.0.0.1 and localhost")
    if origin is not None and origin != f"http://{host}":
        raise Forbidden("origin: demo login works only from pages of this server")
