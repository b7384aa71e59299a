"""Blocks between users, stored for both of them; used for presence, typing and read marks.

Data: ``{pN}:blocks:<user>`` (set), loaded from the `directory` table with the user state. Messages
use the chat's write policy instead.
"""

from __future__ import annotations

from collections.abc import Collection

from chatserver.domain.ids import UserId
from chatserver.hot.redis.client import HotClient

_ADDED_MAX = 1_000  # maximum users per SADD


class HotBlocks:
    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def list_blocked(self, user: UserId) -> set[UserId]:
        """Return the users who block this user or are blocked by this user."""
        reply = await self._hot.call("SMEMBERS", self._hot.keys.blocks(user))
        return {UserId(name.decode()) for name in reply}

    async def open_blocks(self, user: UserId, others: Collection[UserId]) -> None:
        """Add blocks that were loaded from the `directory` table."""
        names, key = list(others), self._hot.keys.blocks(user)
        for start in range(0, len(names), _ADDED_MAX):
            await self._hot.write("SADD", key, *names[start : start + _ADDED_MAX])

    async def add(self, user: UserId, other: UserId) -> None:
        """Record that one of the two users blocks the other one."""
        await self._hot.write("SADD", self._hot.keys.blocks(user), other)
        await self._hot.write("SADD", self._hot.keys.blocks(other), user)

    async def remove(self, user: UserId, other: UserId) -> None:
        """Record that neither of the two users blocks the other."""
        await self._hot.call("SREM", self._hot.keys.blocks(user), other)
        await self._hot.call("SREM", self._hot.keys.blocks(other), user)
