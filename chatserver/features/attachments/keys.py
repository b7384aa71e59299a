"""Redis keys of attachments; see `hot`."""

from __future__ import annotations

from chatserver.domain.ids import ChatId
from chatserver.hot.redis.keys import Keys


class AttachmentKeys(Keys):
    """Builds the keys of this feature."""

    def file(self, file: str) -> str:
        return f"{{p{self.get_partition(ChatId(file))}}}:file:{file}"

    def jobs(self) -> str:
        return "{media}:jobs"

    def slow_images(self) -> str:
        return "{media}:slow"

    def held_images(self) -> str:
        return "{media}:held"

    def image_attempts(self) -> str:
        return "{media}:images"

    def image_turns(self) -> str:
        return "{media}:turns"
