"""The host application's key set, as it was fetched last, for all processes.

Data: ``{jwks}:keys`` (hash: ``at`` in ms, ``body``), which ends a day after the last good fetch, so
that keys do not outlive the host application by more; ``{jwks}:fetching`` (string), there while
nobody needs to fetch again.
"""

from __future__ import annotations

from typing import NamedTuple

from chatserver.hot.client import HotClient

KEEP_S = 86_400


class KeySetCopy(NamedTuple):
    """A key set (RFC 7517), as fetched; seconds since 1970."""

    fetched_at: float
    body: bytes


class KeySets:
    """Reads and writes the copy."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def find(self) -> KeySetCopy | None:
        """Return the copy, if there is one. Raises Unavailable."""
        at, body = await self._hot.call("HMGET", self._hot.keys.jwks(), "at", "body")
        return None if at is None or body is None else KeySetCopy(int(at) / 1000, body)

    async def put(self, fetched_at: float, body: bytes) -> None:
        """Replace the copy. Raises Unavailable."""
        key = self._hot.keys.jwks()
        fields = ("at", int(fetched_at * 1000), "body", body)
        await self._hot.write("HSET", key, *fields)
        await self._hot.call("EXPIRE", key, KEEP_S)

    async def claim_fetch(self, interval_s: int) -> bool:
        """Tell whether the caller may fetch: one may, of all processes, in an interval."""
        key = self._hot.keys.jwks_fetching()
        return await self._hot.write("SET", key, "1", "NX", "EX", interval_s) is not None
