"""Rewrites archive segments: after changes, deletes and erasures, and for a new data key.

`SegmentRewriter.write` stores each segment, whether new or rewritten. `workers.archive.archiver`
describes the order of its steps, and what a crash between them leaves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import attrs
import structlog

from chatserver.cold.segment_objects import SegmentObjects
from chatserver.domain.archive_segments import ArchiveSegment, ArchiveTop
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, new_id
from chatserver.errors import Conflict, Unavailable
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import build_tombstone
from chatserver.service.history.cold_log import apply_late_changes
from chatserver.service.messaging.message_erasure import has_text
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.archive.manifests import Manifests

log = structlog.get_logger()

DELETES_IN_FLIGHT_MAX = 16
LATE_PAGE: Final = 1000
SEGMENTS_PAGE: Final = 100


def build_archived_form(entry: Message) -> Message:
    """Return the archived form of an entry: a tombstone if the entry expires."""
    if entry.expires_at is None or entry.deleted:
        return entry
    return build_tombstone(entry, entry.rev)


@attrs.define(eq=False, repr=False)
class SegmentRewriter:
    """Writes the segments of one chat per call, and merges changed entries into them."""

    _manifests: Manifests
    _objects: SegmentObjects
    _archivable: ArchivableEntries
    _clock: Clock

    async def reencrypt(self, chat: ChatId) -> int:
        """Rewrite segments that are not encrypted with the current data key; return how many.

        For guarantees and errors, see `Archiver.archive_chat`.
        """
        seq, count = 1, 0
        while rows := await self._manifests.list_from(chat, seq, SEGMENTS_PAGE):
            for row in rows:
                seq = row.last + 1
                if not await self._objects.is_current(row):
                    entries = await self._objects.read(row)
                    top = await self._manifests.get_top(chat)
                    await self.write(entries, row, top, "rewritten")
                    count += 1
        await self.delete_orphans(chat)
        return count

    async def merge_late(self, chat: ChatId, from_ts: int, to_ts: int, *, is_by_ttl: bool) -> None:
        """Merge changes into the segments in ``[from_ts, to_ts]``, and remove the changed items."""
        top = await self._manifests.get_top(chat)
        read = self._archivable.list_without_ttl if is_by_ttl else self._archivable.list_between
        while late := await read(chat, from_ts, to_ts, LATE_PAGE):
            rows = await self._manifests.list_covering(chat, late[0].seq, late[-1].seq)
            for row in rows:
                own = [entry for entry in late if row.first <= entry.seq <= row.last]
                if own:
                    await self._merge_into(row, own, top)
            from_ts = late[-1].ts + 1

    async def _merge_into(
        self, row: ArchiveSegment, late: Sequence[Message], top: ArchiveTop
    ) -> None:
        entries = list(await self._objects.read(row))
        merged = [build_archived_form(entry) for entry in apply_late_changes(entries, late)]
        if merged != entries:
            await self.write(merged, row, top, "rewritten")
        now_s = self._clock.time()
        current = [restored for restored in top.restored if restored.is_kept(now_s)]
        unrestored = [
            e
            for e in late
            if not any(restored.first <= e.seq <= restored.last for restored in current)
        ]
        await self._archivable.remove(unrestored, DELETES_IN_FLIGHT_MAX)
        failpoint("archive.after_merge")

    async def write(
        self,
        entries: Sequence[Message],
        replaced: ArchiveSegment | None,
        top: ArchiveTop,
        operation: str,
    ) -> None:
        segment, data = await self._objects.encode(entries, new_id().lower())
        orphan = await self._find_orphan(segment)
        if orphan is None:
            await self._manifests.add_orphan(segment)
            failpoint("archive.before_object")
        else:
            segment = orphan
        try:
            await self._objects.put(segment, data)
        except Unavailable:
            # S3 may have the object, and a concurrent call may have deleted the orphan.
            await self._manifests.add_orphan(segment)
            raise
        failpoint("archive.after_object")
        speakers = {entry.sender for entry in entries if has_text(entry)}
        await self._manifests.record_trails(speakers, segment.chat, segment.first)
        failpoint("archive.before_commit")
        try:
            await self._manifests.commit(segment, replaced, top)
        except Conflict:
            # A concurrent call may have deleted the orphan and its object before `put` wrote it.
            await self._manifests.add_dead_orphan(segment)
            raise
        failpoint("archive.after_commit")
        metrics.SEGMENTS.labels(operation).inc()
        metrics.SEGMENT_BYTES.inc(segment.stored_bytes)

    async def _find_orphan(self, segment: ArchiveSegment) -> ArchiveSegment | None:
        """Return the orphan, left by a crash, that has the same object as `segment`, or None."""
        for orphan, is_dead in await self._manifests.list_orphans(segment.chat):
            if not is_dead and dataclasses.replace(segment, tag=orphan.tag) == orphan:
                log.info("archive.adopted", key=orphan.key)
                return orphan
        return None

    async def delete_orphans(self, chat: ChatId) -> None:
        for orphan, is_dead in await self._manifests.list_orphans(chat):
            if is_dead or await self._manifests.mark_dead(orphan):
                failpoint("archive.before_discard")
                await self._objects.remove(orphan)
                await self._manifests.delete_orphan(orphan)
