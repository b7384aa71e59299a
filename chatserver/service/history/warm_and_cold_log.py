"""The warm and the cold tier, read as one log.

Entries are archived before they leave the warm tier, so the warm tier is read first, then the
archive. A chat's last archived seq only increases, and is cached to avoid unnecessary reads of the
warm tier. Entries restored by `chatserver restore` are read from the warm tier. The start and the
end of a restore take effect within `RESTORED_CACHED_S`.
"""

from __future__ import annotations

import collections
from typing import Final, Literal, NamedTuple

from chatserver.domain.archive_segments import ARCHIVED_KIND, NOTHING_ARCHIVED, ArchiveTop
from chatserver.domain.clock import Clock, SystemClock
from chatserver.errors import Unavailable
from chatserver.hot.bus.rpc import HistoryRun
from chatserver.protocol.frames import Message
from chatserver.service.history.cold_log import ColdLog
from chatserver.warm.messages.messages import Messages

Tier = Literal["warm", "cold"]

CACHED_CHATS_MAX = 50_000  # maximum chats whose last archived seq is cached
RESTORED_CACHED_S: Final = 10.0  # how long the list of restored ranges is cached


class _Read(NamedTuple):
    """A read of at most `limit` entries from `seq` on, toward older or newer entries.

    `ts` is the probable ts of the adjacent entry outside the read: entry `seq + 1` toward older
    entries, entry `seq - 1` toward newer ones. None: unknown.
    """

    seq: int
    limit: int
    ts: int | None
    is_descending: bool


class _CachedTop(NamedTuple):
    """A chat's cached archive state, and the monotonic time (s) at which it was read."""

    top: ArchiveTop
    read_at_s: float


class WarmAndColdLog:
    """Reads entries by seq, with the guarantees of `warm.messages.messages`."""

    def __init__(self, warm: Messages, cold: ColdLog, clock: Clock | None = None) -> None:
        self._warm = warm
        self._cold = cold
        self._clock = clock or SystemClock()
        self._tops: collections.OrderedDict[str, _CachedTop] = collections.OrderedDict()

    async def find_head(self, chat: str) -> Message | None:
        """Return a chat's newest entry; if archived, a placeholder with the entry's seq and ts."""
        head = await self._warm.find_head(chat)
        top = await self.get_top(chat)
        if top.seq > (head.seq if head is not None else 0):
            return Message(
                seq=top.seq,
                ts=top.ts,
                chat=chat,
                mid="-",
                sender="-",
                ref="-",
                kind=ARCHIVED_KIND,
                body="",
                deleted=True,
            )
        return head

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> list[Message]:
        """Return contiguous entries that end just before seq `before`."""
        return (await self.read_run(chat, before, None, limit, ts_hint)).messages

    async def list_after(
        self, chat: str, after: int, limit: int, ts_hint: int | None = None
    ) -> list[Message]:
        """Return contiguous entries that start just after seq `after`."""
        return (await self.read_run(chat, None, after, limit, ts_hint)).messages

    async def get_archived_ts(self, chat: str) -> int:
        """Return the ts of the chat's newest archived entry; 0 if there is none."""
        top = await self.get_top(chat)
        return top.ts if top.seq else 0

    async def fill_hole(self, chat: str, seq: int, ts: int) -> bool:
        """Write a tombstone for a missing entry; return False if the entry is archived."""
        if seq <= (await self.get_top(chat)).seq:
            return False
        await self._warm.fill_hole(chat, seq, ts)
        return True

    async def read_run(
        self, chat: str, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> HistoryRun:
        """Return contiguous entries just after seq `after`, or just before `before`.

        Guarantees:
            Contiguous and adjacent to `after` or `before`, or empty.
            Entries that are archived during the read are returned exactly once.

        Raises:
            Unavailable: the tier with the first of these entries does not respond.
        """
        if after is not None:
            return await self._read(chat, after + 1, limit, ts, is_descending=False)
        if before is None:
            head = await self.find_head(chat)
            if head is None:
                return HistoryRun([], "warm")
            before, ts = head.seq + 1, head.ts + 1
        return await self._read(chat, before - 1, limit, ts, is_descending=True)

    async def _read(
        self, chat: str, seq: int, limit: int, ts: int | None, *, is_descending: bool
    ) -> HistoryRun:
        """Read contiguous entries that start with `seq`, tier by tier, in one direction."""
        run = HistoryRun([], "warm")
        while (remaining := limit - len(run.messages)) > 0 and seq >= 1:
            read = _Read(seq, remaining, ts, is_descending)
            piece = await self._read_tier(chat, read, has_some=bool(run.messages))
            if not piece.messages:
                break
            ordered = (piece, run) if is_descending else (run, piece)
            tier: Tier = "cold" if "cold" in (run.tier, piece.tier) else "warm"
            run = HistoryRun([*ordered[0].messages, *ordered[1].messages], tier)
            edge = run.messages[0 if is_descending else -1]
            seq, ts = edge.seq + (-1 if is_descending else 1), edge.ts
            is_short = piece.tier == "warm" and len(piece.messages) < remaining and seq >= 1
            if is_short and seq > (await self.get_top(chat)).seq:
                break  # the next entry is missing, or is only in Redis
        return run

    async def _read_tier(self, chat: str, read: _Read, *, has_some: bool) -> HistoryRun:
        """Read the entries from the tier that has the first entry.

        If the archive is unavailable, return no entries if the caller `has_some`; otherwise, raise.
        """
        top = self.get_cached_top(chat).seq
        if read.seq > top:
            if messages := await self._read_warm(chat, read):
                return HistoryRun(messages, "warm")
            top = (await self.get_top(chat)).seq
            if read.seq > top:
                return HistoryRun([], "warm")
        try:
            if messages := await self._read_restored(chat, read):
                return HistoryRun(messages, "warm")
            first, last = read.seq, min(top, read.seq + read.limit - 1)
            if read.is_descending:
                first, last = max(1, read.seq - read.limit + 1), read.seq
            return HistoryRun(await self._cold.read(chat, first, last), "cold")
        except Unavailable:
            if has_some:
                # The caller returns the entries that it has already read.
                return HistoryRun([], "warm")
            raise

    async def _read_restored(self, chat: str, read: _Read) -> list[Message]:
        cached = self._tops.get(chat)
        if cached is None or self._clock.monotonic() - cached.read_at_s > RESTORED_CACHED_S:
            await self.get_top(chat)
        cached = self._tops.get(chat)
        now_s = self._clock.time()
        for restored in cached.top.restored if cached is not None else ():
            if restored.has_entry(read.seq, now_s):
                room = read.seq - restored.first if read.is_descending else restored.done - read.seq
                return await self._read_warm(chat, read._replace(limit=min(read.limit, room + 1)))
        return []

    async def _read_warm(self, chat: str, read: _Read) -> list[Message]:
        if read.is_descending:
            return await self._warm.list_before(chat, read.seq + 1, read.limit, read.ts)
        return await self._warm.list_after(chat, read.seq - 1, read.limit, read.ts)

    def get_cached_top(self, chat: str) -> ArchiveTop:
        """Return the chat's cached last archived seq and ts; the actual ones may be later."""
        cached = self._tops.get(chat)
        return NOTHING_ARCHIVED if cached is None else cached.top

    async def get_shared_top(self, chat: str) -> ArchiveTop:
        """Read the chat's last archived seq and ts, like `get_top`.

        Cost: if nothing is archived, a read unit in a BatchGetItem that concurrent callers share;
        otherwise one Query.
        """
        if chat not in self._tops and not await self._cold.has_archive(chat):
            return NOTHING_ARCHIVED
        return await self.get_top(chat)

    async def get_top(self, chat: str) -> ArchiveTop:
        """Read and cache the chat's last archived seq and ts. Cost: one consistent Query."""
        top = await self._cold.get_top(chat)
        if top.seq:
            cached = self._tops.get(chat)
            if cached is not None and cached.top.seq > top.seq:
                return top  # a stale response
            self._tops[chat] = _CachedTop(top, self._clock.monotonic())
            self._tops.move_to_end(chat)
            if len(self._tops) > CACHED_CHATS_MAX:
                self._tops.popitem(last=False)
        return top
