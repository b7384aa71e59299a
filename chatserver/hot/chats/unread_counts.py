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
        """Return how many of the messages after `read`, up to `top`, are unread for a reader.

        Entries that are not messages, deleted and expired messages, and messages that the reader
        has cleared or deleted for themselves (`hidden`) do not count. Redis records only the newest
        500 entries that never count, and the 500 messages with the latest expiry times; all beyond
        these count as unread.

        Guarantees:
            Cost: one Redis call, or two if messages are hidden or have expired. If the chat was
                evicted from Redis, it is loaded first.

        Raises:
            NotFound: the chat does not exist.
            Unavailable: Redis does not respond; or it does not have the chat, and the warm tier
                does not respond.
        """
        after = max(read, hidden.upto)
        if top <= after:
            return 0
        keys = self._hot.keys
        uncounted = keys.uncounted(chat)
        excluded: int
        excluded, expired = await self._read_loaded(
            chat,
            ("ZCOUNT", uncounted, f"({after}", top),
            ("ZRANGEBYSCORE", keys.expiring(chat), "-inf", int(now_s)),
        )
        own = [seq for seq in {*hidden.single, *map(int, expired)} if after < seq <= top]
        if own:
            (scores,) = await self._read_loaded(chat, ("ZMSCORE", uncounted, *own))
            excluded += scores.count(None)
        return max(0, top - after - excluded)

    async def _read_loaded(self, chat: ChatId, *calls: tuple[Value, ...]) -> list[Any]:
        """Run read-only calls on the keys of a chat that is in Redis."""
        for _ in range(_TRIES_MAX):
            gate, *replies = await self._hot.snapshot(
                ("HGET", self._hot.keys.chat(chat), "gate"), *calls
            )
            if self._hot.is_loaded(chat, gate):
                return replies
            await self._load_chat(chat)
        raise Unavailable(f"chat {chat}: Redis lost it while it was read; try again")
