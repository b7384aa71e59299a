"""Who holds what a request shows: a person's token, or an API key of the host application."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from chatserver.domain.ids import DeviceId, UserId
from chatserver.domain.logins import BANNED
from chatserver.domain.principals import Principal
from chatserver.errors import Banned
from chatserver.service.apikeys import ApiKeys
from chatserver.service.entrance import Entrance

KEY_PREFIX = "ck_"


class Boxes(Protocol):
    """Tells whether a user was filled in, in the present Redis."""

    async def is_known(self, user: UserId) -> bool: ...


class Loader(Protocol):
    """Fills a user in, marks of what was revoked first."""

    async def load_user(self, user: UserId) -> None: ...


class Accounts(Protocol):
    """The directory of users."""

    async def get_user(self, user: str) -> object: ...


class Authentication:
    """The API's `Authenticator`."""

    def __init__(
        self,
        entrance: Entrance,
        keys: ApiKeys,
        boxes: Boxes,
        loader: Loader,
        accounts: Accounts,
        admins: Collection[str] = (),
    ) -> None:
        self._entrance = entrance
        self._keys = keys
        self._boxes = boxes
        self._loader = loader
        self._accounts = accounts
        self._admins = frozenset(admins)

    async def authenticate(self, token: str) -> Principal:
        """Return who shows a token or a key.

        Guarantees:
            A token that was revoked is refused, by a Redis that lost its marks, too.

        Raises:
            Unauthenticated: it does not hold.
            Banned: its user is banned.
            Unavailable: a store does not answer, so nobody can tell.
        """
        if token.startswith(KEY_PREFIX):
            row = await self._keys.authenticate(token)
            return Principal("key", None, row.scopes, key=row.key)
        claims = await self._entrance.admit(token)
        if not await self._boxes.is_known(claims.user):
            # The token has vouched for the name, so first sight makes the account.
            await self._loader.load_user(claims.user)
            await self._entrance.check(claims)
        device = None if claims.login is None else DeviceId(claims.login)
        is_admin = claims.user in self._admins
        return Principal(
            "user", claims.user, device=device, issued_at=claims.issued_at, is_admin=is_admin
        )

    async def check_acted_for(self, user: UserId) -> None:
        """Check that an API key may act for a user: a ban holds for every way in.

        Guarantees:
            A Redis that lost its marks lets no banned user through.
            Cost: two Redis commands for a user who is loaded there.

        Raises:
            NotFound: there is no such user.
            Banned: the user is banned.
            Unavailable: a store does not answer.
        """
        if not await self._boxes.is_known(user):
            await self._accounts.get_user(user)
            await self._loader.load_user(user)  # which restores the marks first
        if (await self._entrance.find_marks(user)).is_banned:
            raise Banned(BANNED)
