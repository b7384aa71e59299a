"""Users who come without a session: their boxes have to be filled before they are read."""

from __future__ import annotations

from typing import Any, Protocol

from chatserver.domain.ids import UserId


class Boxes(Protocol):
    """Users' boxes."""

    async def is_known(self, user: UserId) -> bool: ...


class Loader(Protocol):
    """Fills boxes from the directory."""

    async def load_user(self, user: UserId) -> None: ...


class Accounts(Protocol):
    """Who exists."""

    async def get_user(self, user: str) -> Any: ...


class Arrivals:
    """The use case; for a session, `hello` does the same."""

    def __init__(self, boxes: Boxes, loader: Loader, accounts: Accounts) -> None:
        self._boxes = boxes
        self._loader = loader
        self._accounts = accounts

    async def ensure(self, user: UserId, *, is_vouched: bool) -> None:
        """See that the user exists and that the box is filled.

        `is_vouched`: a token has vouched for the name, so first sight creates the user.

        Guarantees:
            Idempotent.
            Cost: one Redis call for a user who is known.

        Raises:
            NotFound: there is no such user, and nobody vouches for the name.
            Unavailable: a store does not answer.
        """
        if await self._boxes.is_known(user):
            return
        if not is_vouched:
            await self._accounts.get_user(user)
        await self._loader.load_user(user)
