"""Redis keys of link previews; see `hot`."""

from __future__ import annotations

from chatserver.domain.ids import UserId
from chatserver.hot.redis.keys import Keys


class LinkPreviewKeys(Keys):
    """Builds the keys of this feature."""

    def preview(self, digest: str) -> str:
        return f"{{p{self.get_partition(UserId(digest))}}}:preview:{digest}"
