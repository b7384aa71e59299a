"""Block policy: checks whether one of two users has blocked the other.

Used for new chats, invitations, the user search and the social graph. Messages of blocked users are
refused at the commit (`chatserver.domain.write_restrictions`).
"""

from __future__ import annotations

from collections.abc import Collection

from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import Forbidden
from chatserver.warm.chats.moderation import Moderation as ModerationRows


class BlockPolicy:
    """Block policy, based on the blocks in the `directory` table."""

    def __init__(self, rows: ModerationRows) -> None:
        self._rows = rows

    async def require_unblocked(self, user: UserId, others: Collection[UserId]) -> None:
        """Check that there is no block between `user` and any of `others`.

        Raises:
            Forbidden: there is a block. The error names the other user, but not who blocked whom.
        """
        blocked = await self._rows.find_blocked(user, list(others))
        if blocked:
            raise Forbidden(f"{min(blocked)}: you cannot interact with this user")

    async def find_blocked(self, user: UserId, others: Collection[UserId]) -> set[str]:
        """Return the users among `others` who have blocked `user` or whom `user` has blocked."""
        return await self._rows.find_blocked(user, list(others))

    async def is_blocked(self, user: UserId, other: UserId) -> bool:
        """Return whether one of the two users has blocked the other."""
        return bool(await self._rows.find_blocked(user, [other]))

    async def mark_new_chat(self, chat: ChatId, user: UserId, other: UserId) -> None:
        """Apply the blocks between two users to their new direct chat."""
        for blocker in await self._rows.list_between(user, other):
            await self._rows.mark_chat(chat, blocker, is_blocked=True)
