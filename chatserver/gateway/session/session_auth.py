"""Session authorization: token expiry, renewal and revocation."""

from __future__ import annotations

from typing import Protocol

from chatserver.domain.access.logins import Claims, Marks, check_marks
from chatserver.domain.ids import UserId
from chatserver.errors import Banned, ChatError, ClientError, Forbidden, Unavailable
from chatserver.gateway.session.session_context import SessionContext
from chatserver.gateway.session.token_expiry import Holder
from chatserver.protocol.codes import Close


class Owner(Holder, Protocol):
    """The authorized session."""

    user: UserId

    def bye(self, code: int, reason: str, retry_after_ms: int | None = None) -> None: ...


def close_code_of(error: ChatError) -> Close:
    """Return the close code for a refused token."""
    return Close.BANNED if isinstance(error, Banned) else Close.UNAUTHENTICATED


class SessionAuth:
    """Authorization of one session, from the accepted hello to its end."""

    __slots__ = ("_claims", "_desk", "_owner")

    def __init__(self, desk: SessionContext, owner: Owner, claims: Claims) -> None:
        self._desk = desk
        self._owner = owner
        self._claims = claims
        desk.ends.put(owner, claims.expires_at)

    def over(self) -> None:
        """Stop tracking the token's expiry when the session ends."""
        self._desk.ends.remove(self._owner, self._claims.expires_at)

    async def look(self) -> None:
        """Check whether the token was revoked.

        Called once the session is registered in Redis. This check finds earlier revocations; later
        ones are sent to the gateway.

        Raises:
            Banned, Unauthenticated: the token was revoked.
            Unavailable: the state of the token cannot be read.
        """
        await self._desk.parts.entrance.check(self._claims)

    async def renew(self, token: str) -> None:
        """Replace the token with a newer one of the same user; close the session if it is revoked.

        Raises:
            Unauthenticated, Forbidden: the token is invalid, or belongs to another user; the
                session is unchanged.
            Unavailable: the token cannot be verified now; the session is unchanged.
        """
        claims = await self._desk.parts.entrance.authenticate(token)
        if claims.user != self._owner.user:
            raise Forbidden("token: is another user's; open another connection")
        before, self._claims = self._claims, claims
        try:
            # Check again, now that a revocation of the new token reaches this session.
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
        """Close the session if these revocation marks cover its token."""
        try:
            check_marks(self._claims, marks)
        except ClientError as exc:
            self._owner.bye(close_code_of(exc), reason or exc.message)
