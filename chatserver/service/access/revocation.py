"""Revocation of logins and tokens, and banning of users.

Every operation has three steps:

1. Write to the `directory` table.
2. Write a revocation mark to Redis. Every `hello` and every request checks these marks.
3. Notify the user's gateways, which close the sockets.

The steps are idempotent; if one fails, the caller repeats the operation.

When Redis loses data, a new epoch starts (decision 0014), in which no user is loaded. Loading a
user first calls `restore`, so revoked tokens stay rejected. If the `directory` table is unavailable
as well, a session can start without the marks (guarantee P9). A revoked token then works until the
user is loaded or the token expires (after at most an hour).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import attrs
import structlog

from chatserver.config import Auth
from chatserver.domain.access.logins import Login, RevocationMarks
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId
from chatserver.hot.users.revocations import Revocations, SessionEnder
from chatserver.warm.chats.directory_items import User

log = structlog.get_logger()

LOGIN_KEPT_S = 120  # how long an ended login's row is kept after the login's last token expires


class RevocableAccounts(Protocol):
    """Users and their logins in the `directory` table; the `accounts` feature implements this."""

    async def list_logins(self, user: str) -> Sequence[Login]: ...

    async def end_logins(
        self, user: str, logins: Collection[str], now_ms: int, until: int
    ) -> None: ...

    async def restrict_user(
        self, user: str, *, before: int | None = None, banned_ms: int | None = None
    ) -> None: ...

    async def remove_ban(self, user: str) -> None: ...


class PushDevices(Protocol):
    """Push subscriptions of users; the `push` feature implements this."""

    async def remove_for_device(self, user: UserId, device: str, now: float) -> int: ...

    async def remove_all(
        self, user: UserId, now: float, *, except_device: str | None = None
    ) -> int: ...


@attrs.define(eq=False, repr=False, kw_only=True)
class Revoker:
    """Revocation use cases. Push subscriptions are deleted along with their logins."""

    _accounts: RevocableAccounts
    _revocations: Revocations
    _session_ender: SessionEnder
    _settings: Auth
    _clock: Clock
    _push_devices: PushDevices | None = None

    async def end_logins(self, user: UserId, logins: Collection[str], reason: str) -> None:
        """End some of a user's logins, with their tokens, refresh tokens and sessions.

        Guarantees:
            Idempotent. When it returns, the tokens are rejected, and the user's gateways have been
                notified to close the sockets.

        Raises:
            Unavailable: some logins may still be active; repeat the call.
        """
        if not logins:
            return
        now = self._clock.time()
        until = int(now) + self._settings.token_s_max + LOGIN_KEPT_S
        await self._accounts.end_logins(user, logins, int(now * 1000), until)
        await self._revocations.put(user, logins=logins)
        await self._session_ender.end(user, RevocationMarks(logins=frozenset(logins)), reason)
        if self._push_devices is not None:
            for login in logins:
                await self._push_devices.remove_for_device(user, login, now)

    async def end_all(self, user: UserId, reason: str, *, but: str | None = None) -> None:
        """End all logins except `but`, and revoke all existing tokens that belong to no login.

        Guarantees: same as `end_logins`.

        Raises:
            NotFound: the user does not exist.
            Unavailable: some logins or tokens may still be active; repeat the call.
        """
        now = int(self._clock.time())
        await self._accounts.restrict_user(user, before=now)
        rows = await self._accounts.list_logins(user)
        # Logins that have already ended are included, because an earlier attempt may have failed
        # before it wrote their marks.
        logins = frozenset(row.login for row in rows if row.login != but)
        live_logins = [row.login for row in rows if row.login != but and row.ended_ms is None]
        until = now + self._settings.token_s_max + LOGIN_KEPT_S
        await self._accounts.end_logins(user, live_logins, now * 1000, until)
        await self._revocations.put(user, before=now, logins=logins)
        await self._session_ender.end(user, RevocationMarks(now, logins), reason)
        if self._push_devices is not None:
            await self._push_devices.remove_all(user, now, except_device=but)

    async def ban(self, user: UserId) -> None:
        """Reject all of a user's tokens, and delete the user's push subscriptions.

        Logins are kept for a later `unban`.

        Raises:
            NotFound: the user does not exist.
            Unavailable: the user may or may not be banned; repeat the call.
        """
        await self._accounts.restrict_user(user, banned_ms=int(self._clock.time() * 1000))
        await self._revocations.put(user, is_banned=True)
        await self._session_ender.end(user, RevocationMarks(is_banned=True), "banned")
        if self._push_devices is not None:
            await self._push_devices.remove_all(user, self._clock.time())

    async def unban(self, user: UserId) -> None:
        """Lift a ban. Raises the same errors as `ban`."""
        await self._accounts.remove_ban(user)
        await self._revocations.put(user, is_banned=False)

    async def restore(self, record: User, ended_logins: Collection[str]) -> None:
        """Write a user's revocation marks from the `directory` table to Redis.

        Raises:
            Unavailable: some marks may be missing.
        """
        user = UserId(record.user)
        logins = frozenset(ended_logins)
        marks = RevocationMarks(record.before, logins, record.banned_ms is not None)
        if marks == RevocationMarks():
            return
        await self._revocations.put(
            user, before=marks.before, logins=logins, is_banned=marks.is_banned or None
        )
        log.info("revocations.restored", user=user)
        await self._session_ender.end(user, marks, "")
