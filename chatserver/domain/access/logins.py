"""Logins, token claims and revocation marks. No I/O.

A login is one sign-in with a password on one device. Its refresh tokens and access tokens contain
its id. Tokens issued by the host application belong to no login.

Revocation marks are stored per user: the ids of revoked logins, a ban, and a time. Tokens without a
login that were issued at that time or earlier are revoked. The marks are kept for the lifetime of a
token.
"""

from __future__ import annotations

import dataclasses

from chatserver.domain.ids import UserId
from chatserver.errors import Banned, Unauthenticated

ENDED = "token: this login has ended; log in again"
BANNED = "this user is banned"
# An account is new for this time. New accounts of one network share a budget of Redis memory
# (`chatserver.hot.users.token_buckets`).
NEW_ACCOUNT_S = 7 * 86_400


@dataclasses.dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a valid token. `login` is None if the token belongs to no login.

    `is_new_account`: the account has stricter limits (`chatserver.hot.users.token_buckets`).
    """

    user: UserId
    expires_at: int  # seconds since 1970
    jti: str
    issued_at: int = dataclasses.field(default=0, compare=False)
    login: str | None = None
    is_from_host: bool = False
    is_new_account: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class RevocationMarks:
    """The revocation marks of a user; see the module docstring.

    `before` (seconds since 1970) revokes all tokens without a login that were issued at that time
    or earlier.
    """

    before: int = 0
    logins: frozenset[str] = frozenset()
    is_banned: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Login:
    """A device that logged in. If unused, the login expires at `expires_at` (seconds since 1970).

    `generation` is the number of its newest refresh token, created at `rotated_ms`. Refresh tokens
    are derived from `seed`, which is deleted when the login ends.
    """

    user: str
    login: str
    name: str | None
    created_ms: int
    seen_ms: int
    seed: str
    expires_at: int
    generation: int = 1
    rotated_ms: int = 0
    ended_ms: int | None = None

    def is_live(self, now: float) -> bool:
        return self.ended_ms is None and self.expires_at > now


def check_marks(claims: Claims, marks: RevocationMarks) -> None:
    """Check that a token is not revoked.

    Raises:
        Banned: the user is banned.
        Unauthenticated: the token or its login is revoked.
    """
    if marks.is_banned:
        raise Banned(BANNED)
    if claims.login is not None:
        if claims.login in marks.logins:
            raise Unauthenticated(ENDED)
    elif claims.issued_at <= marks.before:
        raise Unauthenticated(ENDED)
