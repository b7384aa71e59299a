"""Answered direct chats of a user: the other user has written at least one message.

Data: field ``s:<user>`` of ``{pN}:chat:<chat>`` is the seq of the user's newest message. The commit
writes it. Loading a chat restores it for the senders of the newest messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection

import attrs

from chatserver.domain.ids import ChatId, UserId, direct_chat_id
from chatserver.errors import NotFound
from chatserver.hot.redis.client import HotClient

_ATTEMPTS_MAX = 2

FindExisting = Callable[[Collection[ChatId]], Awaitable[Collection[ChatId]]]


@attrs.define(eq=False, repr=False)
class AnsweredDirectChats:
    """Finds a user's answered direct chats.

    `open_chat` loads a chat into Redis, or raises NotFound. `find_existing` returns which of the
    given chats exist.
    """

    _hot: HotClient
    _open_chat: Callable[[ChatId], Awaitable[object]]
    _find_existing: FindExisting | None = None

    async def find_answered(self, user: UserId, others: Collection[UserId]) -> set[UserId]:
        """Return the users among `others` who have written to `user` in their direct chat.

        Guarantees:
            Cost: one pipelined Redis call per user; chats that are not in Redis are loaded.
        """
        chats = {other: direct_chat_id(user, other) for other in others}
        for _ in range(_ATTEMPTS_MAX):
            has_answered = await asyncio.gather(
                *(self._has_written(chats[chat_id], chat_id) for chat_id in chats)
            )
            results = dict(zip(chats, has_answered, strict=True))
            closed = [chats[other] for other, has_written in results.items() if has_written is None]
            if not closed or not await self._load(closed):
                break
        return {other for other, has_written in results.items() if has_written}

    async def _has_written(self, chat: ChatId, other: UserId) -> bool | None:
        """Return whether `other` has written in the chat; None if the chat is not loaded."""
        key = self._hot.keys.chat(chat)
        gate, seq = await self._hot.call("HMGET", key, "gate", f"s:{other}")
        return seq is not None if self._hot.is_loaded(chat, gate) else None

    async def _load(self, chats: Collection[ChatId]) -> bool:
        if self._find_existing is not None:
            chats = await self._find_existing(chats)

        async def load(chat: ChatId) -> None:
            with contextlib.suppress(NotFound):
                await self._open_chat(chat)

        await asyncio.gather(*map(load, chats))
        return bool(chats)
