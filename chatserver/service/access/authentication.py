"""Token authentication: signature, claims and revocation."""

from __future__ import annotations

from typing import Protocol

from chatserver.domain.access.logins import Claims, Marks, check_marks
from chatserver.domain.ids import UserId
from chatserver.errors import UnknownKey


class AnyTokens(Protocol):
    """Verifies tokens."""

    def verify(self, token: str) -> Claims: ...


class MarksShape(Protocol):
    """Revocations in the hot tier."""

    async def find(self, claims: Claims) -> Marks: ...

    async def find_all(self, user: UserId) -> Marks: ...


class Keys(Protocol):
    """Signing keys of the host application, where they are fetched from a URL."""

    async def refetch(self) -> bool: ...


class TokenAuthentication:
    """Token authentication of one process."""

    def __init__(self, tokens: AnyTokens, marks: MarksShape, keys: Keys) -> None:
        self._tokens = tokens
        self._marks = marks
        self._keys = keys

    def verify(self, token: str) -> Claims:
        """Return the claims of a valid token, without checking whether it was revoked.

        Raises:
            UnknownKey: the token names a key that is not known here; `admit` fetches it.
            Unauthenticated: the token is invalid.
        """
        return self._tokens.verify(token)

    async def admit(self, token: str) -> Claims:
        """Return the claims of a token that is valid and not revoked.

        Guarantees:
            Cost: one Redis command. The key set is fetched only for an unknown key, and then at
            most once per `JWKS_REFETCH_S`.

        Raises:
            Banned, Unauthenticated: the token is invalid or revoked.
            Unavailable: Redis does not respond, so revocation cannot be checked.
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
        """Check that a token is not revoked at this moment.

        Raises:
            Banned, Unauthenticated: the token is revoked.
            Unavailable: revocation cannot be checked.
        """
        check_marks(claims, await self._marks.find(claims))

    async def find_marks(self, user: UserId) -> Marks:
        """Return all revocations of a user. Raises Unavailable."""
        return await self._marks.find_all(user)
