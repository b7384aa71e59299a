"""Login HTTP routes: registration, login, token refresh and logout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import Meta

from chatserver.api import cookies
from chatserver.api.authentication import make_authentication
from chatserver.api.authorization import ANYONE, USER, Caller, read_token
from chatserver.api.disconnects import run_while_connected
from chatserver.api.idempotency import read_key
from chatserver.container.storage import StorageContainer
from chatserver.errors import ClientError, Unauthenticated
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.service.login_tokens import Grant

LOGIN_PATH: Final = "/v1/auth/login"

UserName = Annotated[str, Meta(min_length=1, max_length=64)]
Password = Annotated[str, Meta(min_length=1, max_length=512)]
DisplayName = Annotated[str, Meta(min_length=1, max_length=200)]


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new account. `cookie`: return the refresh token as a cookie, for browsers."""

    user: UserName
    password: Password
    name: DisplayName | None = None
    device: DisplayName | None = None
    cookie: bool = False


class PasswordLogin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name and password; `device` is the name of this device in the list of devices.

    `device_token`: the token that this device received from an earlier login or the registration.
    With it, wrong guesses by others do not slow this login down. Browsers store it as a cookie.
    """

    user: UserName
    password: Password
    device: DisplayName | None = None
    cookie: bool = False
    device_token: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


class Refresh(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The refresh token; if omitted, the cookie is used."""

    refresh_token: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


class Granted(msgspec.Struct, frozen=True, omit_defaults=True):
    """An access token, its user and its expiry time (seconds since 1970, and seconds from now).

    `device` identifies this login in the list of devices. `refresh_token` is valid for one use.
    Keep `device_token` after the login ends, and send it with the next login from this device; a
    refresh does not return it. If cookies were requested, these two tokens are set as cookies.
    """

    user: str
    token: str
    expires_at: int
    expires_in_s: int
    device: str
    refresh_token: str | None = None
    device_token: str | None = None


def build_accounts_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return the routes below ``/v1/auth``; none if local accounts are disabled."""
    if not container.settings.auth.local_accounts:
        return []
    return [*_build_login_routes(container), *_build_logout_routes(container)]


def _build_login_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    password_logins, logins, auth = (
        container.get(AccountContainer).password_logins,
        container.get(AccountContainer).logins,
        container.settings.auth,
    )

    def build_response(
        grant: Grant, *, as_cookie: bool, status: int, device_tokens: Sequence[str] = ()
    ) -> Response[Granted]:
        now = int(container.clock.time())
        granted = Granted(
            user=grant.user,
            token=grant.token,
            expires_at=grant.expires_at,
            expires_in_s=grant.expires_at - now,
            device=grant.login,
            refresh_token=None if as_cookie else grant.refresh_token,
            device_token=None if as_cookie else grant.device_token,
        )
        response_cookies = []
        if as_cookie:
            left_s = grant.refresh_expires_at - now
            response_cookies.append(cookies.build_refresh_cookie(grant.refresh_token, left_s, auth))
            if grant.device_token is not None:
                response_cookies.append(
                    cookies.build_device_cookie(grant.device_token, device_tokens, auth)
                )
        return Response(granted, status_code=status, cookies=response_cookies)

    # The route option `creates` is not set: it would store the responses, which contain tokens.
    # A retry finds the same login without a stored response.
    @post("/v1/auth/register", opt={"rule": ANYONE, "accepts_key": True})
    async def register(
        data: JSONBody[Registration], request: Request[Any, Any, Any]
    ) -> Response[Granted]:
        """Create an account and log in. The same `Idempotency-Key` returns the same login."""
        device_tokens = _list_known_devices(request, is_browser=data.cookie)
        work = password_logins.register(
            user_name=data.user,
            password=data.password,
            name=data.name,
            device=data.device,
            address=request.state.address,
            key=read_key(request),
        )
        grant = await run_while_connected(request, work)
        return build_response(grant, as_cookie=data.cookie, status=201, device_tokens=device_tokens)

    @post(LOGIN_PATH, status_code=200, opt={"rule": ANYONE, "accepts_key": True, "errors": (401,)})
    async def log_in(
        data: JSONBody[PasswordLogin], request: Request[Any, Any, Any]
    ) -> Response[Granted]:
        """Log in with user name and password.

        The same `Idempotency-Key` returns the same login.
        """
        device_tokens = list_device_tokens(data, request)
        work = password_logins.log_in(
            user_name=data.user,
            password=data.password,
            device=data.device,
            address=request.state.address,
            key=read_key(request),
            device_tokens=device_tokens,
        )
        grant = await run_while_connected(request, work)
        return build_response(grant, as_cookie=data.cookie, status=200, device_tokens=device_tokens)

    @post("/v1/auth/refresh", status_code=200, opt={"rule": ANYONE, "errors": (401,)})
    async def refresh(
        data: JSONBody[Refresh], request: Request[Any, Any, Any]
    ) -> Response[Granted]:
        """Exchange a refresh token for an access token and the next refresh token."""
        if data.refresh_token is not None:
            return build_response(
                await logins.refresh(data.refresh_token), as_cookie=False, status=200
            )
        cookies.check_same_origin(request)
        refresh_token = request.cookies.get(cookies.NAME)
        if not refresh_token:
            raise Unauthenticated("refresh token is missing; log in")
        return build_response(await logins.refresh(refresh_token), as_cookie=True, status=200)

    return [register, log_in, refresh]


def list_device_tokens(login: PasswordLogin, request: Request[Any, Any, Any]) -> list[str]:
    """Return the device tokens sent with a login; see `_list_known_devices` for errors."""
    device_tokens = _list_known_devices(request, is_browser=login.cookie)
    return device_tokens if login.device_token is None else [login.device_token, *device_tokens]


def _list_known_devices(request: Request[Any, Any, Any], *, is_browser: bool) -> list[str]:
    """Return a browser's device tokens. Raises Forbidden if the request may be cross-origin."""
    if not is_browser:
        return []
    cookies.check_same_origin(request)
    return cookies.device_tokens(request)


def _build_logout_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    logins, auth = container.get(AccountContainer).logins, container.settings.auth

    @post("/v1/auth/logout", status_code=204, opt={"rule": ANYONE})
    async def log_out(request: Request[Any, Any, Any], data: JSONBody[Refresh]) -> Response[None]:
        """End this login, identified by its access token, refresh token or cookie.

        The response is the same if the login has already ended.
        """
        if data.refresh_token is not None:
            await logins.log_out_by_refresh(data.refresh_token)
        refresh_token = request.cookies.get(cookies.NAME)
        if refresh_token:
            cookies.check_same_origin(request)
            await logins.log_out_by_refresh(refresh_token)
        headers = request.headers.getall("authorization", [])
        if headers:
            await _log_out_by_token(container, headers)
        expired = [cookies.build_expired_cookie(auth)] if refresh_token else []
        return Response(None, status_code=204, cookies=expired)

    @post("/v1/auth/logout-everywhere", status_code=204, opt={"rule": USER, "protects": True})
    async def log_out_everywhere(principal: Caller) -> Response[None]:
        """End all logins of the user, including this one, and close their sessions."""
        assert principal.user is not None
        await logins.log_out_everywhere(principal.user)
        return Response(None, status_code=204, cookies=[cookies.build_expired_cookie(auth)])

    return [log_out, log_out_everywhere]


async def _log_out_by_token(container: StorageContainer, headers: list[str]) -> None:
    try:
        principal = await make_authentication(container).authenticate(read_token(headers))
    except ClientError:
        return
    if principal.user is not None and principal.device is not None:
        await container.get(AccountContainer).logins.log_out(principal.user, principal.device)
