"""Redis keys of push notifications; see `hot`."""

from __future__ import annotations

from chatserver.domain.ids import UserId
from chatserver.hot.redis.keys import Keys


class NotificationKeys(Keys):
    """Builds the keys of this feature."""

    def due(self, partition: int) -> str:
        return f"{{p{partition}}}:due"

    def since(self, partition: int) -> str:
        return f"{{p{partition}}}:since"

    def pushing(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:pushing:{user}"

    def pushed(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:pushed:{user}"
