"""Eviction of idle chats from the hot tier; the next access loads them again.

Data: ``{pN}:idle`` (sorted set), chat → time of the last recorded activity (s). Activity is
recorded when a chat is loaded and when its entries are persisted. After `redis.chat_idle_s`, or
after `PRESSURE_IDLE_S` while Redis is short of memory (`ServerHealth.is_under_memory_pressure`),
the chat's hash, members, log and overlay are deleted, unless the chat is in use. Of the hash, the
refs of the last day stay until they expire; a chat with thousands of them is kept. The chat's
fields in the user states and its inbox entries stay: a device that was offline reads those messages
from the warm tier (`chatserver.service.history.sync`).
"""

from __future__ import annotations

from collections.abc import Iterable

from chatserver.domain.ids import ChatId
from chatserver.domain.messages import REF_TTL_S
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script

CHATS_MAX = 100  # maximum chats removed per call
PRESSURE_IDLE_S = 60


class Eviction:
    """Records chat activity, and evicts idle chats."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def record_active(self, partition: int, chats: Iterable[ChatId], now_s: float) -> None:
        """Record activity in a partition's chats."""
        names = [value for chat in chats for value in (int(now_s), chat)]
        if names:
            await self._hot.write("ZADD", self._hot.keys.idle(partition), *names)

    async def evict_idle(self, partition: int, now_s: float) -> int:
        """Evict the partition's longest-idle chats; return the number evicted.

        Guarantees:
            Atomic per chat: a chat that is in use or not completely persisted is not changed.
            Cost: two calls for at most `CHATS_MAX` chats; one call if none is idle.
        """
        keys, idle_s = self._hot.keys, self._hot.settings.chat_idle_s
        if self._hot.health.is_under_memory_pressure:
            idle_s = min(idle_s, PRESSURE_IDLE_S)
        names: list[bytes] = await self._hot.call(
            "ZRANGEBYSCORE", keys.idle(partition), "-inf", int(now_s) - idle_s,
            "LIMIT", 0, CHATS_MAX,
        )  # fmt: skip
        if not names:
            return 0
        chats = [ChatId(name.decode()) for name in names]
        script = load_script("evict_chats")
        evicted: int = await self._hot.run(
            script,
            keys.of(partition, *script.keys),
            {"idle_s": idle_s, "ref_ttl_s": REF_TTL_S},
            [keys.of(chat, *script.item_keys) | {"chat_id": chat} for chat in chats],
        )
        return evicted
