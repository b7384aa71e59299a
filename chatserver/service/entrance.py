"""Who may come in with a token: its signature and claims, and whether it was ended since."""

from __future__ import annotations

from typing import Protocol

from chatserver.domain.ids import UserId
from chatserver.domain.logins import Claims, Marks, check_marks
from chatserver.errors import UnknownKey


class AnyTokens(Protocol):
    """Checks tokens."""

    def verify(self, token: str) -> Claims: ...


class MarksShape(Protocol):
    """What was ended, in the hot tier."""

    async def find(self, claims: Claims) -> Marks: ...

    async def find_all(self, user: UserId) -> Marks: ...


class Keys(Protocol):
    """The keys of the host application, where they are fetched."""

    async def refetch(self) -> bool: ...


class Entrance:
    """The door of one process."""

    def __init__(self, tokens: AnyTokens, marks: MarksShape, keys: Keys) -> None:
        self._tokens = tokens
        self._marks = marks
        self._keys = keys

    def verify(self, token: str) -> Claims:
        """Return what a token says, if it holds, without looking whether it was ended.

        Raises:
            UnknownKey: it names a key that is not known here; `admit` asks for it.
            Unauthenticated: it does not hold.
        """
        return self._tokens.verify(token)

    async def admit(self, token: str) -> Claims:
        """Return what a token says, if it holds and has not been ended.

        Guarantees:
            Cost: one Redis command; a key set is asked for only when a key is new, and then at most
            once in `auth.jwks_refetch_s`.

        Raises:
            Banned, Unauthenticated: it does not.
            Unavailable: nobody can tell: Redis does not answer.
        """
        try:
            claims = self._tokens.verify(token)
        except UnknownKey:
            if not await self._keys.refetch():
                raise
            claims = self._tokens.verify(token)
        await self.check(claims)
        return claims

    async def check(self, claims: Claims) -> None:
        """Let a token pass that has not been ended, as of now.

        Raises:
            Banned, Unauthenticated: it has.
            Unavailable: nobody can tell.
        """
        check_marks(claims, await self._marks.find(claims))

    async def find_marks(self, user: UserId) -> Marks:
        """Return all that has been ended of a user. Raises Unavailable."""
        return await self._marks.find_all(user)
