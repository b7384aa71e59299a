"""One-click login for demo users. The route exists only in `chatserver dev`.

It gives a token to anybody who asks, so it answers only a peer on this machine that connects
directly, to a server that listens on loopback (`Settings` refuses demo users elsewhere). `Host` and
`Origin` are checked as well: a page of another site may reach a loopback port by a name that it
made point there (DNS rebinding). Such a request carries that name as its Host, and its own Origin.
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
from chatserver.domain.addresses import parse_address
from chatserver.domain.ids import ID_PATTERN, UserId
from chatserver.errors import Forbidden, NotFound

TTL_S = 3600
_OF_PROXIES = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class DemoLogin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who to be."""

    user: Annotated[str, msgspec.Meta(pattern=ID_PATTERN)]


class Login(msgspec.Struct, frozen=True):
    """A token, whose it is, and when it ends (seconds since 1970)."""

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
    """Refuse a request of another machine, or one that a proxy has passed on.

    Raises:
        Forbidden: the peer is not on loopback, or a header names a proxy.
    """
    address = parse_address(peer)
    if address is None or not address.is_loopback:
        raise Forbidden("demo login answers programs on this machine only")
    if any(name in headers for name in _OF_PROXIES):
        raise Forbidden("demo login does not answer through a proxy")


def check_is_local(host: str, origin: str | None) -> None:
    """Refuse a request that did not come from our own page or a program on this machine.

    Raises:
        Forbidden: Host is no name of this machine, or Origin is not that of the page.
    """
    if urlsplit(f"//{host}").hostname not in _LOOPBACK:
        raise Forbidden("host: demo login answers on 127.0.0.1 and localhost only")
    if origin is not None and origin != f"http://{host}":
        raise Forbidden("origin: demo login is for the page of this server only")
