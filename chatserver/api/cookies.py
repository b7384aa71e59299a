"""The refresh token in a cookie, for browsers: no script can read it, ours or an injected one.

What an injected script can still do is ask for an access token while the page is open: that one
lives minutes, and the cookie stays where it is.

The cookie is for `/v1/auth` alone, and `SameSite=Strict`. On top of that, a request is only served
by cookie if it carries `X-Chat-Client`, a header that no form and no link can send and that another
origin's script may not (it would need a permission that we give nobody), and if the browser does
not say that another site is behind it.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from litestar import Request
from litestar.datastructures import Cookie

from chatserver.config import Auth
from chatserver.errors import Forbidden

NAME: Final = "chat_refresh"
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
