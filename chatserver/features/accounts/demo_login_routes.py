"""One-click login for demo users. The route exists only in `chatserver dev`.

It issues a token to any caller. It therefore accepts only direct connections from this machine, to
a server that listens on loopback (`Settings` rejects demo users otherwise). It also checks `Host`
and `Origin` against DNS rebinding, in which a page of another site reaches a loopback port by a
name that resolves to it. Such a request has that name as its `Host`, and its own `Origin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from chatserver.api.security import ANYONE
from chatserver.auth.tokens import Tokens
from chatserver.config import Api
from chatserver.domain.client_addresses import parse_address
from chatserver.domain.ids import ID_PATTERN, UserId
from chatserver.errors import Forbidden, NotFound

TTL_S = 3600
_OF_PROXIES = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class DemoLogin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The demo user to log in as."""

    user: Annotated[str, msgspec.Meta(pattern=ID_PATTERN)]


class Login(msgspec.Struct, frozen=True):
    """A token, its user and its expiry time (seconds since 1970)."""

    token: str
    user: str
    expires_at: int


def demo_login_route(settings: Api, tokens: Tokens) -> HTTPRouteHandler:
    """Return ``POST /v1/dev/login``."""
    users = frozenset(settings.demo_users)

    @post("/v1/dev/login", status_code=200, opt={"rule": ANYONE}, include_in_schema=False)
    async def log_in(data: JSONBody[DemoLogin], request: Request[Any, Any, Any]) -> Login:
        """Log in as a demo user, without a password."""
        check_is_direct(request.client.host if request.client else "", request.headers)
        check_is_local(request.headers.get("host", ""), request.headers.get("origin"))
        if data.user not in users:
            raise NotFound(f"user: must be one of {', '.join(sorted(users))}")
        token = tokens.mint(UserId(data.user), TTL_S)
        return Login(token, data.user, tokens.verify(token).expires_at)

    return log_in


def check_is_direct(peer: str, headers: Mapping[str, str]) -> None:
    """Reject a request from another machine or through a proxy.

    Raises:
        Forbidden: the peer is not on loopback, or a header names a proxy.
    """
    address = parse_address(peer)
    if address is None or not address.is_loopback:
        raise Forbidden("demo login answers programs on this machine only")
    if any(name in headers for name in _OF_PROXIES):
        raise Forbidden("demo login does not answer through a proxy")


def check_is_local(host: str, origin: str | None) -> None:
    """Reject a request that neither this server's page nor a local program made.

    Raises:
        Forbidden: `Host` is not a name of this machine, or `Origin` is not that of the page.
    """
    if urlsplit(f"//{host}").hostname not in _LOOPBACK:
        raise Forbidden("host: demo login answers on 127.0.0.1 and localhost only")
    if origin is not None and origin != f"http://{host}":
        raise Forbidden("origin: demo login is for the page of this server only")
