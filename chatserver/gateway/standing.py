"""What lets a session be: its token, until that ends, is replaced by a newer one, or is revoked."""

from __future__ import annotations

from typing import Protocol

from chatserver.domain.ids import UserId
from chatserver.domain.logins import Claims, Marks, check_marks
from chatserver.errors import Banned, ChatError, ClientError, Forbidden, Unavailable
from chatserver.gateway.desk import Desk
from chatserver.gateway.tokenends import Holder
from chatserver.protocol.codes import Close


class Owner(Holder, Protocol):
    """The session."""

    user: UserId

    def bye(self, code: int, reason: str, retry_after_ms: int | None = None) -> None: ...


def close_code_of(error: ChatError) -> Close:
    """Return how a socket is closed whose token is refused so."""
    return Close.BANNED if isinstance(error, Banned) else Close.UNAUTHENTICATED


class Standing:
    """Of one session, from a good hello to the end."""

    __slots__ = ("_claims", "_desk", "_owner")

    def __init__(self, desk: Desk, owner: Owner, claims: Claims) -> None:
        self._desk = desk
        self._owner = owner
        self._claims = claims
        desk.ends.put(owner, claims.expires_at)

    def over(self) -> None:
        """The session is over: expect nothing of its token any more."""
        self._desk.ends.remove(self._owner, self._claims.expires_at)

    async def look(self) -> None:
        """See whether the token was ended.

        Called once it is known in Redis where the session is: what is ended before that moment is
        seen here, and of what is ended after it the gateway is told.

        Raises:
            Banned, Unauthenticated: it was.
            Unavailable: nobody can tell.
        """
        await self._desk.parts.entrance.check(self._claims)

    async def renew(self, token: str) -> None:
        """Live as long as a newer token of the same user; close the session if that was revoked.

        Raises:
            Unauthenticated, Forbidden: the token does not hold, or is another user's; all is as
                it was.
            Unavailable: nobody can tell now; all is as it was.
        """
        claims = await self._desk.parts.entrance.admit(token)
        if claims.user != self._owner.user:
            raise Forbidden("token: is another user's; open another connection")
        before, self._claims = self._claims, claims
        try:
            # Again, now that whoever ends it finds it here.
            await self.look()
        except Unavailable:
            self._claims = before
            raise
        except ClientError as exc:
            self._claims = before
            self._owner.bye(close_code_of(exc), exc.message)
            return
        self._desk.ends.remove(self._owner, before.expires_at)
        self._desk.ends.put(self._owner, claims.expires_at)

    def judge(self, marks: Marks, reason: str) -> None:
        """Close the session if these marks concern its token."""
        try:
            check_marks(self._claims, marks)
        except ClientError as exc:
            self._owner.bye(close_code_of(exc), reason or exc.message)
