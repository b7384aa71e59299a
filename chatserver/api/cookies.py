"""The refresh token and the device tokens in cookies, for browsers: no script can read them.

What an injected script can still do is ask for an access token while the page is open: that one
lives minutes, and the cookie stays where it is.

The cookie is for `/v1/auth` alone, and `SameSite=Strict`. On top of that, a request is only served
by cookie if it carries `X-Chat-Client`, a header that no form and no link can send and that another
origin's script may not (it would need a permission that we give nobody), and if the browser does
not say that another site is behind it.
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
ACCOUNTS_MAX: Final = 4  # of which one browser keeps device tokens; the oldest goes
_BETWEEN = "~"
PATH: Final = "/v1/auth"
CLIENT: Final = "X-Chat-Client"


def refresh_cookie(token: str, max_age_s: int, settings: Auth) -> Cookie:
    """Return the cookie that keeps a refresh token."""
    return Cookie(
        key=NAME,
        value=token,
        path=PATH,
        max_age=max_age_s,
        secure=settings.cookie_secure,
        httponly=True,
        samesite="strict",
    )


def no_cookie(settings: Auth) -> Cookie:
    """Return the cookie that takes it away."""
    return refresh_cookie("", 0, settings)


def device_tokens(request: Request[Any, Any, Any]) -> list[str]:
    """Return the device tokens that a browser keeps, the newest first."""
    kept = request.cookies.get(DEVICE_NAME, "")
    return kept.split(_BETWEEN, ACCOUNTS_MAX)[:ACCOUNTS_MAX]


def device_cookie(token: str, kept: Sequence[str], settings: Auth) -> Cookie:
    """Return the cookie that keeps a device token, beside those of other accounts."""
    account = token.partition(".")[0]
    others = [each for each in kept if each and each.partition(".")[0] != account]
    return Cookie(
        key=DEVICE_NAME,
        value=_BETWEEN.join([token, *others[: ACCOUNTS_MAX - 1]]),
        path=PATH,
        max_age=DEVICE_TOKEN_S,
        secure=settings.cookie_secure,
        httponly=True,
        samesite="strict",
    )


def check_same_origin(request: Request[Any, Any, Any]) -> None:
    """Let a request pass that our own page made.

    Raises:
        Forbidden: it may be another page's.
    """
    if request.headers.get(CLIENT) is None:
        raise Forbidden(f"{CLIENT}: must be sent where the cookie is used")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("this is for the page of this server only")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Forbidden("origin: this is for the page of this server only")
