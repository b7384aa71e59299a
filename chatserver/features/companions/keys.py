"""Redis keys of AI companions; see the modules in `hot`."""

from __future__ import annotations

from chatserver.domain.ids import ChatId, UserId
from chatserver.hot.redis.keys import Keys


class CompanionKeys(Keys):
    """Builds the keys of this feature."""

    def pending(self, partition: int) -> str:
        return f"{{p{partition}}}:asked"

    def response(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:asking:{chat}"

    def deltas(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:deltas:{chat}"

    def tokens(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:tokens:{user}"
