"""Stream of one chat's messages from all tiers, in time order, for a merge of several chats.

::

    newest first   hot log: entries that are not stored yet ─► warm tier ─► archive
    oldest first   archive ─► warm tier ─► hot log: entries that are not stored yet

The chat's head (its newest seq, and `stored`, its newest stored seq) is read first. Entries up to
`stored` are read from the warm tier and the archive, later entries from the hot log. If entries are
stored during the read, the log may be trimmed; the head is then read again.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Final

from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.messages import ChatHead
from chatserver.errors import Unavailable
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.protocol import codec
from chatserver.protocol.frames import PAGE_MAX, Message
from chatserver.service.history.chat_query_pages import ChatQueryPage, TimeRange
from chatserver.service.history.message_query_filter import QueryFilter
from chatserver.warm.dynamo.paging import Token
from chatserver.warm.messages.active_days import DAY_US, DaySet, get_day

FIRST_READ: Final = 8  # number of messages in a chat's first read; doubles with each read
_HOT_READ: Final = 100  # maximum log entries per read
_ATTEMPTS_MAX: Final = 5


class ChatMessageIterator:
    """One chat's messages in a time range, in merge order: newest first or oldest first.

    If `is_exact`, `bound` is the ts of the next message. Otherwise, the next message cannot precede
    `bound` in merge order. If `bound` is None, there are no more messages.
    """

    def __init__(
        self,
        *,
        chat: ChatId,
        times: TimeRange,
        days: DaySet | None,
        newest_ts: int | None,
        is_match: Callable[[Message], bool],
    ) -> None:
        """`days` (with messages) and `newest_ts` (upper bound of all ts) are None if unknown."""
        self.chat = chat
        self._is_match = is_match
        self._is_descending = times.is_newest_first
        self._days = days
        self._from, self._to = times.from_ts, times.to_ts
        if newest_ts is not None:
            self._to = min(self._to, newest_ts)
        self._next: int | None = self._to if self._is_descending else self._from
        self._buffer: collections.deque[Message] = collections.deque()
        self._size = FIRST_READ
        self._is_open = False
        self._has_log = False  # True if unstored entries are read from the log in Redis
        self._reads_log = False
        self._stored = 0
        self._seq = 0  # seq of the last entry read from the log
        self._token: Token | None = None
        self._skip()

    @property
    def is_exact(self) -> bool:
        """True if `bound` is the ts of a message that has already been read."""
        return bool(self._buffer)

    @property
    def bound(self) -> int | None:
        """The ts of the next message if `is_exact`; otherwise a bound for it.

        The next message cannot precede the bound in merge order. None: there are no more messages.
        """
        return self._buffer[0].ts if self._buffer else self._next

    def close(self) -> None:
        """End the stream, because the chat is not readable."""
        self._next = None

    def pop(self) -> Message:
        """Remove and return the next message. Call it only if `is_exact`."""
        return self._buffer.popleft()

    async def read(self, view: QueryFilter, count_min: int) -> int:
        """Read more entries and update `bound`; return the number of entries read.

        Raises:
            Unavailable: a tier does not respond.
        """
        size = min(PAGE_MAX, max(self._size, count_min))
        self._size = min(PAGE_MAX, 2 * self._size)
        if not self._is_open:
            await self._open(view)
        if self._reads_log:
            count = await self._read_log(view)
        else:
            count = await self._read_stored(view, size)
        self._skip()
        return count

    async def _open(self, view: QueryFilter) -> None:
        self._is_open = True
        head = view.heads[self.chat]
        if not head.is_open or head.stored >= head.seq:
            return  # all entries are stored, or the chat is not in Redis
        self._has_log, self._stored = True, head.stored
        self._seq = head.seq + 1 if self._is_descending else head.stored
        if head.seq - head.stored > _HOT_READ:
            self._seq = await self._find_start_seq(view.sources.log, head)
        self._reads_log = self._is_descending or self._stored == 0

    async def _find_start_seq(self, log: ChatLog, head: ChatHead) -> Seq:
        """Find where the time range begins in the log; return the seq to read just before it."""
        assert self._next is not None
        low, high = head.stored + 1, int(head.seq)
        while low <= high:
            middle = (low + high) // 2
            entries = await log.list_after(self.chat, Seq(middle - 1), 1)
            if not entries:
                break
            if entries[0].ts > self._next or (
                entries[0].ts == self._next and not self._is_descending
            ):
                high = middle - 1
            else:
                low = middle + 1
        return Seq(low if self._is_descending else max(head.stored, high))

    def _skip(self) -> None:
        """Skip days without messages; end the stream after its time range."""
        if self._next is None:
            return
        if not self._from <= self._next <= self._to:
            self._next = None
            return
        if self._days is None:
            return
        day = get_day(self._next)
        if self._is_descending:
            nearest_day = self._days.find_before(day)
            ts = None if nearest_day is None else min(self._next, (nearest_day + 1) * DAY_US - 1)
        else:
            nearest_day = self._days.find_after(day)
            ts = None if nearest_day is None else max(self._next, nearest_day * DAY_US)
        if ts != self._next:
            self._token = None
        self._next = ts if ts is not None and self._from <= ts <= self._to else None

    def _move_past(self, ts: int) -> None:
        assert self._next is not None
        self._next = min(self._next, ts - 1) if self._is_descending else max(self._next, ts + 1)

    # the warm tier and the archive

    async def _read_stored(self, view: QueryFilter, size: int) -> int:
        assert self._next is not None
        low, high = (self._from, self._next) if self._is_descending else (self._next, self._to)
        page = ChatQueryPage(
            query=view.sources.messages.list_chat,
            is_match=self._is_match,
            view=view,
            chat=self.chat,
            limit=size,
            is_descending=self._is_descending,
        )
        rows = await page.read(TimeRange(low, high, self._is_descending), self._token)
        items = rows.items
        if self._has_log:
            items = [item for item in items if item.seq <= self._stored]
        self._buffer.extend(item for item in items if self._is_match(item))
        if rows.next is not None and len(items) == len(rows.items):
            self._token = rows.next
            self._move_past(int(rows.next["ts"]))
        elif self._has_log and not self._is_descending:
            self._reads_log = True
            self._next = items[-1].ts + 1 if items else self._next
        else:
            self._next = None
        return len(rows.items)

    # the hot log

    async def _read_log(self, view: QueryFilter) -> int:
        """Read the next entries of the hot log. Return their number; 0 at the end of the log."""
        for _ in range(_ATTEMPTS_MAX):
            next_seq = self._seq - 1 if self._is_descending else self._seq + 1
            if next_seq <= self._stored or next_seq > view.heads[self.chat].seq:
                self._end_log()
                return 0
            entries = await self._list_log(view.sources.log)
            if not entries or entries[0].seq != next_seq:
                await self._refresh(view)  # the entries were stored and trimmed during the read
                if not self._reads_log:
                    return 0
                continue
            entries = _cut_at_gap(entries)
            self._seq = entries[-1].seq
            self._move_past(entries[-1].ts)
            in_range = [entry for entry in entries if self._from <= entry.ts <= self._to]
            messages = await view.render_committed(self.chat, in_range) if in_range else []
            self._buffer.extend(
                message for message in messages if message is not None and self._is_match(message)
            )
            if self._is_descending and self._seq <= self._stored + 1:
                self._end_log()
            return len(entries)
        raise Unavailable(f"chat {self.chat}: entries cannot be read now; try again")

    async def _list_log(self, log: ChatLog) -> Sequence[Message]:
        """Return the next log entries that have not been stored yet, in the stream's direction."""
        if self._is_descending:
            limit = min(_HOT_READ, self._seq - 1 - self._stored)
            entries = await log.list_before(self.chat, Seq(self._seq), limit) if limit > 0 else []
            entries = entries[::-1]
        else:
            entries = await log.list_after(self.chat, Seq(self._seq), _HOT_READ)
        return [
            codec.decode_message(codec.join_message(entry.seq, entry.ts, entry.tail))
            for entry in entries
        ]

    def _end_log(self) -> None:
        """Stop reading the log. If newest first, the warm tier follows; otherwise, nothing does."""
        self._reads_log = False
        if not self._is_descending:
            self._next = None

    async def _refresh(self, view: QueryFilter) -> None:
        head = await view.sources.log.get_head(self.chat)
        view.heads[self.chat] = head
        if head.stored <= self._stored:
            raise Unavailable(f"chat {self.chat}: Redis lost entries during the read; try again")
        self._stored = head.stored
        if self._is_descending:
            self._reads_log = self._seq - 1 > head.stored
        else:
            self._reads_log = False  # the next entries are now in the warm tier or the archive


def _cut_at_gap(entries: Sequence[Message]) -> Sequence[Message]:
    """Return the entries up to the first gap in their seqs."""
    for index in range(1, len(entries)):
        if abs(entries[index].seq - entries[index - 1].seq) != 1:
            return entries[:index]
    return entries
