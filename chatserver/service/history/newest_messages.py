"""A chat's newest stored messages, read when the chat is loaded into Redis."""

from __future__ import annotations

import structlog

from chatserver.domain.archive_segments import ARCHIVED_KIND
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import Unavailable
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.protocol import frames
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog

log = structlog.get_logger()

RECENT_MESSAGES = 100


class NewestMessages:
    """Reads a chat's newest messages, and fills gaps between them."""

    def __init__(self, messages: WarmAndColdLog, hot: HotChatWriter, clock: Clock) -> None:
        self._messages = messages
        self._hot = hot
        self._clock = clock

    async def read(self, chat: ChatId, head: frames.Message) -> list[frames.Message]:
        """Return the chat's newest messages; none if they are archived and the archive is down.

        Without these messages, a member's own messages count as unread until the member marks them
        as read. If the newest message is younger than `REF_TTL_S`, the call fails instead: without
        its `ref` in Redis, a retry of that message would create a duplicate.

        Raises:
            Unavailable: Redis or the warm tier does not respond; or the archive does not respond,
                and the newest message is younger than `REF_TTL_S`.
        """
        top = await self._hot.get_seq(chat)
        try:
            return await self._read(chat, head, top)
        except Unavailable as exc:
            if head.kind != ARCHIVED_KIND or self._may_be_retried(head.ts):
                raise
            log.warning("chat_load.archive_unavailable", chat=chat, error=exc.message)
            return []

    def _may_be_retried(self, ts: int) -> bool:
        return self._clock.time() - ts / 1_000_000 < self._hot.ref_ttl_s

    async def _read(self, chat: ChatId, head: frames.Message, top: Seq) -> list[frames.Message]:
        """Return the chat's newest messages, and fill gaps with tombstones.

        If the persist worker and Redis fail during a batch write, DynamoDB may lack messages that
        are older than the newest stored one (`head`). Without tombstones, no history page could get
        past such a gap. `top` is the newest seq in Redis; the persist worker may still store
        messages up to that seq.
        """
        while True:
            newest = await self._messages.list_before(
                chat, head.seq + 1, RECENT_MESSAGES, head.ts + 1
            )
            if not newest or len(newest) == RECENT_MESSAGES:
                return newest
            first = newest[0]
            if first.seq == 1 or first.seq <= top + 1:
                return newest
            if not await self._messages.fill_hole(chat, first.seq - 1, first.ts - 1):
                # The messages before `first` are archived, and the archive is down.
                if self._may_be_retried(await self._messages.get_archived_ts(chat)):
                    raise Unavailable(
                        "archive: recent messages of the chat cannot be read now; try again"
                    )
                return newest
            log.error("chat_load.message_lost", chat=chat, seq=first.seq - 1)
