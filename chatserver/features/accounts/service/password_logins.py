"""Password use cases: registration, login, password checks and password changes.

A wrong user name and a wrong password get the same response, after the same work. Rate limits apply
before that work:

- An unknown device is limited per network, and per account within the network. Its wrong guesses do
  not count against the owner's devices. If unknown devices together make too many wrong guesses for
  an account, each of them must wait some seconds longer, but none is locked out.
- A known device, which presents a device token from an earlier login, has its own limit.
- Password checks for a user who is already logged in have a separate limit per account.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Container, Iterable

import attrs

from chatserver.auth.device_tokens import DeviceTokens
from chatserver.auth.passwords import Passwords
from chatserver.config import Auth
from chatserver.domain.access.login_attempt import LoginAttempt
from chatserver.domain.access.logins import BANNED, Login
from chatserver.domain.client_addresses import get_network
from chatserver.domain.clock import Clock, get_now_ms
from chatserver.domain.companion_ids import parse_person_id
from chatserver.domain.ids import UserId
from chatserver.domain.text_validation import parse_name
from chatserver.errors import (
    BadRequest,
    Banned,
    Conflict,
    Forbidden,
    NotFound,
    Overloaded,
    RateLimited,
    Unauthenticated,
)
from chatserver.features.accounts.service.login_tokens import Grant, LoginTokens
from chatserver.features.accounts.service.profiles import Profiles
from chatserver.features.accounts.warm.accounts import AccountRows, Credential
from chatserver.hot.users.login_rate_limits import LoginRateLimits
from chatserver.service.access.revocation import Revoker

WRONG_CREDENTIALS = "user name or password is wrong"
_USER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{2,31}")


@attrs.define(eq=False, repr=False, kw_only=True)
class PasswordLogins:
    """Password use cases. `reserved`: names that cannot be registered."""

    _rows: AccountRows
    _profiles: Profiles
    _passwords: Passwords
    _logins: LoginTokens
    _revocation: Revoker
    _attempts: LoginRateLimits
    _devices: DeviceTokens
    _settings: Auth
    _clock: Clock
    _reserved: Container[str] = ()

    async def register(
        self,
        user_name: str,
        password: str,
        name: str | None,
        device: str | None,
        address: str,
        key: str | None = None,
    ) -> Grant:
        """Create an account and log in.

        Guarantees:
            Idempotent by `key`: the same request, with the same password, returns the same login.

        Raises:
            Forbidden: registration is closed.
            BadRequest, TooLarge: the name or the password is not allowed.
            Conflict: the name is taken.
            Banned: an earlier request with `key` created the account, which is now banned.
            RateLimited: too many attempts from this network, or too many retries for this name.
            Overloaded: Redis is low on memory.
        """
        if self._settings.registration == "closed":
            raise Forbidden("registration is closed")
        await self._attempts.count_registration(get_network(address))
        user = parse_user_name(user_name)
        attempt = LoginAttempt(user, get_network(address), is_known=False)
        if user in self._reserved:
            raise Conflict("user: this name is already taken")
        text = self._passwords.parse(password, user)
        display_name = None if name is None else parse_name(name)
        login = self._logins.new_login(user, _parse_device_name(device), key)
        hash_ = await self._passwords.hash(text, attempt)
        created_ms = get_now_ms(self._clock)
        try:
            await self._rows.create(user, display_name, created_ms, hash_, login)
        except Conflict:
            if key is None:
                raise
            existing_login = await self._find_previous(attempt, text, display_name, login, key)
            if existing_login is None:
                raise
            return self._with_device(existing_login)
        return self._with_device(self._logins.grant(login, created_ms))

    def _with_device(self, grant: Grant, device: str | None = None) -> Grant:
        token = self._devices.make(grant.user, device)
        return dataclasses.replace(grant, device_token=token)

    async def _find_previous(
        self, attempt: LoginAttempt, password: str, name: str | None, login: Login, key: str
    ) -> Grant | None:
        """Return the tokens granted to an earlier identical request; None if there was none.

        The password is checked and rate-limited as in any login, so the key alone grants no access.
        """
        user = attempt.account
        if await self._rows.find_login(user, login.login) is None:
            return None
        attempt = await self._attempts.begin(attempt)
        stored = await self._rows.find_credential(user)
        if not await self._passwords.verify(stored.hash if stored else None, password, attempt):
            return None
        await self._attempts.return_token(attempt)
        record = await self._rows.find_user(user)
        if record is None or record.name != name:
            return None
        if record.banned_ms is not None:
            raise Banned(BANNED)
        return await self._logins.find_previous(user, login.name, key, created_ms=record.created_ms)

    def parse_password(self, user: UserId, password: str) -> str:
        """Return a new password of a user, normalized.

        Raises:
            BadRequest, TooLarge: the password or the name is not allowed for password logins.
        """
        if parse_user_name(user) != user:
            raise BadRequest(
                "user: contains uppercase letters, so this user cannot log in with a password"
            )
        return self._passwords.parse(password, user)

    async def set_password(self, user: UserId, password: str) -> None:
        """Set a user's password and end all of the user's logins.

        Raises:
            BadRequest, TooLarge: the password or the name is not allowed for password logins.
            NotFound: the user does not exist.
            Unavailable: the password may have been set; retry.
        """
        text = self.parse_password(user, password)
        await self._profiles.get(user)
        hash_ = await self._passwords.hash(text, LoginAttempt(user, "host", is_known=True))
        await self._rows.set_hash(user, hash_, get_now_ms(self._clock))
        await self._revocation.end_all(user, "the password was changed")

    async def log_in(
        self,
        user_name: str,
        password: str,
        device: str | None,
        address: str,
        key: str | None = None,
        device_tokens: Iterable[str] = (),
    ) -> Grant:
        """Log in with name and password.

        `device_tokens`: tokens from the device's earlier logins to any account.

        Guarantees:
            Idempotent by `key`: the same request returns the same login.
            A well-formed name without an account gets the same response, after the same work, as a
                wrong password.

        Raises:
            Unauthenticated: name or password is wrong.
            Banned: name and password are right, but the user is banned.
            Conflict: `key` has been used for another request.
            RateLimited: too many attempts from this network or known device.
        """
        network = get_network(address)
        try:
            user = parse_user_name(user_name)
        except BadRequest:
            await self._attempts.count_login(network)
            raise Unauthenticated(WRONG_CREDENTIALS) from None  # no account has such a name
        attempt = self._make_attempt(user, network, device_tokens)
        await self._attempts.count_login(_get_limit_subject(attempt))
        attempt = await self._attempts.begin(attempt)
        find = functools.partial(self._rows.find_credential, user)
        stored = await self._passwords.find_verified(find, password, attempt)
        if stored is None:
            raise Unauthenticated(WRONG_CREDENTIALS)
        record = await self._rows.find_user(user)
        if record is None:
            raise Unauthenticated(WRONG_CREDENTIALS)
        if record.banned_ms is not None:
            raise Banned(BANNED)
        await self._attempts.return_token(attempt)
        grant = await self._logins.begin(
            user, _parse_device_name(device), key, created_ms=record.created_ms
        )
        await self._check_unchanged(user, grant, stored.changed_ms)
        if self._passwords.is_outdated(stored.hash):
            await self._rehash(attempt, password, stored)
        return self._with_device(grant, attempt.source if attempt.is_known else None)

    def check_refused(self, user_name: str, address: str, device_tokens: Iterable[str]) -> None:
        """Check the cached refusals for a login, without calling Redis.

        Raises:
            RateLimited: a cached refusal applies; `log_in` would raise RateLimited, too.
        """
        network = get_network(address)
        try:
            user = parse_user_name(user_name)
        except BadRequest:
            self._attempts.check_refused(network, None)
            return
        attempt = self._make_attempt(user, network, device_tokens)
        self._attempts.check_refused(_get_limit_subject(attempt), attempt)

    def _make_attempt(
        self, user: UserId, network: str, device_tokens: Iterable[str]
    ) -> LoginAttempt:
        device = self._devices.find_device(device_tokens, user)
        return LoginAttempt(user, network if device is None else device, device is not None)

    async def _rehash(self, attempt: LoginAttempt, password: str, stored: Credential) -> None:
        try:
            new_hash = await self._passwords.hash(password, attempt)
        except (Overloaded, RateLimited):
            return  # the next login tries again to rehash the password
        await self._rows.put_hash(attempt.account, new_hash, stored.changed_ms, stored.hash)

    async def _check_unchanged(self, user: UserId, grant: Grant, changed_ms: int) -> None:
        """End a new login if the password changed while the login was being created."""
        now = await self._rows.find_credential(user)
        if now is None or now.changed_ms != changed_ms:
            await self._revocation.end_logins(user, [grant.login], "the password was changed")
            raise Unauthenticated(WRONG_CREDENTIALS)

    async def change_password(
        self, user: UserId, current: str, new_password: str, login: str | None
    ) -> None:
        """Change the password and end every other login.

        Guarantees:
            Idempotent: if ending the other logins failed, a retry ends them.

        Raises:
            Forbidden: `current` is not the password.
            BadRequest, TooLarge: the new password is not allowed.
            NotFound: the user has no password on this server.
            Conflict: a concurrent request changed the password.
            RateLimited: too many attempts.
            Unavailable: the password may have changed, but other logins may be active; retry.
        """
        attempt = await self._attempts.begin(_make_session_attempt(user))
        stored = await self._rows.find_credential(user)
        if stored is None:
            raise NotFound("password: this user has no password on this server")
        text = self._passwords.parse(new_password, user)
        if await self._passwords.verify(stored.hash, current, attempt):
            hash_ = await self._passwords.hash(text, attempt)
            if not await self._rows.put_hash(user, hash_, get_now_ms(self._clock), stored.hash):
                raise Conflict("password: was changed by another request")
        elif not await self._passwords.verify(stored.hash, text, attempt):
            raise Forbidden("current: wrong password")
        await self._attempts.return_token(attempt)
        await self._revocation.end_all(user, "the password was changed", but=login)

    async def check_password(self, user: UserId, password: str | None) -> bool:
        """Return whether the user has a password; if so, `password` must match it.

        Raises:
            Forbidden: `password` does not match.
            RateLimited: too many attempts.
        """
        stored = await self._rows.find_credential(user)
        if stored is None:
            return False
        attempt = await self._attempts.begin(_make_session_attempt(user))
        if not await self._passwords.verify(stored.hash, password or "", attempt):
            raise Forbidden("password: wrong password")
        await self._attempts.return_token(attempt)
        return True


def _get_limit_subject(attempt: LoginAttempt) -> str:
    """Return the rate limit subject: the account for a known device, otherwise the network."""
    return f"u-{attempt.account}" if attempt.is_known else attempt.source


def parse_user_name(text: str) -> UserId:
    """Return the user id for an entered name; letter case is ignored.

    Raises:
        BadRequest: the name is not valid.
    """
    name = text.strip().lower() if len(text) <= 64 else text
    if _USER_NAME.fullmatch(name) is None:
        raise BadRequest(
            "user: must be 3 to 32 characters (a-z 0-9 _ -) and start with a letter or digit"
        )
    return parse_person_id(name, "user")


def _make_session_attempt(user: UserId) -> LoginAttempt:
    return LoginAttempt(user, "session", is_known=True)


def _parse_device_name(text: str | None) -> str | None:
    return None if text is None else parse_name(text, "device")
