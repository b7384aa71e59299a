"""Refresh and device tokens in cookies that scripts cannot read, for browsers.

A script that is injected into a page cannot read the cookies. While the page is open, the script
can only request access tokens, which expire within minutes.

The cookies are limited to `/v1/auth` and `SameSite=Strict`. In addition, the request must have the
header `X-Chat-Client`, and the browser must not report that another site sent it. No form or link
can send that header, and the server grants no CORS permission to scripts of other origins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from litestar import Request
from litestar.datastructures import Cookie

from chatserver.auth.device_tokens import DEVICE_TOKEN_S
from chatserver.config import Auth
from chatserver.errors import Forbidden

NAME: Final = "chat_refresh"
DEVICE_NAME: Final = "chat_device"
ACCOUNTS_MAX: Final = 4  # maximum device tokens in a browser's cookie; one more replaces the oldest
_SEPARATOR = "~"
PATH: Final = "/v1/auth"
CLIENT: Final = "X-Chat-Client"


def build_refresh_cookie(token: str, max_age_s: int, settings: Auth) -> Cookie:
    return Cookie(
        key=NAME,
        value=token,
        path=PATH,
        max_age=max_age_s,
        secure=settings.cookie_secure,
        httponly=True,
        samesite="strict",
    )


def build_expired_cookie(settings: Auth) -> Cookie:
    """Return the cookie that deletes the refresh token."""
    return build_refresh_cookie("", 0, settings)


def device_tokens(request: Request[Any, Any, Any]) -> list[str]:
    """Return the device tokens that a browser stores, newest first."""
    cookie = request.cookies.get(DEVICE_NAME, "")
    return cookie.split(_SEPARATOR, ACCOUNTS_MAX)[:ACCOUNTS_MAX]


def build_device_cookie(token: str, tokens: Sequence[str], settings: Auth) -> Cookie:
    """Return the cookie that stores `token` and the `tokens` of other accounts."""
    account = token.partition(".")[0]
    others = [cookie for cookie in tokens if cookie and cookie.partition(".")[0] != account]
    return Cookie(
        key=DEVICE_NAME,
        value=_SEPARATOR.join([token, *others[: ACCOUNTS_MAX - 1]]),
        path=PATH,
        max_age=DEVICE_TOKEN_S,
        secure=settings.cookie_secure,
        httponly=True,
        samesite="strict",
    )


def check_same_origin(request: Request[Any, Any, Any]) -> None:
    """Check that this server's own page made the request.

    Raises:
        Forbidden: another origin may have made the request.
    """
    if request.headers.get(CLIENT) is None:
        raise Forbidden(f"{CLIENT}: this header is required with the login cookie")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("only web pages of this server may send this request")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Forbidden("Origin: only web pages of this server may send this request")
