"""Expiry times of messages, so that expired messages do not count as unread.

Data: ``{pN}:expiring:<chat>`` (zset), message seq → expiry (Unix seconds), for the 500 messages
that expire last. The key is evicted with the chat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from chatserver.domain.ids import ChatId
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.pipelined_connection import Reply

log = structlog.get_logger()

KEPT_MAX: Final = 500


class ExpiringMessages:
    """Records and finds expiring messages."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    def add(self, chat: ChatId, expiries: Mapping[int, int]) -> None:
        """Record when messages expire, without waiting.

        If this fails, the messages count as unread after they expire.

        Guarantees:
            Cost: two commands.
        """
        key = self._hot.keys.expiring(chat)
        pairs = [value for seq, second in expiries.items() for value in (second, seq)]
        self._hot.send(_on_reply, "ZADD", key, *pairs)
        self._hot.send(_on_reply, "ZREMRANGEBYRANK", key, 0, -KEPT_MAX - 1)

    async def list_expired(self, chat: ChatId, now_s: float) -> list[int]:
        """Return the seqs of recorded messages that have expired.

        Raises:
            Unavailable: Redis does not respond.
        """
        key = self._hot.keys.expiring(chat)
        return [int(seq) for seq in await self._hot.call("ZRANGEBYSCORE", key, "-inf", int(now_s))]


def _on_reply(reply: Reply) -> None:
    if isinstance(reply, Exception):
        log.info("expiry.record_failed", error=str(reply))
