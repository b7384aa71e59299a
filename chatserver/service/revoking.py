"""Ending what lets somebody in: logins, all that was issued so far, the user himself.

Each step goes the same way: the directory first, which lasts; then the mark in Redis, at which
every hello and every request looks; then the gateways where the user is, which close the sockets. A
step that fails half-way is made again by whoever asked; all of them are idempotent.

If Redis loses the marks, it is another Redis (decision 10), in which no user is filled in. Whoever
fills a user in calls `restore` first, so no token is taken there that was ended here. Only while
the directory is away as well, a session may begin without (promise P9): then a revoked token holds
until it ends by itself, an hour at most, or the user is filled in: `restore` closes sessions, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import structlog

from chatserver.config import Auth
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId
from chatserver.domain.logins import Marks

log = structlog.get_logger()

SLACK_S = 120  # the rows of ended logins outlive every token of them by this


class LoginRow(Protocol):
    """A login of the directory."""

    @property
    def login(self) -> str: ...
    @property
    def ended_ms(self) -> int | None: ...


class Rows(Protocol):
    """The directory."""

    async def find_user(self, user: str) -> Any: ...

    async def list_logins(self, user: str) -> Sequence[Any]: ...

    async def end_logins(
        self, user: str, logins: Collection[str], now_ms: int, until: int
    ) -> None: ...

    async def put_standing(
        self, user: str, *, before: int | None = None, banned_ms: int | None = None
    ) -> None: ...

    async def lift_ban(self, user: str) -> None: ...


class MarkWriter(Protocol):
    """The marks in Redis."""

    async def put(
        self,
        user: UserId,
        *,
        before: int = 0,
        logins: Collection[str] = (),
        is_banned: bool | None = None,
    ) -> None: ...


class Ender(Protocol):
    """Tells gateways."""

    async def end(self, user: UserId, marks: Marks, reason: str) -> None: ...


class PushDevices(Protocol):
    """Where users are told of messages while no client is in front."""

    async def remove_of_device(self, user: UserId, device: str, now: float) -> int: ...

    async def remove_all(self, user: UserId, now: float, *, but: str | None = None) -> int: ...


class Revoking:
    """The use cases. `pushes`: who is ended is not told of messages any more, either."""

    def __init__(
        self,
        rows: Rows,
        marks: MarkWriter,
        ender: Ender,
        settings: Auth,
        clock: Clock,
        pushes: PushDevices | None = None,
    ) -> None:
        self._pushes = pushes
        self._rows = rows
        self._marks = marks
        self._ender = ender
        self._settings = settings
        self._clock = clock

    async def end_logins(self, user: UserId, logins: Collection[str], reason: str) -> None:
        """End some logins of a user: their tokens, refresh tokens and sessions.

        Guarantees:
            Idempotent. When it returns, no request and no hello with a token of theirs passes, and
            each gateway has mail to close their sockets.

        Raises:
            Unavailable: some may go on; do it again.
        """
        if not logins:
            return
        now = self._clock.time()
        until = int(now) + self._settings.token_s_max + SLACK_S
        await self._rows.end_logins(user, logins, int(now * 1000), until)
        await self._marks.put(user, logins=logins)
        await self._ender.end(user, Marks(logins=frozenset(logins)), reason)
        if self._pushes is not None:
            for login in logins:
                await self._pushes.remove_of_device(user, login, now)

    async def end_all(self, user: UserId, reason: str, *, but: str | None = None) -> None:
        """End all logins but one, and all tokens without a login that were issued so far.

        Guarantees:
            As `end_logins`.

        Raises:
            NotFound: there is no such user.
            Unavailable: some may go on; do it again.
        """
        now = int(self._clock.time())
        await self._rows.put_standing(user, before=now)
        rows = await self._rows.list_logins(user)
        # Those that were ended before, too: an earlier try may have died before it marked them.
        logins = frozenset(row.login for row in rows if row.login != but)
        live = [row.login for row in rows if row.login != but and row.ended_ms is None]
        until = now + self._settings.token_s_max + SLACK_S
        await self._rows.end_logins(user, live, now * 1000, until)
        await self._marks.put(user, before=now, logins=logins)
        await self._ender.end(user, Marks(now, logins), reason)
        if self._pushes is not None:
            await self._pushes.remove_all(user, now, but=but)

    async def ban(self, user: UserId) -> None:
        """Let a user in no more, by whatever token; it ends no login, so it can be lifted.

        Raises:
            NotFound: there is no such user.
            Unavailable: the user may be banned, or not; do it again.
        """
        await self._rows.put_standing(user, banned_ms=int(self._clock.time() * 1000))
        await self._marks.put(user, is_banned=True)
        await self._ender.end(user, Marks(is_banned=True), "banned")
        if self._pushes is not None:
            await self._pushes.remove_all(user, self._clock.time())

    async def unban(self, user: UserId) -> None:
        """Let a banned user in again. Raises as `ban`."""
        await self._rows.lift_ban(user)
        await self._marks.put(user, is_banned=False)

    async def restore(self, user: UserId) -> None:
        """Make the marks of a user again from the directory; see the module.

        Raises:
            Unavailable: they may not all be there.
        """
        record = await self._rows.find_user(user)
        if record is None:
            return
        rows = await self._rows.list_logins(user)
        logins = frozenset(row.login for row in rows if row.ended_ms is not None)
        marks = Marks(record.before, logins, record.banned_ms is not None)
        if marks == Marks():
            return
        await self._marks.put(
            user, before=marks.before, logins=logins, is_banned=marks.is_banned or None
        )
        log.info("revoking.restored", user=user)
        await self._ender.end(user, marks, "")
