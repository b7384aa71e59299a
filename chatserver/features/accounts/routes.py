"""Authentication routes: registration, login, token refresh and logout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import Meta

from chatserver.api import cookies
from chatserver.api.container import ApiContainer
from chatserver.api.disconnects import run_while_connected
from chatserver.api.idempotency import read_key
from chatserver.api.security import ANYONE, USER, Asker, read_token
from chatserver.errors import ClientError, Unauthenticated
from chatserver.features.accounts.logins import Grant

LOGIN_PATH: Final = "/v1/auth/login"

UserName = Annotated[str, Meta(min_length=1, max_length=64)]
Password = Annotated[str, Meta(min_length=1, max_length=512)]
ShownName = Annotated[str, Meta(min_length=1, max_length=200)]


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new account. `cookie`: return the refresh token as a cookie, for browsers."""

    user: UserName
    password: Password
    name: ShownName | None = None
    device: ShownName | None = None
    cookie: bool = False


class PasswordLogin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name and password; `device` is the name of this device in the list of devices.

    `device_token`: returned to this device by an earlier login or by the registration. With it,
    wrong guesses by others do not slow this login down. Browsers store it as a cookie.
    """

    user: UserName
    password: Password
    device: ShownName | None = None
    cookie: bool = False
    device_token: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


class Refresh(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The refresh token; if omitted, that of the cookie."""

    refresh_token: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


class Granted(msgspec.Struct, frozen=True, omit_defaults=True):
    """An access token, its user and its expiry time (seconds since 1970, and from now).

    `device` identifies this login in the list of devices. `refresh_token` is valid for one use.
    Keep `device_token` after the login ends and send it with the next login from this device; a
    refresh returns none. Both are absent if they were set as cookies.
    """

    user: str
    token: str
    expires_at: int
    expires_in_s: int
    device: str
    refresh_token: str | None = None
    device_token: str | None = None


def accounts_routes(parts: ApiContainer) -> list[HTTPRouteHandler]:
    """Return the routes below ``/v1/auth``; none if local accounts are disabled."""
    if not parts.settings.auth.local_accounts:
        return []
    return [*_entering(parts), *_leaving(parts)]


def _entering(parts: ApiContainer) -> list[HTTPRouteHandler]:
    accounts, logins, auth = parts.people.accounts, parts.people.logins, parts.settings.auth

    def answer(
        grant: Grant, *, as_cookie: bool, status: int, known: Sequence[str] = ()
    ) -> Response[Granted]:
        now = int(parts.clock.time())
        granted = Granted(
            user=grant.user,
            token=grant.token,
            expires_at=grant.expires_at,
            expires_in_s=grant.expires_at - now,
            device=grant.login,
            refresh_token=None if as_cookie else grant.refresh_token,
            device_token=None if as_cookie else grant.device_token,
        )
        kept = []
        if as_cookie:
            left_s = grant.refresh_expires_at - now
            kept.append(cookies.refresh_cookie(grant.refresh_token, left_s, auth))
            if grant.device_token is not None:
                kept.append(cookies.device_cookie(grant.device_token, known, auth))
        return Response(granted, status_code=status, cookies=kept)

    # No `creates`: responses contain tokens, which are never stored. A retry finds its login.
    @post("/v1/auth/register", opt={"rule": ANYONE, "takes_key": True})
    async def register(
        data: JSONBody[Registration], request: Request[Any, Any, Any]
    ) -> Response[Granted]:
        """Create an account and log in. The same `Idempotency-Key` returns the same login."""
        known = _known_devices(request, is_browser=data.cookie)
        work = accounts.register(
            data.user,
            data.password,
            data.name,
            data.device,
            request.state.address,
            read_key(request),
        )
        grant = await run_while_connected(request, work)
        return answer(grant, as_cookie=data.cookie, status=201, known=known)

    @post(LOGIN_PATH, status_code=200, opt={"rule": ANYONE, "takes_key": True})
    async def log_in(
        data: JSONBody[PasswordLogin], request: Request[Any, Any, Any]
    ) -> Response[Granted]:
        """Log in with user name and password.

        The same `Idempotency-Key` returns the same login.
        """
        known = list_device_tokens(data, request)
        work = accounts.log_in(
            data.user,
            data.password,
            data.device,
            request.state.address,
            read_key(request),
            known,
        )
        grant = await run_while_connected(request, work)
        return answer(grant, as_cookie=data.cookie, status=200, known=known)

    @post("/v1/auth/refresh", status_code=200, opt={"rule": ANYONE})
    async def refresh(
        data: JSONBody[Refresh], request: Request[Any, Any, Any]
    ) -> Response[Granted]:
        """Exchange a refresh token for an access token and the next refresh token."""
        if data.refresh_token is not None:
            return answer(await logins.refresh(data.refresh_token), as_cookie=False, status=200)
        cookies.check_same_origin(request)
        kept = request.cookies.get(cookies.NAME)
        if not kept:
            raise Unauthenticated("refresh token: there is none: log in")
        return answer(await logins.refresh(kept), as_cookie=True, status=200)

    return [register, log_in, refresh]


def list_device_tokens(login: PasswordLogin, request: Request[Any, Any, Any]) -> list[str]:
    """Return the device tokens of a login. Raises Forbidden as `_known_devices`."""
    known = _known_devices(request, is_browser=login.cookie)
    return known if login.device_token is None else [login.device_token, *known]


def _known_devices(request: Request[Any, Any, Any], *, is_browser: bool) -> list[str]:
    """Return a browser's device tokens. Raises Forbidden if another origin may be calling."""
    if not is_browser:
        return []
    cookies.check_same_origin(request)
    return cookies.device_tokens(request)


def _leaving(parts: ApiContainer) -> list[HTTPRouteHandler]:
    logins, auth = parts.people.logins, parts.settings.auth

    @post("/v1/auth/logout", status_code=204, opt={"rule": ANYONE})
    async def log_out(request: Request[Any, Any, Any], data: JSONBody[Refresh]) -> Response[None]:
        """End this login, identified by its access token, refresh token or cookie.

        The response is the same if these are no longer valid.
        """
        if data.refresh_token is not None:
            await logins.log_out_by_refresh(data.refresh_token)
        kept = request.cookies.get(cookies.NAME)
        if kept:
            cookies.check_same_origin(request)
            await logins.log_out_by_refresh(kept)
        shown = request.headers.getall("authorization", [])
        if shown:
            await _log_out_by_token(parts, shown)
        gone = [cookies.no_cookie(auth)] if kept else []
        return Response(None, status_code=204, cookies=gone)

    @post("/v1/auth/logout-everywhere", status_code=204, opt={"rule": USER})
    async def log_out_everywhere(principal: Asker) -> Response[None]:
        """End all logins of the user, including this one, and close their sessions."""
        assert principal.user is not None
        await logins.log_out_everywhere(principal.user)
        return Response(None, status_code=204, cookies=[cookies.no_cookie(auth)])

    return [log_out, log_out_everywhere]


async def _log_out_by_token(parts: ApiContainer, headers: list[str]) -> None:
    try:
        principal = await parts.authenticator.authenticate(read_token(headers))
    except ClientError:
        return
    if principal.user is not None and principal.device is not None:
        await parts.people.logins.log_out(principal.user, principal.device)
