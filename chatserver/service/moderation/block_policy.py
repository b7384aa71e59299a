"""Block policy: checks whether one of two users blocks the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.moderation import BLOCKS_MAX
from chatserver.errors import Forbidden


class Rows(Protocol):
    """Blocks in the directory."""

    async def find_blocked(self, user: str, others: list[str]) -> set[str]: ...

    async def list_between(self, user: str, other: str) -> list[str]: ...

    async def list_blocks(self, user: str, after: str | None, limit: int) -> Sequence[Any]: ...

    async def list_blockers(self, user: str) -> list[str]: ...

    async def mark_chat(self, chat: str, blocker: str, *, is_blocked: bool) -> bool: ...


class HotBlocks(Protocol):
    """Blocks in Redis."""

    async def open_blocks(self, user: UserId, others: Collection[UserId]) -> None: ...


class BlockPolicy:
    """The block policy."""

    def __init__(self, rows: Rows, hot: HotBlocks) -> None:
        self._rows = rows
        self._hot = hot

    async def restore(self, user: UserId) -> None:
        """Restore a user's blocks in Redis from the directory. Idempotent."""
        mine = await self._rows.list_blocks(user, None, BLOCKS_MAX)
        others = {UserId(each.user) for each in mine}
        others.update(UserId(name) for name in await self._rows.list_blockers(user))
        await self._hot.open_blocks(user, others)

    async def require_together(self, user: UserId, others: Collection[UserId]) -> None:
        """Check that no block exists between a user and `others`.

        Raises:
            Forbidden: the message names the other user, but not the direction of the block.
        """
        apart = await self._rows.find_blocked(user, list(others))
        if apart:
            raise Forbidden(f"{min(apart)}: you and this user cannot be brought together")

    async def is_apart(self, user: UserId, other: UserId) -> bool:
        """Return whether one of the two blocks the other."""
        return bool(await self._rows.find_blocked(user, [other]))

    async def mark_new_chat(self, chat: ChatId, user: UserId, other: UserId) -> None:
        """Record blocks in a new direct chat that were made while it was created."""
        for blocker in await self._rows.list_between(user, other):
            await self._rows.mark_chat(chat, blocker, is_blocked=True)
