"""`Account`: a login with username and password, which renews its access token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict, Unpack

from chatserver.client.http.http_api import HttpApi
from chatserver.domain.clock import Clock, SystemClock
from chatserver.errors import BadRequest, Conflict, Unauthenticated
from chatserver.task_groups import wait_for_shared

RENEWAL_MARGIN_S = 30.0  # before the expiry of a token

OnRefreshToken = Callable[[str], Awaitable[None]]


class LoginOptions(TypedDict, total=False):
    """Options of a login.

    `device` is the name of this device in the user's list of devices. `on_refresh_token` is called
    with each new refresh token.
    """

    device: str | None
    on_refresh_token: OnRefreshToken | None
    clock: Clock | None


class Account:
    """A login. Pass `account.get_token` to `ChatClient`.

    A login ends 30 days after its last use. To resume it in another process, save each refresh
    token passed to `on_refresh_token` where only this application can read it. A refresh token is
    valid for one use.
    """

    def __init__(
        self,
        api_url: str,
        *,
        device: str | None = None,
        on_refresh_token: OnRefreshToken | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Create an account object without a login; use one of the class methods instead.

        Raises:
            BadRequest: `api_url` is not an HTTP address.
        """
        self.user = ""
        self._http = HttpApi(api_url)
        self._device = device
        self._on_refresh_token = on_refresh_token
        self._clock = clock or SystemClock()
        self._token = ""
        self._refresh_token: str | None = None
        self._expires_at = 0.0  # by the monotonic clock
        self._renewal: asyncio.Task[None] | None = None

    @classmethod
    async def log_in(
        cls, api_url: str, user: str, password: str, **options: Unpack[LoginOptions]
    ) -> Account:
        """Log in.

        Raises:
            Unauthenticated: the username or the password is wrong.
        """
        account = cls(api_url, **options)
        await account._submit_password("login", user, password)
        return account

    @classmethod
    async def register(
        cls, api_url: str, user: str, password: str, **options: Unpack[LoginOptions]
    ) -> Account:
        """Create an account and log in.

        Raises:
            Conflict: the username is taken.
            BadRequest: the username or the password does not meet the requirements.
        """
        account = cls(api_url, **options)
        await account._submit_password("register", user, password)
        return account

    @classmethod
    async def log_in_or_register(
        cls, api_url: str, user: str, password: str, **options: Unpack[LoginOptions]
    ) -> Account:
        """Log in; if the user does not exist, create the account.

        Raises:
            Unauthenticated: the user exists, and the password is wrong.
            BadRequest: the user does not exist, and the name or password is not allowed.
        """
        try:
            return await cls.log_in(api_url, user, password, **options)
        except Unauthenticated as login_error:
            try:
                return await cls.register(api_url, user, password, **options)
            except Conflict:  # the name is taken, so the password was wrong
                raise login_error from None

    @classmethod
    async def resume(
        cls, api_url: str, refresh_token: str, **options: Unpack[LoginOptions]
    ) -> Account:
        """Resume a login with its last refresh token.

        Raises:
            Unauthenticated: the login has ended, or the refresh token has been used.
        """
        account = cls(api_url, **options)
        account._refresh_token = refresh_token
        await account._refresh()
        return account

    async def get_token(self) -> str:
        """Return a valid access token; it is renewed shortly before it expires.

        Cancellation: safe; a renewal that has begun continues.

        Raises:
            Unauthenticated: the login has ended.
            Unavailable: the API does not respond.
        """
        if self._clock.monotonic() > self._expires_at - RENEWAL_MARGIN_S:
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.create_task(self._refresh(), name="renew-login")
            # A refresh token is valid for one use, so its successor must be saved.
            await wait_for_shared(self._renewal)
        return self._token

    async def log_out(self) -> None:
        """End the login on the server."""
        await self._http.request("POST", "/v1/auth/logout", {"refresh_token": self._refresh_token})
        self._refresh_token = None
        self._expires_at = 0.0

    async def _submit_password(self, route: str, user: str, password: str) -> None:
        body = {"user": user, "password": password}
        if self._device is not None:
            body["device"] = self._device
        await self._save(await self._http.request("POST", f"/v1/auth/{route}", body))

    async def _refresh(self) -> None:
        if self._refresh_token is None:
            raise BadRequest("account: not logged in")
        body = {"refresh_token": self._refresh_token}
        await self._save(await self._http.request("POST", "/v1/auth/refresh", body))

    async def _save(self, granted: dict[str, Any]) -> None:
        self.user, self._token = granted["user"], granted["token"]
        self._expires_at = self._clock.monotonic() + granted["expires_in_s"]
        if granted.get("refresh_token"):
            self._refresh_token = granted["refresh_token"]
            if self._on_refresh_token is not None:
                await self._on_refresh_token(granted["refresh_token"])
