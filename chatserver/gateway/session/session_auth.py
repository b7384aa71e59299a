"""Session authorization: token expiry, renewal and revocation.

The revocation marks of a user (`RevocationMarks`) are the revoked logins, a ban, and the time up to
which tokens without a login are revoked.
"""

from __future__ import annotations

from collections.abc import Callable

from chatserver.domain.access.logins import Claims, RevocationMarks, check_marks
from chatserver.errors import Banned, ChatError, ClientError, Forbidden, Unavailable
from chatserver.protocol.error_codes import Close
from chatserver.service.access.token_authentication import TokenAuthentication


def get_close_code(error: ChatError) -> Close:
    """Return the close code for a refused token."""
    return Close.BANNED if isinstance(error, Banned) else Close.UNAUTHENTICATED


class TokenExpiry:
    """Sessions grouped by the Unix second in which their token expires."""

    def __init__(self) -> None:
        self._expiring: dict[int, set[SessionAuth]] = {}

    def add(self, auth: SessionAuth, expires_at: int) -> None:
        """Track the expiry of a session's token; `expires_at` is in Unix seconds."""
        self._expiring.setdefault(expires_at, set()).add(auth)

    def remove(self, auth: SessionAuth, expires_at: int) -> None:
        """Stop tracking a session; no effect if it is not tracked."""
        sessions = self._expiring.get(expires_at)
        if sessions is not None:
            sessions.discard(auth)
            if not sessions:
                del self._expiring[expires_at]

    def close_expired(self, now: float) -> None:
        for second in [expiry for expiry in self._expiring if expiry <= now]:
            for auth in self._expiring.pop(second):
                auth.close(Close.UNAUTHENTICATED, "the token has expired; log in again")


class SessionAuth:
    """Authorization of one session, from the accepted `hello` to the session's end."""

    __slots__ = ("_authentication", "_claims", "_expiry", "close")

    def __init__(
        self,
        claims: Claims,
        *,
        authentication: TokenAuthentication,
        expiry: TokenExpiry,
        close: Callable[[int, str], None],
    ) -> None:
        self._claims = claims
        self._authentication = authentication
        self._expiry = expiry
        self.close = close  # closes the session
        expiry.add(self, claims.expires_at)

    @property
    def is_new_account(self) -> bool:
        """True if the stricter limits of new accounts apply to the session's account."""
        return self._claims.is_new_account

    def end(self) -> None:
        """Stop tracking the token's expiry when the session ends."""
        self._expiry.remove(self, self._claims.expires_at)

    async def check(self) -> None:
        """Check whether the token has been revoked.

        Call this after registering the session in Redis: from then on, revocations are sent to this
        gateway.

        Raises:
            Banned, Unauthenticated: the token has been revoked.
            Unavailable: the revocations cannot be read.
        """
        await self._authentication.check(self._claims)

    async def renew(self, token: str) -> None:
        """Replace the session's token with `token`; close the session if `token` is revoked.

        If this raises, the session is unchanged.

        Raises:
            Unauthenticated, Forbidden: the token is invalid, or belongs to another user.
            Unavailable: the token cannot be verified now.
        """
        claims = await self._authentication.authenticate(token)
        before = self._claims
        if claims.user != before.user:
            raise Forbidden("token: belongs to another user; open another connection")
        self._claims = claims
        try:
            # Later revocations of the new token close the session; check for earlier ones.
            await self.check()
        except Unavailable:
            self._claims = before
            raise
        except ClientError as exc:
            self._claims = before
            self.close(get_close_code(exc), exc.public_message)
            return
        self._expiry.remove(self, before.expires_at)
        self._expiry.add(self, claims.expires_at)

    def apply_revocation(self, marks: RevocationMarks, reason: str) -> None:
        """Close the session if `marks` revoke its token."""
        try:
            check_marks(self._claims, marks)
        except ClientError as exc:
            self.close(get_close_code(exc), reason or exc.public_message)
