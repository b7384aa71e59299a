"""Redis keys of the social graph; see `hot`."""

from __future__ import annotations

from chatserver.hot.redis.keys import Keys


class SocialKeys(Keys):
    """Builds the keys of this feature."""

    def counts(self, partition: int) -> str:
        return f"{{p{partition}}}:counts"

    def wake(self) -> str:
        return "{social}:wake"
