"""Redis keys of webhook events; see `hot`."""

from __future__ import annotations

from chatserver.hot.redis.keys import Keys


class WebhookKeys(Keys):
    """Builds the keys of this feature."""

    def hooks(self, partition: int) -> str:
        return f"{{p{partition}}}:hooks"

    def hooks_late(self, partition: int) -> str:
        return f"{{p{partition}}}:hooks-late"

    def hooks_dead(self, partition: int) -> str:
        return f"{{p{partition}}}:hooks-dead"
