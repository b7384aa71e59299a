"""Unread counts of the chat list and of push badges.

Data: ``{pN}:uncounted:<chat>`` has the seqs of the newest 500 entries that never count as unread:
deleted messages, and entries that are not messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.message_change_types import HiddenSeqs
from chatserver.hot.chats.expiring_messages import ExpiringMessages
from chatserver.hot.redis.client import HotClient


class UnreadCounts:
    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._expiring = ExpiringMessages(hot)

    async def count(
        self, chat: ChatId, read: Seq, top: Seq, now_s: float, hidden: HiddenSeqs
    ) -> int:
        """Return how many of the messages after `read`, up to `top`, are unread for a reader.

        Entries that are not messages, deleted and expired messages, and messages that the reader
        has cleared or deleted for themselves (`hidden`) do not count. Redis records only the newest
        500 entries that never count, and the 500 messages with the latest expiry times; all beyond
        these count as unread.
        """
        after = max(read, hidden.upto)
        if top <= after:
            return 0
        excluded = await self._count_exclusions(chat, after, top, now_s, hidden.single)
        return max(0, top - after - excluded)

    async def _count_exclusions(
        self, chat: ChatId, after: int, top: int, now_s: float, hidden: Collection[int]
    ) -> int:
        key = self._hot.keys.uncounted(chat)
        count, expired = await asyncio.gather(
            self._hot.call("ZCOUNT", key, f"({after}", top),
            self._expiring.list_expired(chat, now_s),
        )
        own = [seq for seq in {*hidden, *expired} if after < seq <= top]
        if not own:
            return int(count)
        scores: list[bytes | None] = await self._hot.call("ZMSCORE", key, *own)
        return int(count) + scores.count(None)
