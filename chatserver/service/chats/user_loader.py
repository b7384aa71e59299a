"""Loading of users who call the HTTP API without a session."""

from __future__ import annotations

from typing import Any, Protocol

from chatserver.domain.ids import UserId


class Boxes(Protocol):
    """User states in Redis."""

    async def is_known(self, user: UserId) -> bool: ...


class Loader(Protocol):
    """Loads user states from the directory."""

    async def load_user(self, user: UserId) -> None: ...


class Accounts(Protocol):
    """Accounts in the directory."""

    async def get_user(self, user: str) -> Any: ...


class UserLoader:
    """Loads users on demand. For a session, `hello` does the same."""

    def __init__(self, boxes: Boxes, loader: Loader, accounts: Accounts) -> None:
        self._boxes = boxes
        self._loader = loader
        self._accounts = accounts

    async def ensure(self, user: UserId, *, is_vouched: bool) -> None:
        """Ensure that the user exists and that the user state is loaded.

        `is_vouched`: a token proves the name, so the first call creates the user.

        Guarantees:
            Idempotent.
            Cost: one Redis call for a loaded user.

        Raises:
            NotFound: there is no such user, and no token proves the name.
            Unavailable: a store does not respond.
        """
        if await self._boxes.is_known(user):
            return
        if not is_vouched:
            await self._accounts.get_user(user)
        await self._loader.load_user(user)
