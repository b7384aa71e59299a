"""What a token says, and what makes it worthless before its time. No I/O.

A login is one log in with a password: one device, one chain of refresh tokens, named by an id. The
access tokens made for it carry that id. Tokens of the host application belong to no login.

Marks are what has been ended, per user: all tokens without a login that were issued up to a moment,
single logins, and the user himself, who is banned. They are kept for as long as a token lives.
"""

from __future__ import annotations

import dataclasses

from chatserver.domain.ids import UserId
from chatserver.errors import Banned, Unauthenticated

ENDED = "token: this login was ended: log in again"
BANNED = "this user is banned"


@dataclasses.dataclass(frozen=True, slots=True)
class Claims:
    """What a token that holds says. `login` is None where it belongs to none."""

    user: UserId
    expires_at: int  # seconds since 1970
    jti: str
    issued_at: int = dataclasses.field(default=0, compare=False)
    login: str | None = None
    is_from_host: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Marks:
    """What of a user has been ended; see the module.

    `before`: seconds since 1970. A token of that very second is taken for one of before: a clock
    of whole seconds cannot tell, and who logs in again gets a token of the next one.
    """

    before: int = 0
    logins: frozenset[str] = frozenset()
    is_banned: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Login:
    """A device that logged in. `expires_at` (s) is when it ends if it is not used.

    `generation` is the number of its newest refresh token, made at `rotated_ms`; `seed` what its
    refresh tokens are made with, gone when it was ended.
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
        """Tell whether it still lets anybody in."""
        return self.ended_ms is None and self.expires_at > now


def check_marks(claims: Claims, marks: Marks) -> None:
    """Let a token pass that nothing has ended.

    Raises:
        Banned: its user is banned.
        Unauthenticated: its login, or all that was issued when it was, has been ended.
    """
    if marks.is_banned:
        raise Banned(BANNED)
    if claims.login is not None:
        if claims.login in marks.logins:
            raise Unauthenticated(ENDED)
    elif claims.issued_at <= marks.before:
        raise Unauthenticated(ENDED)
