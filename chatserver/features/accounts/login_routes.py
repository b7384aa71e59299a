"""Account HTTP routes: registration, login, token refresh, logout, devices and passwords.

The demo login exists only in `chatserver dev` and issues a token to any caller. It therefore
accepts only direct connections from this machine, and `Settings` rejects demo users unless the
server listens on loopback. It also checks `Host` and `Origin` to prevent DNS rebinding. A page of
another site can reach a loopback port by a DNS name that resolves to 127.0.0.1. But its requests
have that name as `Host` and that site as `Origin`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import Meta

from chatserver.api import cookies
from chatserver.api.authentication import make_authentication
from chatserver.api.authorization import ANYONE, USER, Caller, read_token
from chatserver.api.disconnects import run_while_connected
from chatserver.api.idempotency import read_key
from chatserver.api.paging import Page, PageOf, PageQuery
from chatserver.api.request_bodies import PathId
from chatserver.container.storage import StorageContainer
from chatserver.domain.client_addresses import parse_address
from chatserver.domain.ids import ID_PATTERN, UserId
from chatserver.errors import ClientError, Forbidden, NotFound, Unauthenticated
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


class Device(msgspec.Struct, frozen=True):
    """A login. Times are in milliseconds since 1970; `seen` is the time of the last refresh."""

    device: str
    name: str | None
    created: int
    seen: int
    is_current: bool


class PasswordChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The current and the new password."""

    current: Password
    password: Password


def build_devices_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return the device and password routes; none if local accounts are disabled."""
    if not container.settings.auth.local_accounts:
        return []
    password_logins, logins = (
        container.get(AccountContainer).password_logins,
        container.get(AccountContainer).logins,
    )

    @get("/v1/me/devices", opt={"rule": USER})
    async def list_devices(principal: Caller, page: PageOf) -> Page[Device]:
        """List the user's logins, most recently used first."""
        assert principal.user is not None
        return await build_device_page(container, principal.user, principal.device, page)

    @delete("/v1/me/devices/{device:str}", opt={"rule": USER})
    async def end_device(device: PathId, principal: Caller) -> None:
        """Log out a device of the user: close its sessions and revoke its tokens."""
        assert principal.user is not None
        await logins.end_one(principal.user, device)

    @put(
        "/v1/me/password",
        status_code=204,
        opt={"rule": USER, "protects": True, "errors": (404, 409)},
    )
    async def change_password(data: JSONBody[PasswordChange], principal: Caller) -> None:
        """Change the password and log out all other devices."""
        assert principal.user is not None
        await password_logins.change_password(
            principal.user, data.current, data.password, principal.device
        )

    return [list_devices, end_device, change_password]


async def build_device_page(
    container: StorageContainer, user: UserId, current: str | None, page: PageQuery
) -> Page[Device]:
    """Return a page of a user's logins; `current` is the caller's device."""
    return page.slice(
        await container.get(AccountContainer).logins.list_live(user),
        lambda row: (-row.seen_ms, row.login),
        lambda row: Device(row.login, row.name, row.created_ms, row.seen_ms, row.login == current),
    )


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
