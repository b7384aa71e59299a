"""Request authentication: user tokens, and API keys of the host application.

A revocation mark invalidates tokens of a user: all of them (a ban), those of one login, or those
issued before a given time. Each request is checked against the marks in Redis; DynamoDB has a copy.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from chatserver.container.storage import StorageContainer
from chatserver.domain.access.logins import BANNED
from chatserver.domain.access.principals import Principal
from chatserver.domain.ids import DeviceId, UserId
from chatserver.errors import Banned
from chatserver.service.access.api_keys import ApiKeys
from chatserver.service.access.token_authentication import TokenAuthentication

KEY_PREFIX = "ck_"


class UserStates(Protocol):
    """Checks whether Redis has a user's state."""

    async def is_known(self, user: UserId) -> bool: ...


class Loader(Protocol):
    """Loads a user's token revocations, and then the user's state, into Redis."""

    async def load_user(self, user: UserId) -> None: ...


class Accounts(Protocol):
    """User directory."""

    async def get_user(self, user: str) -> object: ...


class Authentication:
    """The API's implementation of `Authenticator`."""

    def __init__(
        self,
        tokens: TokenAuthentication,
        keys: ApiKeys,
        user_states: UserStates,
        loader: Loader,
        accounts: Accounts,
        admins: Collection[str] = (),
    ) -> None:
        self._tokens = tokens
        self._keys = keys
        self._user_states = user_states
        self._loader = loader
        self._accounts = accounts
        self._admins = frozenset(admins)

    async def authenticate(self, token: str) -> Principal:
        """Return the principal of a token or an API key.

        Guarantees:
            A revoked token is rejected, even if Redis has lost the revocation.

        Raises:
            Unauthenticated: the token or key is not valid.
            Banned: the token's user is banned.
            Unavailable: Redis or DynamoDB does not respond, so the token cannot be checked.
        """
        if token.startswith(KEY_PREFIX):
            row = await self._keys.authenticate(token)
            return Principal("key", None, row.scopes, key=row.key)
        claims = await self._tokens.authenticate(token)
        if not await self._user_states.is_known(claims.user):
            # No account is needed: with a valid token, the first request creates the user.
            await self._loader.load_user(claims.user)
            await self._tokens.check(claims)
        device = None if claims.login is None else DeviceId(claims.login)
        is_admin = claims.user in self._admins
        return Principal(
            "user",
            claims.user,
            device=device,
            issued_at=claims.issued_at,
            is_admin=is_admin,
            is_new_account=claims.is_new_account,
        )

    async def check_acted_for(self, user: UserId) -> None:
        """Check that an API key may act for a user: the user exists and is not banned.

        Guarantees:
            A banned user is rejected, even if Redis has lost the ban.
            Cost: two Redis commands if Redis has the user's state.

        Raises:
            NotFound: the user does not exist.
            Banned: the user is banned.
            Unavailable: Redis or DynamoDB does not respond.
        """
        if not await self._user_states.is_known(user):
            await self._accounts.get_user(user)
            await self._loader.load_user(user)  # this also restores a ban in Redis
        if (await self._tokens.find_marks(user)).is_banned:
            raise Banned(BANNED)


def make_authentication(container: StorageContainer) -> Authentication:
    return Authentication(
        tokens=container.authentication,
        keys=container.api_keys,
        user_states=container.inboxes,
        loader=container.user_loader,
        accounts=container.directory,
        admins=container.settings.auth.admins,
    )
