"""The newest messages of a chat that is loaded: failures of Redis and of the archive."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.segments import ARCHIVED_KIND
from chatserver.errors import Unavailable
from chatserver.protocol import frames
from chatserver.service.newest_messages import NewestMessages

CHAT = ChatId("chat")
HEAD = frames.Message(5, 5_000, CHAT, "M5", "alice", "r5", ARCHIVED_KIND, "")


class Archive:
    """Archived messages that cannot be read."""

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> Sequence[frames.Message]:
        raise Unavailable("S3 is down")

    async def fill_hole(self, chat: str, seq: int, ts: int) -> bool:
        raise AssertionError(seq)


class Heads:
    """The heads of chats in a Redis that may be down."""

    def __init__(self, is_down: bool) -> None:
        self._is_down = is_down

    async def get_seq(self, chat: ChatId) -> Seq:
        if self._is_down:
            raise Unavailable("Redis is down")
        return Seq(5)


async def test_chat_whose_archive_is_down_opens_without_its_messages() -> None:
    """Nobody is kept from writing by an archive."""
    assert await NewestMessages(Archive(), Heads(is_down=False)).read(CHAT, HEAD) == []


async def test_chat_does_not_open_without_its_messages_if_redis_fails() -> None:
    """Opened without its references, a retried send would be committed a second time."""
    with pytest.raises(Unavailable, match="Redis"):
        await NewestMessages(Archive(), Heads(is_down=True)).read(CHAT, HEAD)
