"""Waits for new entries in a stream."""

from __future__ import annotations

from typing import Any, Final

import redis.asyncio
import redis.exceptions

from chatserver.errors import REDIS_DOWN, Unavailable
from chatserver.hot.redis.client import HotClient

FIRST: Final = "0-0"  # stream id that precedes every entry


class StreamWaiter:
    """Waits for entries in one stream, on its own connection."""

    def __init__(self, hot: HotClient, key: str) -> None:
        self._hot = hot
        self._key = key
        self._client: redis.asyncio.Redis | None = None  # created at the first wait

    async def wait_after(self, entry_id: str, wait_ms: int) -> str | None:
        """Wait for an entry after `entry_id`; return its id, or None after `wait_ms`.

        Raises:
            Unavailable: Redis is unavailable.
        """
        if self._client is None:
            self._client = self._hot.create_blocking_client(self._key)
        try:
            read = self._client.xread({self._key: entry_id}, count=1, block=wait_ms)
            reply: Any = await self._hot.with_deadline(read)
        except (redis.exceptions.RedisError, OSError) as exc:
            raise Unavailable(f"redis at {self._hot.name}: {exc}", public=REDIS_DOWN) from exc
        return reply[0][1][0][0].decode() if reply else None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None
