"""The newest messages of a chat in the warm tier, read when the chat is loaded into Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from chatserver.domain.archive_segments import ARCHIVED_KIND
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import Unavailable
from chatserver.protocol import frames

log = structlog.get_logger()

RECENT_MESSAGES = 100


class WarmMessages(Protocol):
    """Messages in the warm tier."""

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> Sequence[frames.Message]: ...

    async def get_archived_ts(self, chat: str) -> int: ...

    async def fill_hole(self, chat: str, seq: int, ts: int) -> bool: ...


class HotHeads(Protocol):
    """Chat heads in Redis."""

    @property
    def ref_ttl_s(self) -> int: ...

    async def get_seq(self, chat: ChatId) -> Seq: ...


class NewestMessages:
    """Reads the newest messages, and fills gaps among them."""

    def __init__(self, messages: WarmMessages, heads: HotHeads, clock: Clock) -> None:
        self._messages = messages
        self._heads = heads
        self._clock = clock

    async def read(self, chat: ChatId, head: frames.Message) -> list[frames.Message]:
        """Return a chat's newest messages; none if they are archived and the archive is down.

        Without them, members' own messages count as unread until they mark them. Writing stays
        possible, unless the newest message is younger than `REF_TTL_S`: its retry would
        create a duplicate.

        Raises:
            Unavailable: Redis or the warm tier does not respond, or the archive does not and the
            message is younger than `REF_TTL_S`.
        """
        held = await self._heads.get_seq(chat)
        try:
            return await self._read(chat, head, held)
        except Unavailable as exc:
            if head.kind != ARCHIVED_KIND or self._may_be_retried(head.ts):
                raise
            log.warning("opening.archive_unavailable", chat=chat, error=exc.message)
            return []

    def _may_be_retried(self, ts: int) -> bool:
        return self._clock.time() - ts / 1_000_000 < self._heads.ref_ttl_s

    async def _read(self, chat: ChatId, head: frames.Message, held: Seq) -> list[frames.Message]:
        """Return the chat's newest messages, and fill gaps of lost ones among them.

        If the persist worker and Redis die together, the warm tier may lack messages below its head
        that Redis no longer has. Unfilled, the gap would block all reads past it (invariant I4).
        """
        while True:
            newest = await self._messages.list_before(
                chat, head.seq + 1, RECENT_MESSAGES, head.ts + 1
            )
            # The persist worker stores the messages that Redis has.
            if not newest or len(newest) == RECENT_MESSAGES or newest[0].seq <= held + 1:
                return list(newest)
            first = newest[0]
            if first.seq == 1:
                return list(newest)
            if not await self._messages.fill_hole(chat, first.seq - 1, first.ts - 1):
                # They are archived, and the archive is down.
                if self._may_be_retried(await self._messages.get_archived_ts(chat)):
                    raise Unavailable("archive: recent messages of the chat cannot be read now")
                return list(newest)
            log.error("opening.message_lost", chat=chat, seq=first.seq - 1)
