"""Archiver: moves a chat's oldest entries, and later changes to them, into archive segments.

::

    read ─► orphan ─► object ─► trails ─► segment row and top, one transaction ─► remove items
              │                              │ conditional: nothing else has been archived
              └── left after a crash: the next run uses the object, or removes it

A trail marks a segment that has messages from a user, and the top is the newest archived position
(`chatserver.warm.archive.manifests`).

Crash safety: before the transaction, nothing is archived, and an orphan record lists the object.
After the transaction, readers find the entries in the archive. Items that are still in the warm
tier take precedence until they are removed. An item is removed only if it is unchanged since it was
read. A concurrent change stays in the warm tier, and `workers.archive.segment_rewriter` merges it
into the segment.

With TTL removal (`archive.removal`), the archiver only copies items that have a `ttl`; DynamoDB
removes them. If the item of an archived entry has no `ttl`, it contains changes: these are merged,
and the item is removed. The archiver searches for these items only in chats with a *late* record,
which is written before the change.

An expiring entry is archived as a tombstone: its text stays in the warm tier until it expires, and
never reaches S3.

Restored entries (`workers.archive.restorer`) temporarily have items in the warm tier in addition
to their segments. Afterwards, changes to these items are merged, and the items are removed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import attrs
import structlog

from chatserver.cold.segment_objects import SegmentObjects
from chatserver.config import Archive
from chatserver.domain.archive_segments import ArchiveSegment, ArchiveTop
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId
from chatserver.protocol import codec
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import is_message
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.telemetry.tracing import Id, Tracer, tracer
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.archive.restored_ranges import RestoredRanges
from chatserver.warm.archive.user_archive_positions import UserArchivePositions
from chatserver.warm.messages.seq_search import TS_MAX
from chatserver.warm.messages.ttl import ItemRetention
from workers.archive.segment_rewriter import (
    DELETES_IN_FLIGHT_MAX,
    LATE_PAGE,
    SegmentRewriter,
    build_archived_form,
)

log = structlog.get_logger()


SEGMENT_BYTES_MAX = 4_194_304  # maximum uncompressed bytes per segment

US: Final = 1_000_000


class ArchiveResult(NamedTuple):
    """Result of `Archiver.archive_chat`."""

    moved: int  # number of entries
    due_ts: int  # archive the chat again once messages with this ts are old enough
    stuck_ts: int | None  # ts of the oldest entry that should have been archived but could not be


@attrs.define(eq=False, repr=False, kw_only=True)
class Archiver:
    """Archives one chat per call."""

    _manifests: Manifests
    _objects: SegmentObjects
    _archivable: ArchivableEntries
    _settings: Archive
    _clock: Clock
    _restored: RestoredRanges
    _users: UserArchivePositions
    _tracer: Tracer | None = attrs.field(factory=tracer, init=False)
    _retention: ItemRetention = attrs.field(init=False)
    _rewriter: SegmentRewriter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._retention = ItemRetention.by(self._settings)
        self._rewriter = SegmentRewriter(
            self._manifests, self._objects, self._archivable, self._clock
        )

    async def archive_chat(self, chat: ChatId) -> ArchiveResult:
        """Archive entries that are old enough, and merge changes into the archive.

        Guarantees:
            Idempotent. Concurrent calls are safe: one succeeds, the others raise Conflict.

        Raises:
            Conflict: another process is archiving the chat.
            Unavailable: a store does not respond; retry later.
            CorruptData: the archive of the chat does not match its manifest.
        """
        now_us = int(self._clock.time() * US)
        cutoff = now_us - self._settings.retention_s * US
        is_by_ttl = self._retention.is_by_ttl
        if not is_by_ttl:
            for span in self._list_spans(await self._manifests.get_top(chat)):
                await self._rewriter.merge_late(chat, *span, is_by_ttl=False)
        moved = 0
        while count := await self._archive_segment(chat, cutoff, is_by_ttl=is_by_ttl):
            moved += count
        await self._rewriter.delete_orphans(chat)
        due, stuck = await self._find_due(chat, cutoff, now_us, is_by_ttl=is_by_ttl)
        await self._manifests.record_due(chat, due)
        return ArchiveResult(moved, due, stuck)

    async def merge_changes(self, chat: ChatId) -> None:
        """Merge changes to archived entries into their segments, and remove the changed items.

        For guarantees and errors, see `archive_chat`. When this returns, no segment contains any
        text that was deleted in the warm tier before the call.
        """
        top = await self._manifests.get_top(chat)
        await self._rewriter.merge_late(chat, 0, top.ts, is_by_ttl=self._retention.is_by_ttl)
        await self._rewriter.delete_orphans(chat)

    async def reencrypt(self, chat: ChatId) -> int:
        """Rewrite segments that are not encrypted with the current data key; return how many.

        For guarantees and errors, see `archive_chat`.
        """
        return await self._rewriter.reencrypt(chat)

    async def end_restored(self, chat: ChatId) -> bool:
        """Remove the items of expired restored ranges; return True if no range is left.

        Changes to the items are merged first. For guarantees and errors, see `archive_chat`.
        """
        for restored in (await self._manifests.get_top(chat)).restored:
            if restored.is_kept(self._clock.time()):
                continue
            if restored.is_ending or await self._restored.mark_ending(chat, restored):
                failpoint("restore.before_removal")
                await self._rewriter.merge_late(
                    chat, restored.first_ts, restored.last_ts, is_by_ttl=self._retention.is_by_ttl
                )
                failpoint("restore.after_removal")
                await self._restored.delete(chat, restored)
        await self._rewriter.delete_orphans(chat)
        return not (await self._manifests.get_top(chat)).restored

    # entries that are old enough

    async def _archive_segment(self, chat: ChatId, cutoff: int, *, is_by_ttl: bool) -> int:
        """Write one segment; return how many entries it adds, or 0 if too few are old enough."""
        top = await self._manifests.get_top(chat)
        entries_max = self._settings.segment_entries_max
        archivable = await self._archivable.list_consecutive(
            chat, top.seq, top.ts, cutoff, entries_max
        )
        run, ttls = archivable.entries, archivable.ttls
        if not run:
            return 0
        small = await self._find_small(chat, top)
        archived = list(await self._objects.read(small)) if small else []
        run = self._select_fitting(run, entries_max - len(archived), small)
        is_enough = len(run) + len(archived) >= self._settings.segment_entries_min
        if not is_enough and run[0].ts > cutoff - self._settings.wait_s * US:
            return 0
        removed = [entry for entry in run if not is_by_ttl or self._is_ours(entry, ttls)]
        if is_by_ttl and removed:
            # With this record, a later pass removes the items if this call does not get that far.
            await self._manifests.record_late(chat, int(self._clock.time() * 1000))
        entries, from_ns = [*archived, *map(build_archived_form, run)], time.time_ns()
        await self._record_positions(run, archivable.receivers)
        await self._rewriter.write(entries, small, top, "filled" if small else "written")
        await self._archivable.remove(removed, DELETES_IN_FLIGHT_MAX)
        failpoint("archive.after_remove")
        metrics.ARCHIVED.inc(len(run))
        if self._tracer is not None:
            for entry in run:
                labels: dict[str, Id] = {"chat": entry.chat, "seq": entry.seq}
                self._tracer.record_span(entry.mid, "archive", from_ns, time.time_ns(), **labels)
        return len(run)

    async def _record_positions(self, run: Sequence[Message], receivers: Mapping[int, str]) -> None:
        moving = [
            entry
            for entry in map(build_archived_form, run)
            if is_message(entry) and not entry.deleted
        ]
        # The messages are sorted by ts, so each dict keeps a user's newest ts.
        await self._users.record("sent", {entry.sender: entry.ts for entry in moving})
        received = {receivers[entry.seq]: entry.ts for entry in moving if entry.seq in receivers}
        await self._users.record("received", received)

    def _is_ours(self, entry: Message, ttls: Mapping[int, int | None]) -> bool:
        """Return True if the archiver must remove an entry's item.

        TTL removes the items of expiring entries, and items whose `ttl` passes soon.
        """
        if entry.seq not in ttls:
            return False
        ttl = ttls[entry.seq]
        ends = ttl is not None and entry.expires_at is not None
        return not ends and not self._retention.is_soon(ttl, self._clock.time())

    async def _find_small(self, chat: ChatId, top: ArchiveTop) -> ArchiveSegment | None:
        segments = await self._manifests.list_covering(chat, top.seq, top.seq)
        last = segments[0] if segments else None
        if last is None or last.count >= self._settings.segment_entries_min:
            return None
        return last if last.raw_bytes < SEGMENT_BYTES_MAX // 2 else None

    def _select_fitting(
        self, run: Sequence[Message], room: int, small: ArchiveSegment | None
    ) -> list[Message]:
        remaining = SEGMENT_BYTES_MAX - (small.raw_bytes if small else 0)
        fitting: list[Message] = []
        for entry in run[:room]:
            remaining -= len(codec.encode(entry)) + 1
            if remaining < 0 and fitting:
                break
            fitting.append(entry)
        return fitting

    async def _find_due(
        self, chat: ChatId, cutoff: int, now_us: int, *, is_by_ttl: bool
    ) -> tuple[int, int | None]:
        """Return `(due_ts, stuck_ts)`; see `ArchiveResult`."""
        top = await self._manifests.get_top(chat)
        due, stuck = now_us, None
        retention_us = self._settings.retention_s * US
        for from_ts, to_ts in [] if is_by_ttl else self._list_spans(top):
            for late_entry in await self._archivable.list_between(chat, from_ts, to_ts, LATE_PAGE):
                # This entry is still in the table, because it has not expired yet or because it
                # changed while it was being archived.
                ends = late_entry.expires_at
                due = min(due, late_entry.ts if ends is None else ends * US - retention_us)
        unarchived = await self._archivable.list_between(chat, top.ts + 1, TS_MAX, 1)
        if unarchived:
            oldest = unarchived[0]
            wait_us = self._settings.wait_s * US if oldest.ts <= cutoff else 0
            due = min(due, oldest.ts + wait_us)
            if oldest.ts <= cutoff - wait_us and oldest.seq != top.seq + 1:
                stuck = oldest.ts
                metrics.HISTORY_GAPS.labels("archive").inc()
                log.error("archive.gap_found", chat=chat, archived=top.seq, oldest=oldest.seq)
        return due, stuck

    # changes to archived entries

    def _list_spans(self, top: ArchiveTop) -> list[tuple[int, int]]:
        """Return the ts ranges of the archive that are not currently restored."""
        spans, start, now_s = list[tuple[int, int]](), 0, self._clock.time()
        current = [restored for restored in top.restored if restored.is_kept(now_s)]
        for restored in sorted(current, key=lambda restored: restored.first_ts):
            if restored.first_ts > start:
                spans.append((start, restored.first_ts - 1))
            start = max(start, restored.last_ts + 1)
        return [*spans, (start, top.ts)]
