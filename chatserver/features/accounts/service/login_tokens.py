"""Login lifecycle: issuing tokens to a device, refreshing them and ending the login.

::

    log in ──► access token (minutes) + refresh token n
    refresh(n) ──► access token + refresh token n+1        n is used up
    refresh(n) within the grace period ──► same n+1        lost response, or concurrent refreshes
    refresh(n) later ──► the login ends                    two clients used n: one of them stole it

The signature of a refresh token is checked before its number n, so a forged token cannot end a
login.

If a login is created with an `Idempotency-Key`, its id is derived from the key. A client that lost
the response and retries with the password therefore gets the existing login. No credentials are
stored for this.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Callable

import attrs
import structlog

from chatserver.auth.access_tokens import ACCESS_TTL_S, Tokens
from chatserver.auth.refresh_token_format import RefreshToken, RefreshTokens
from chatserver.config import Auth
from chatserver.domain.access.logins import BANNED, NEW_ACCOUNT_S, Login
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId, new_id
from chatserver.errors import Banned, Conflict, NotFound, Unauthenticated, Unavailable
from chatserver.features.accounts.warm.accounts import AccountRows
from chatserver.service.access.revocation import Revoker

log = structlog.get_logger()

REFRESH_GRACE_S = 30  # a refresh token is accepted for this time after its first use
DEVICES_MAX = 50  # maximum logins per user; one more ends the least recently used one

TRIES_MAX = 4
REFUSED = "refresh token is invalid or revoked; log in again"
KEY_S = 86_400  # lifetime of an idempotency key
KEY_USED = "Idempotency-Key: already used for another request"


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """Tokens issued to a device, and their expiry times (seconds since 1970)."""

    user: UserId
    login: str
    token: str
    expires_at: int
    refresh_token: str
    refresh_expires_at: int
    device_token: str | None = None  # set only after a registration or a password login


@attrs.define(eq=False, repr=False, kw_only=True)
class LoginTokens:
    _rows: AccountRows
    _tokens: Tokens
    _refresh_tokens: RefreshTokens
    _parse: Callable[[str], RefreshToken]
    _revocation: Revoker
    _settings: Auth
    _clock: Clock

    # creation

    def new_login(self, user: UserId, name: str | None, key: str | None = None) -> Login:
        """Return a new login, which has no effect until it is stored."""
        now = self._clock.time()
        seed = base64.urlsafe_b64encode(self._refresh_tokens.new_seed()).decode()
        return Login(
            user=user,
            login=new_id().lower() if key is None else _derive_login_id(user, key),
            name=name,
            created_ms=int(now * 1000),
            seen_ms=int(now * 1000),
            seed=seed,
            expires_at=int(now) + self._settings.refresh_ttl_s,
            rotated_ms=int(now * 1000),
        )

    async def begin(
        self, user: UserId, name: str | None, key: str | None = None, *, created_ms: int
    ) -> Grant:
        """Store a login and return its first tokens. The account was created at `created_ms`.

        The least recently used logins beyond `DEVICES_MAX` are ended.

        Guarantees:
            Idempotent by `key` until the refresh token is used, for at most `KEY_S`.

        Raises:
            Conflict: `key` has been used for another request, or its login has been refreshed,
                has ended or is older than `KEY_S`.
            Unavailable: no tokens were issued.
        """
        if (
            key is not None
            and (existing_login := await self.find_previous(user, name, key, created_ms=created_ms))
            is not None
        ):
            return existing_login
        now = self._clock.time()
        live_logins = [row for row in await self._rows.list_logins(user) if row.is_live(now)]
        surplus = len(live_logins) + 1 - DEVICES_MAX
        if surplus > 0:
            live_logins.sort(key=lambda row: row.seen_ms)
            oldest = [row.login for row in live_logins[:surplus]]
            await self._revocation.end_logins(user, oldest, "too many devices are logged in")
        login = self.new_login(user, name, key)
        if await self._rows.create_login(login):
            return self.grant(login, created_ms)
        # A concurrent identical request created the login first.
        existing_login = (
            None
            if key is None
            else await self.find_previous(user, name, key, created_ms=created_ms)
        )
        if existing_login is None:
            raise Unavailable("login could not be started; try again")
        return existing_login

    async def find_previous(
        self, user: UserId, name: str | None, key: str, *, created_ms: int
    ) -> Grant | None:
        """Return the tokens of the login that was created with `key`; None if there is none.

        The caller must have checked the password.

        Raises:
            Conflict: the key has been used for another request, or the login has been refreshed,
                has ended or is older than `KEY_S`.
        """
        login = await self._rows.find_login(user, _derive_login_id(user, key))
        if login is None:
            return None
        now = self._clock.time()
        is_fresh = login.generation == 1 and now * 1000 - login.created_ms <= KEY_S * 1000
        if not login.is_live(now) or not is_fresh or login.name != name:
            raise Conflict(KEY_USED)
        return self.grant(login, created_ms)

    def grant(self, login: Login, created_ms: int) -> Grant:
        """Return an access token and the newest refresh token of a login.

        `created_ms` is the time at which the account was created.
        """
        user, now = UserId(login.user), int(self._clock.time())
        ttl_s = min(ACCESS_TTL_S, self._settings.lifetime_s_max)
        seed = base64.urlsafe_b64decode(login.seed)
        return Grant(
            user=user,
            login=login.login,
            token=self._tokens.issue(
                user, ttl_s, login.login, is_new_account=now - created_ms / 1000 < NEW_ACCOUNT_S
            ),
            expires_at=now + ttl_s,
            refresh_token=self._refresh_tokens.make(user, login.login, login.generation, seed),
            refresh_expires_at=login.expires_at,
        )

    # refresh

    async def refresh(self, text: str) -> Grant:
        """Return the next tokens for a refresh token; see the module docstring.

        Guarantees:
            Repeated calls within the grace period return the same refresh token.
            Cancellation: safe; a retry within the grace period succeeds.

        Raises:
            Unauthenticated: the token is invalid, or it was reused after the grace period, which
                ends its login.
            Banned: the user is banned.
            Unavailable: retry.
        """
        token = self._parse(text)
        for _ in range(TRIES_MAX):
            login = await self._rows.find_login(token.user, token.login)
            now = self._clock.time()
            if login is None or not login.is_live(now) or not self._is_genuine(token, login):
                raise Unauthenticated(REFUSED)
            created_ms = await self._check_user(token.user)
            grace_ms = REFRESH_GRACE_S * 1000
            if token.generation == login.generation:
                expires_at = int(now) + self._settings.refresh_ttl_s
                if await self._rows.rotate(login, int(now * 1000), expires_at):
                    return self.grant(
                        dataclasses.replace(
                            login, generation=login.generation + 1, expires_at=expires_at
                        ),
                        created_ms,
                    )
            elif (
                token.generation == login.generation - 1
                and now * 1000 - login.rotated_ms <= grace_ms
            ):
                return self.grant(login, created_ms)
            else:
                await self._end_stolen(token.user, login)
                raise Unauthenticated(REFUSED)
        raise Unavailable("refresh token: too many concurrent refreshes; try again")

    def _is_genuine(self, token: RefreshToken, login: Login) -> bool:
        seed = base64.urlsafe_b64decode(login.seed)
        return len(seed) > 0 and self._refresh_tokens.is_genuine(token, seed)

    async def _check_user(self, user: UserId) -> int:
        """Return the time (ms) at which the account was created. Raises Unauthenticated, Banned."""
        record = await self._rows.find_user(user)
        if record is None:
            raise Unauthenticated(REFUSED)
        if record.banned_ms is not None:
            raise Banned(BANNED)
        return record.created_ms

    async def _end_stolen(self, user: UserId, login: Login) -> None:
        log.warning("logins.refresh_token_reused", user=user, login=login.login)
        reason = "a refresh token was used twice: log in again"
        await self._revocation.end_logins(user, [login.login], reason)

    # end

    async def log_out(self, user: UserId, login: str | None) -> None:
        """End one login of the user, or all logins if `login` is None.

        Raises:
            Unavailable: the login may still be active; retry.
        """
        if login is None:
            await self.log_out_everywhere(user)
        else:
            await self._revocation.end_logins(user, [login], "logged out")

    async def log_out_by_refresh(self, text: str) -> None:
        """End the login that a refresh token belongs to; ignore an invalid token.

        Raises:
            Unavailable: the login may still be active; retry.
        """
        try:
            token = self._parse(text)
        except Unauthenticated:
            return
        login = await self._rows.find_login(token.user, token.login)
        if login is not None and login.ended_ms is None and self._is_genuine(token, login):
            await self._revocation.end_logins(token.user, [login.login], "logged out")

    async def log_out_everywhere(self, user: UserId) -> None:
        """End all logins and revoke all tokens of a user.

        Raises:
            Unavailable: some logins may still be active; retry.
        """
        await self._revocation.end_all(user, "logged out on all devices")

    async def list_live(self, user: UserId) -> list[Login]:
        """Return the user's active logins, most recently used first."""
        now = self._clock.time()
        live_logins = [row for row in await self._rows.list_logins(user) if row.is_live(now)]
        return sorted(live_logins, key=lambda row: row.seen_ms, reverse=True)

    async def end_one(self, user: UserId, login: str, reason: str = "ended by the user") -> None:
        """End one login of a user.

        Raises:
            NotFound: the user has no such login.
            Unavailable: the login may still be active; retry.
        """
        if await self._rows.find_login(user, login) is None:
            raise NotFound("device: does not exist")
        await self._revocation.end_logins(user, [login], reason)


def _derive_login_id(user: UserId, key: str) -> str:
    text = f"{user}#{key}"  # ids contain no '#'
    return "k-" + hashlib.blake2b(text.encode(), digest_size=20).hexdigest()
