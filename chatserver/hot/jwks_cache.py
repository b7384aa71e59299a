"""Cached key set (JWKS) of the host application, shared by all processes.

Data: ``{jwks}:keys`` (hash: ``at`` in ms, ``body``) expires a day after the last successful fetch.
``{jwks}:fetching`` (string) exists from a fetch until the next one is allowed.
"""

from __future__ import annotations

from typing import NamedTuple

from chatserver.hot.redis.client import HotClient

KEEP_S = 86_400


class KeySetCopy(NamedTuple):
    """A fetched key set (RFC 7517); `fetched_at` is in Unix seconds."""

    fetched_at: float
    body: bytes


class JwksCache:
    """Reads and writes the cached key set."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def find(self) -> KeySetCopy | None:
        """Return the cached key set, or None. Raises Unavailable."""
        fetched_at, body = await self._hot.call("HMGET", self._hot.keys.jwks(), "at", "body")
        return (
            None if fetched_at is None or body is None else KeySetCopy(int(fetched_at) / 1000, body)
        )

    async def put(self, fetched_at: float, body: bytes) -> None:
        """Replace the cached key set. Raises Unavailable."""
        key = self._hot.keys.jwks()
        fields = ("at", int(fetched_at * 1000), "body", body)
        await self._hot.write("HSET", key, *fields)
        await self._hot.call("EXPIRE", key, KEEP_S)

    async def claim_fetch(self, interval_s: int) -> bool:
        """Return True for one caller per `interval_s` across all processes; it then fetches."""
        key = self._hot.keys.jwks_fetching()
        return await self._hot.write("SET", key, "1", "NX", "EX", interval_s) is not None
