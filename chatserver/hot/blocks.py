"""Who blocks whom, either way, as far as presence, typing and read marks have to know.

Data: ``{pN}:blocks:<user>`` (set), filled from the directory with the user's box. Messages do not
look here: the chat's own gate says whether its two users may write to each other.
"""

from __future__ import annotations

from collections.abc import Collection

from chatserver.domain.ids import UserId
from chatserver.hot.client import HotClient

_ADDED_MAX = 1_000  # in one command


class Blocks:
    """Reads and writes the sets."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def list_apart(self, user: UserId) -> set[UserId]:
        """Return whom a user is apart from: who blocks him, or whom he blocks."""
        reply = await self._hot.call("SMEMBERS", self._hot.keys.blocks(user))
        return {UserId(name.decode()) for name in reply}

    async def open_blocks(self, user: UserId, others: Collection[UserId]) -> None:
        """Fill in what the directory has."""
        names, key = list(others), self._hot.keys.blocks(user)
        for at in range(0, len(names), _ADDED_MAX):
            await self._hot.write("SADD", key, *names[at : at + _ADDED_MAX])

    async def part(self, user: UserId, other: UserId) -> None:
        """Note that one of the two blocks the other."""
        await self._hot.write("SADD", self._hot.keys.blocks(user), other)
        await self._hot.write("SADD", self._hot.keys.blocks(other), user)

    async def join(self, user: UserId, other: UserId) -> None:
        """Note that neither of the two blocks the other any more."""
        await self._hot.call("SREM", self._hot.keys.blocks(user), other)
        await self._hot.call("SREM", self._hot.keys.blocks(other), user)
