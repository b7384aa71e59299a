"""Token authentication: signature, claims and revocation."""

from __future__ import annotations

from chatserver.auth.access_tokens import Tokens
from chatserver.domain.access.logins import Claims, RevocationMarks, check_marks
from chatserver.domain.ids import UserId
from chatserver.errors import UnknownKey
from chatserver.hot.users.revocations import Revocations
from chatserver.service.access.host_keyring import HostKeyring


class TokenAuthentication:
    def __init__(self, tokens: Tokens, revocations: Revocations, keys: HostKeyring) -> None:
        self._tokens = tokens
        self._revocations = revocations
        self._keys = keys

    def verify(self, token: str) -> Claims:
        """Return the claims of a valid token, without checking for revocation.

        Raises:
            UnknownKey: the token names a key that this process does not have; call `authenticate`,
                which fetches the key.
            Unauthenticated: the token is invalid.
        """
        return self._tokens.verify(token)

    async def authenticate(self, token: str) -> Claims:
        """Return the claims of a token that is valid and not revoked.

        Guarantees:
            Cost: one Redis command. The key set is fetched only for an unknown key, and at most
                once per `JWKS_REFETCH_S`.

        Raises:
            Banned: the user is banned.
            Unauthenticated: the token is invalid or revoked.
            Unavailable: Redis does not respond, so revocation cannot be checked.
        """
        try:
            claims = self._tokens.verify(token)
        except UnknownKey:
            if not await self._keys.check_for_newer():
                raise
            claims = self._tokens.verify(token)
        await self.check(claims)
        return claims

    async def check(self, claims: Claims) -> None:
        """Check that a token is not revoked.

        Raises:
            Banned: the user is banned.
            Unauthenticated: the token is revoked.
            Unavailable: revocation cannot be checked.
        """
        check_marks(claims, await self._revocations.find(claims))

    async def find_marks(self, user: UserId) -> RevocationMarks:
        """Return all of a user's revocation marks. Raises Unavailable."""
        return await self._revocations.find_all(user)
