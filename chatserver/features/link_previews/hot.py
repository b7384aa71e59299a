"""Link preview cache.

Data: `{pN}:preview:<digest of the URL>` (string, expires after `CACHE_S` or `FAILURE_CACHE_S`) has
the page summary as JSON. Each key is charged to the Redis memory budget of a user, which limits the
number of keys.
"""

from __future__ import annotations

import msgspec

from chatserver.features.link_previews.keys import LinkPreviewKeys
from chatserver.features.link_previews.model import (
    CACHE_S,
    FAILURE_CACHE_S,
    PageSummary,
    compute_url_digest,
)
from chatserver.hot.redis.client import HotClient

_decoder = msgspec.json.Decoder(PageSummary)


class PreviewCache:
    """Reads and writes cached page summaries."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._keys = LinkPreviewKeys(hot.keys.partitions)

    async def find(self, url: str) -> PageSummary | None:
        """Return the cached summary, or None. A page without a preview has an empty summary."""
        value = await self._hot.call("GET", self._keys.preview(compute_url_digest(url)))
        return None if value is None else _decoder.decode(value)

    async def put(self, url: str, summary: PageSummary) -> None:
        key = self._keys.preview(compute_url_digest(url))
        kept_s = FAILURE_CACHE_S if summary.is_empty else CACHE_S
        await self._hot.write("SET", key, msgspec.json.encode(summary), "EX", kept_s)
