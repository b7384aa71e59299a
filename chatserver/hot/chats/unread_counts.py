"""Unread counts of the chat list and of push badges.

Data: ``{pN}:uncounted:<chat>`` has the seqs of the newest 500 entries that never count as unread:
deleted messages, and entries that are not messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.message_change_types import HiddenSeqs
from chatserver.errors import Unavailable
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import Value

_TRIES_MAX: Final = 3


class UnreadCounts:
    """Counts unread messages. `load_chat` loads a chat into Redis."""

    def __init__(self, hot: HotClient, load_chat: Callable[[ChatId], Awaitable[object]]) -> None:
        self._hot = hot
        self._load_chat = load_chat

    async def count(
        self, chat: ChatId, read: Seq, top: Seq, now_s: float, hidden: HiddenSeqs
    ) -> int:
        """Return `count_loaded`; load the chat if Redis does not have it.

        Raises:
            NotFound: the chat does not exist.
            Unavailable: Redis does not respond; or it does not have the chat, and the warm tier
                does not respond.
        """
        for _ in range(_TRIES_MAX):
            count = await self.count_loaded(chat, read, top, now_s, hidden)
            if count is not None:
                return count
            await self._load_chat(chat)
        raise Unavailable(f"chat {chat}: Redis lost it while it was read; try again")

    async def count_loaded(
        self, chat: ChatId, read: Seq, top: Seq, now_s: float, hidden: HiddenSeqs
    ) -> int | None:
        """Return how many of the messages after `read`, up to `top`, are unread for a reader.

        None: Redis does not have the chat. Entries that are not messages, deleted and expired
        messages, and messages that the reader has cleared or deleted for themselves (`hidden`) do
        not count. Redis records only the newest 500 entries that never count, and the 500 messages
        with the latest expiry times; all beyond these count as unread.

        Guarantees:
            Cost: one Redis call, or two if messages are hidden or have expired.
        """
        after = max(read, hidden.upto)
        if top <= after:
            return 0
        keys = self._hot.keys
        uncounted = keys.uncounted(chat)
        found = await self._read_loaded(
            chat,
            ("ZCOUNT", uncounted, f"({after}", top),
            ("ZRANGEBYSCORE", keys.expiring(chat), "-inf", int(now_s)),
        )
        if found is None:
            return None
        excluded, expired = found
        own = [seq for seq in {*hidden.single, *map(int, expired)} if after < seq <= top]
        if own:
            scores = await self._read_loaded(chat, ("ZMSCORE", uncounted, *own))
            if scores is None:
                return None
            excluded += scores[0].count(None)
        return max(0, top - after - int(excluded))

    async def _read_loaded(self, chat: ChatId, *calls: tuple[Value, ...]) -> list[Any] | None:
        """Run read-only calls on the keys of a chat; return None if Redis does not have it."""
        gate, *replies = await self._hot.snapshot(
            ("HGET", self._hot.keys.chat(chat), "gate"), *calls
        )
        return replies if self._hot.is_loaded(chat, gate) else None
