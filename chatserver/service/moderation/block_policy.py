"""Block policy: checks whether one of two users blocks the other."""

from __future__ import annotations

from collections.abc import Collection

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.moderation import BLOCKS_MAX
from chatserver.errors import Forbidden
from chatserver.hot.users.blocks import Blocks
from chatserver.warm.chats.moderation import Moderation as ModerationRows


class BlockPolicy:
    """Block policy, by the blocks in the directory."""

    def __init__(self, rows: ModerationRows, hot: Blocks) -> None:
        self._rows = rows
        self._hot = hot

    async def restore(self, user: UserId) -> None:
        """Restore a user's blocks in Redis from the directory. Idempotent."""
        blocks = await self._rows.list_blocks(user, None, BLOCKS_MAX)
        others = {UserId(block.user) for block in blocks}
        others.update(UserId(name) for name in await self._rows.list_blockers(user))
        await self._hot.open_blocks(user, others)

    async def require_unblocked(self, user: UserId, others: Collection[UserId]) -> None:
        """Check that no block exists between a user and `others`.

        Raises:
            Forbidden: the message names the other user, but not the direction of the block.
        """
        blocked = await self._rows.find_blocked(user, list(others))
        if blocked:
            raise Forbidden(f"{min(blocked)}: you cannot interact with this user")

    async def find_blocked(self, user: UserId, others: Collection[UserId]) -> set[str]:
        """Return those of `others` who block a user or are blocked by them."""
        return await self._rows.find_blocked(user, list(others))

    async def is_blocked(self, user: UserId, other: UserId) -> bool:
        """Return whether one of the two users blocks the other."""
        return bool(await self._rows.find_blocked(user, [other]))

    async def mark_new_chat(self, chat: ChatId, user: UserId, other: UserId) -> None:
        """Record blocks in a new direct chat that were made while it was created."""
        for blocker in await self._rows.list_between(user, other):
            await self._rows.mark_chat(chat, blocker, is_blocked=True)
