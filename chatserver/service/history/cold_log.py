"""The archived part of a chat's history, with later changes applied.

::

    manifest ─► segments ─► newer items in the warm tier ─► manifest again: unchanged?

When an archived entry changes, its new version is an item in the warm tier until the archive worker
has replaced the segment. The version with the higher `rev` (seq of the last change) is used. The
manifest is read before and after these items. If it has changed, the read starts again, because it
may have missed a changed entry or found deleted text in a replaced segment. Segment objects never
change, so they are cached.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import attrs
import structlog

from chatserver.cold.segment_objects import SegmentObjects
from chatserver.domain.archive_segments import ArchiveSegment, ArchiveTop
from chatserver.domain.clock import Clock
from chatserver.errors import ConfigError, CorruptData, Unavailable
from chatserver.protocol import expired_messages
from chatserver.protocol.frames import Message
from chatserver.telemetry import metrics
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.archive.manifests import Manifests

log = structlog.get_logger()

ATTEMPTS_MAX = 5


def apply_late_changes(entries: Sequence[Message], items: Sequence[Message]) -> list[Message]:
    """Replace each archived entry with its warm-tier item if the item is newer."""
    newer = {item.seq: item for item in items}
    return [
        item if (item := newer.get(entry.seq)) is not None and item.rev >= entry.rev else entry
        for entry in entries
    ]


@attrs.define(eq=False, repr=False, kw_only=True)
class ColdLog:
    """Reads the archive."""

    _manifests: Manifests
    _segments: SegmentObjects
    _items: ArchivableEntries
    _clock: Clock

    async def get_top(self, chat: str) -> ArchiveTop:
        """Return the seq and ts up to which the chat is archived."""
        return await self._manifests.get_top(chat)

    async def has_archive(self, chat: str) -> bool:
        """Return whether any entry of the chat is archived. Concurrent callers share a call."""
        return await self._manifests.has_top(chat)

    async def read(self, chat: str, first: int, last: int) -> list[Message]:
        """Return all archived entries in ``[first, last]``, in order of seq.

        Guarantees:
            Current: includes every change that had reached the warm tier before the call.
            Cost: three Queries, and S3 reads for segments that are not cached.

        Raises:
            Unavailable: the entries cannot be read now, or are not archived.
        """
        for attempt in range(ATTEMPTS_MAX):
            rows = await self._manifests.list_covering(chat, first, last)
            try:
                entries = await self._read(rows, chat, first, last)
            except (CorruptData, ConfigError) as exc:
                # The segment object may have been replaced since the manifest was read.
                if attempt + 1 < ATTEMPTS_MAX and rows != await self._manifests.list_covering(
                    chat, first, last
                ):
                    continue
                log.error("cold.gap_found", chat=chat, first=first, last=last, error=exc.message)
                metrics.HISTORY_GAPS.labels("cold").inc()
                raise Unavailable(
                    f"messages {first} to {last} cannot be read now; try again"
                ) from exc
            if rows == await self._manifests.list_covering(chat, first, last):
                return entries
        raise Unavailable(f"messages {first} to {last} changed while they were read; try again")

    async def _read(
        self, rows: Sequence[ArchiveSegment], chat: str, first: int, last: int
    ) -> list[Message]:
        entries: list[Message] = []
        for row in rows:
            segment = await self._segments.read(row)
            low, high = max(first, row.first), min(last, row.last)
            entries += segment[low - row.first : high - row.first + 1]
        if [entry.seq for entry in entries] != list(range(first, last + 1)):
            raise CorruptData(f"archive of {chat}: entries are missing in {first} to {last}")
        items = await self._items.list_between(chat, entries[0].ts, entries[-1].ts)
        now_s = self._clock.time()
        return [
            expired_messages.apply_expiry(entry, now_s)
            for entry in apply_late_changes(entries, items)
        ]

    async def find_first_at(self, chat: str, top: ArchiveTop, ts: int) -> int:
        """Return the seq of the first archived entry with a timestamp of `ts` or later.

        `top` is the seq and ts up to which the chat is archived. Returns ``top.seq + 1`` if all
        archived entries are earlier.

        Guarantees:
            Cost: about log2(number of segments) single-item Queries, and one S3 read.

        Raises:
            Unavailable: the entries cannot be read now.
        """
        if ts > top.ts:
            return top.seq + 1
        if ts <= 0:
            return 1
        low, high = 1, int(top.seq)
        while low <= high:
            middle = (low + high) // 2
            segment = await self._find_segment(chat, middle)
            if segment.last_ts < ts:
                low = segment.last + 1
            elif segment.first_ts >= ts:
                high = segment.first - 1
            else:
                entries = await self.read(chat, segment.first, segment.last)
                return segment.first + bisect.bisect_left([entry.ts for entry in entries], ts)
        return low

    async def _find_segment(self, chat: str, seq: int) -> ArchiveSegment:
        segments = await self._manifests.list_from(chat, seq, 1)
        if not segments or segments[0].first > seq:
            log.error("cold.gap_found", chat=chat, first=seq, last=seq, error="no segment")
            metrics.HISTORY_GAPS.labels("cold").inc()
            raise Unavailable(f"message {seq} cannot be read now; try again")
        return segments[0]

    async def find_at(self, chat: str, ts: int) -> Message | None:
        """Return the current version of the archived entry with this timestamp, or None.

        Raises:
            Unavailable: S3 does not respond.
            CorruptData: a segment that the manifest lists is missing or does not match it.
        """
        segment = await self._manifests.find_at(chat, ts)
        if segment is None:
            return None
        entries = await self._segments.read(segment)
        seq = next((entry.seq for entry in entries if entry.ts == ts), None)
        return None if seq is None else (await self.read(chat, seq, seq))[0]

    async def record_late(self, chat: str) -> None:
        """Record that an archived entry of the chat is about to change."""
        await self._manifests.record_late(chat, int(self._clock.time() * 1000))
