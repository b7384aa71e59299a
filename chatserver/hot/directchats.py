"""Direct chats that were answered: who of a user's contacts has written to them.

Data: field ``s:<user>`` of ``{pN}:chat:<chat>``, the seq of the user's newest message, which the
commit writes. A chat that is loaded again has it of those who wrote among its newest messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from chatserver.domain.ids import ChatId, UserId, direct_chat_id
from chatserver.errors import NotFound
from chatserver.hot.client import HotClient

_LOOKS = 2


class DirectChats:
    """Reads direct chats. `open_chat` loads one into Redis; it raises NotFound."""

    def __init__(self, hot: HotClient, open_chat: Callable[[ChatId], Awaitable[object]]) -> None:
        self._hot = hot
        self._open_chat = open_chat

    async def find_answered(self, user: UserId, others: Collection[UserId]) -> set[UserId]:
        """Return those of `others` who have written to `user` in their direct chat.

        Guarantees:
            Cost: one Redis call for each, pipelined; a load for each chat that is not open.
        """
        found = await asyncio.gather(*(self._has_written(user, other) for other in others))
        return {other for other, has_written in zip(others, found, strict=True) if has_written}

    async def _has_written(self, user: UserId, other: UserId) -> bool:
        chat, keys = direct_chat_id(user, other), self._hot.keys
        for _ in range(_LOOKS):
            gate, seq = await self._hot.call("HMGET", keys.chat(chat), "gate", f"s:{other}")
            epoch = self._hot.epoch_of(keys.partition_of(chat))
            if (gate or b"").startswith(f"{epoch}:".encode()):
                return seq is not None
            try:
                await self._open_chat(chat)
            except NotFound:
                return False
        return False
