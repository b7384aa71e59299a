"""The newest messages for a chat load, with failures of Redis and of the archive."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chatserver.domain.archive_segments import ARCHIVED_KIND
from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import Unavailable
from chatserver.protocol import frames
from chatserver.service.history.newest_messages import NewestMessages
from tests.support.fake_clocks import FakeClock

CHAT = ChatId("chat")
HEAD = frames.Message(5, 5_000, CHAT, "M5", "alice", "r5", ARCHIVED_KIND, "")
WARM = frames.Message(9, HEAD.ts + 50_000_000, CHAT, "M9", "alice", "r9", "text", "hi")


class Archive:
    """An archive whose messages cannot be read."""

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> Sequence[frames.Message]:
        raise Unavailable("S3 is down")

    async def get_archived_ts(self, chat: str) -> int:
        return HEAD.ts

    async def fill_hole(self, chat: str, seq: int, ts: int) -> bool:
        raise AssertionError(seq)


class PartlyArchived(Archive):
    """The newest message is in the warm tier, older ones in an archive that is down."""

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> Sequence[frames.Message]:
        return [WARM]

    async def fill_hole(self, chat: str, seq: int, ts: int) -> bool:
        return False


class Heads:
    """The heads of chats in a Redis that may be down."""

    ref_ttl_s = 60

    def __init__(self, is_down: bool) -> None:
        self._is_down = is_down

    async def get_seq(self, chat: ChatId) -> Seq:
        if self._is_down:
            raise Unavailable("Redis is down")
        return Seq(5)


def newest_messages(
    *, is_redis_down: bool = False, age_s: float = 61, archive: Archive | None = None
) -> NewestMessages:
    """Return the reader of newest messages with an archive that is down."""
    return NewestMessages(
        archive or Archive(), Heads(is_redis_down), FakeClock(HEAD.ts / 1_000_000 + age_s)
    )


async def test_chat_with_the_archive_down_opens_without_messages() -> None:
    """A missing archive does not prevent sending."""
    assert await newest_messages().read(CHAT, HEAD) == []


async def test_chat_with_unreadable_recent_messages_does_not_open() -> None:
    """Without their refs, a retried send would be committed a second time (P2)."""
    with pytest.raises(Unavailable, match="S3"):
        await newest_messages(age_s=59).read(CHAT, HEAD)


async def test_chat_with_redis_and_archive_down_does_not_open() -> None:
    """Without its refs, a retried send would be committed a second time."""
    with pytest.raises(Unavailable, match="Redis"):
        await newest_messages(is_redis_down=True).read(CHAT, HEAD)


async def test_chat_that_is_partly_archived_opens_with_its_warm_messages() -> None:
    """All archived messages are older than the lifetime of a ref."""
    assert await newest_messages(archive=PartlyArchived()).read(CHAT, WARM) == [WARM]


async def test_chat_with_recent_messages_in_a_down_archive_does_not_open() -> None:
    """Refs of recent messages are only in the archive (P2)."""
    with pytest.raises(Unavailable, match="archive"):
        await newest_messages(archive=PartlyArchived(), age_s=59).read(CHAT, WARM)
