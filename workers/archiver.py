"""Moves a chat's oldest entries from the warm tier into segments, and changes into segments.

::

    read ─► note ─► object ─► trails ─► segment's row and top, one transaction ─► remove items
             │                              │ conditional: nothing was archived meanwhile
             └── who dies leaves a note: the next run adopts the object, or removes it

Dies anywhere: until the transaction nothing is archived, and the object that is left has a note;
from then on readers find the entries in the archive, and what is still in the warm tier lies over
it, equal or newer, until it is removed. An item is removed only while it is what was read, so a
change that comes meanwhile stays, and `fold` writes it into the segment.

Where TTL removes (`archive.removal`), items that have `ttl` are copied and left to it; they are in
the archive as they are (`chatserver.warm.removal`), so what is below the top is looked at only
where a chat is said to have something else there: an item without `ttl`, which is folded and
removed. Who makes such an item, or is about to remove one, says so first.

An entry that is to expire is archived as its tombstone: its text stays in the warm tier until it
ends there, and never comes to S3.

What was restored (`workers.restorer`) has items beside its segments until its time is over. They
are as late changes are, but that they are not removed: what changes of them is folded.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

import structlog

from chatserver.cold.archive import SegmentObjects
from chatserver.config import Archive
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, new_id
from chatserver.domain.segments import ArchiveTop, Segment
from chatserver.protocol import codec
from chatserver.protocol.entries import tombstone_of
from chatserver.protocol.frames import Message
from chatserver.service.coldlog import lay_over
from chatserver.service.erasing import has_words
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.telemetry.tracing import Id, tracer
from chatserver.warm.aged import AgedMessages
from chatserver.warm.manifests import Manifests
from chatserver.warm.removal import Keeping
from chatserver.warm.restored import RestoredRows
from chatserver.warm.seqsearch import TS_MAX

log = structlog.get_logger()

LATE_PAGE: Final = 1000
US: Final = 1_000_000


class Visit(NamedTuple):
    """What came of looking at a chat."""

    moved: int  # entries
    due_ts: int  # nobody need look again before messages of then are old enough
    stuck_ts: int | None  # the oldest message that should have moved, and could not


def archived_form(entry: Message) -> Message:
    """Return what the archive keeps of an entry: of one that expires its place alone."""
    if entry.expires_at is None or entry.deleted:
        return entry
    return tombstone_of(entry, entry.rev)


async def _never() -> bool:
    return False


class Archiver:
    """Archives chats, one at a time."""

    def __init__(
        self,
        manifests: Manifests,
        objects: SegmentObjects,
        aged: AgedMessages,
        settings: Archive,
        clock: Clock,
        restored: RestoredRows,
        reads_ttl: Callable[[], Awaitable[bool]] = _never,
    ) -> None:
        """`reads_ttl`: whether TTL reads `ttl` yet; before that nothing is left to it."""
        self._tracer = tracer()
        self._restored = restored
        self._keeping = Keeping.by(settings)
        self._reads_ttl = reads_ttl
        self._manifests = manifests
        self._objects = objects
        self._aged = aged
        self._settings = settings
        self._clock = clock

    async def visit(self, chat: ChatId) -> Visit:
        """Archive what is old enough, and bring the archive of the chat up to date.

        Guarantees:
            Idempotent, and several at once do no harm: one of them goes on, the others are told.

        Raises:
            Conflict: somebody else is at it.
            Unavailable: a store does not answer; come again.
            CorruptData: the archive of the chat is not what its manifest says.
        """
        now_us = int(self._clock.time() * US)
        cutoff = now_us - self._settings.retention_s * US
        is_by_ttl = await self._is_by_ttl()
        if not is_by_ttl:
            for span in self._spans(await self._manifests.get_top(chat)):
                await self._fold_late(chat, *span, is_by_ttl=False)
        moved = 0
        while count := await self._take(chat, cutoff, is_by_ttl=is_by_ttl):
            moved += count
        await self._discard_notes(chat)
        due, stuck = await self._look_ahead(chat, cutoff, now_us, is_by_ttl=is_by_ttl)
        await self._manifests.note_due(chat, due)
        return Visit(moved, due, stuck)

    async def fold(self, chat: ChatId) -> None:
        """Write into their segments the changes that lie over them; what they replace is removed.

        Guarantees and errors as `visit`. Texts that were deleted in the warm tier before the call
        are in no object any more.
        """
        top = await self._manifests.get_top(chat)
        await self._fold_late(chat, 0, top.ts, is_by_ttl=await self._is_by_ttl())
        await self._discard_notes(chat)

    async def end_restored(self, chat: ChatId) -> bool:
        """Take away what was restored until now; True if nothing of the chat is restored any more.

        Guarantees and errors as `visit`. What changed is in its segment before its item goes.
        """
        for held in (await self._manifests.get_top(chat)).restored:
            if held.is_kept(self._clock.time()):
                continue
            if held.is_ending or await self._restored.declare_ending(chat, held):
                failpoint("restore.before_removal")
                await self._fold_late(
                    chat, held.first_ts, held.last_ts, is_by_ttl=await self._is_by_ttl()
                )
                failpoint("restore.after_removal")
                await self._restored.drop(chat, held)
        await self._discard_notes(chat)
        return not (await self._manifests.get_top(chat)).restored

    async def _is_by_ttl(self) -> bool:
        return self._keeping.is_by_ttl and await self._reads_ttl()

    # what is old enough

    async def _take(self, chat: ChatId, cutoff: int, *, is_by_ttl: bool) -> int:
        """Archive one segment's worth; return how many entries that was, 0 if there are too few."""
        top = await self._manifests.get_top(chat)
        entries_max = self._settings.segment_entries_max
        run, ttls = await self._aged.list_run(chat, top.seq, top.ts, cutoff, entries_max)
        if not run:
            return 0
        small = await self._find_small(chat, top)
        held = list(await self._objects.read(small)) if small else []
        run = self._fit(run, entries_max - len(held), small)
        is_enough = len(run) + len(held) >= self._settings.segment_entries_min
        if not is_enough and run[0].ts > cutoff - self._settings.wait_s * US:
            return 0
        removed = [entry for entry in run if not is_by_ttl or self._is_ours(entry, ttls)]
        if is_by_ttl and removed:
            # Should we die before they are removed.
            await self._manifests.note_late(chat, int(self._clock.time() * 1000))
        entries, from_ns = [*held, *map(archived_form, run)], time.time_ns()
        await self._write(entries, small, top, "filled" if small else "written")
        await self._aged.remove(removed, self._settings.deletes_in_flight_max)
        failpoint("archive.after_remove")
        metrics.ARCHIVED.inc(len(run))
        if self._tracer is not None:
            for entry in run:
                place: dict[str, Id] = {"chat": entry.chat, "seq": entry.seq}
                self._tracer.tell(entry.mid, "archive", from_ns, time.time_ns(), **place)
        return len(run)

    def _is_ours(self, entry: Message, ttls: Mapping[int, int | None]) -> bool:
        """Tell whether an entry has an item that TTL does not remove soon, or at its end."""
        if entry.seq not in ttls:
            return False
        ttl = ttls[entry.seq]
        ends = ttl is not None and entry.expires_at is not None
        return not ends and not self._keeping.is_soon(ttl, self._clock.time())

    async def _find_small(self, chat: ChatId, top: ArchiveTop) -> Segment | None:
        """Return the newest segment, if there is room in it that should be filled."""
        found = await self._manifests.list_covering(chat, top.seq, top.seq)
        last = found[0] if found else None
        if last is None or last.count >= self._settings.segment_entries_min:
            return None
        return last if last.raw_bytes < self._settings.segment_bytes_max // 2 else None

    def _fit(self, run: Sequence[Message], room: int, small: Segment | None) -> list[Message]:
        """Return as many entries as a segment may have."""
        left = self._settings.segment_bytes_max - (small.raw_bytes if small else 0)
        fitting: list[Message] = []
        for entry in run[:room]:
            left -= len(codec.encode(entry)) + 1
            if left < 0 and fitting:
                break
            fitting.append(entry)
        return fitting

    async def _look_ahead(
        self, chat: ChatId, cutoff: int, now_us: int, *, is_by_ttl: bool
    ) -> tuple[int, int | None]:
        """Return when to look again, and what should have moved and could not."""
        top = await self._manifests.get_top(chat)
        due, stuck = now_us, None
        retention_us = self._settings.retention_s * US
        for from_ts, to_ts in [] if is_by_ttl else self._spans(top):
            for left in await self._aged.list_between(chat, from_ts, to_ts, LATE_PAGE):
                # Yet to expire, or changed while it was archived.
                ends = left.expires_at
                due = min(due, left.ts if ends is None else ends * US - retention_us)
        following = await self._aged.list_between(chat, top.ts + 1, TS_MAX, 1)
        if following:
            oldest = following[0]
            wait_us = self._settings.wait_s * US if oldest.ts <= cutoff else 0
            due = min(due, oldest.ts + wait_us)
            if oldest.ts <= cutoff - wait_us and oldest.seq != top.seq + 1:
                stuck = oldest.ts
                metrics.HISTORY_GAPS.labels("archive").inc()
                log.error("archive.gap", chat=chat, archived=top.seq, oldest=oldest.seq)
        return due, stuck

    # what changed after it was archived

    def _spans(self, top: ArchiveTop) -> list[tuple[int, int]]:
        """Return the times of what is archived, without what is kept in the warm tier besides."""
        spans, start, now_s = list[tuple[int, int]](), 0, self._clock.time()
        kept = [held for held in top.restored if held.is_kept(now_s)]
        for held in sorted(kept, key=lambda held: held.first_ts):
            if held.first_ts > start:
                spans.append((start, held.first_ts - 1))
            start = max(start, held.last_ts + 1)
        return [*spans, (start, top.ts)]

    async def _fold_late(self, chat: ChatId, from_ts: int, to_ts: int, *, is_by_ttl: bool) -> None:
        """Write what lies over segments in ``[from_ts, to_ts]`` into them, and remove it."""
        top = await self._manifests.get_top(chat)
        read = self._aged.list_untimed if is_by_ttl else self._aged.list_between
        while late := await read(chat, from_ts, to_ts, LATE_PAGE):
            rows = await self._manifests.list_covering(chat, late[0].seq, late[-1].seq)
            for row in rows:
                mine = [entry for entry in late if row.first <= entry.seq <= row.last]
                if mine:
                    await self._fold_into(row, mine, top)
            from_ts = late[-1].ts + 1

    async def _fold_into(self, row: Segment, late: Sequence[Message], top: ArchiveTop) -> None:
        entries = list(await self._objects.read(row))
        folded = [archived_form(entry) for entry in lay_over(entries, late)]
        if folded != entries:
            await self._write(folded, row, top, "rewritten")
        now_s = self._clock.time()
        kept = [held for held in top.restored if held.is_kept(now_s)]
        gone = [e for e in late if not any(held.first <= e.seq <= held.last for held in kept)]
        await self._aged.remove(gone, self._settings.deletes_in_flight_max)
        failpoint("archive.after_fold")

    # writing

    async def _write(
        self, entries: Sequence[Message], replaced: Segment | None, top: ArchiveTop, what: str
    ) -> None:
        """Make a segment of entries."""
        segment, data = await self._objects.encode(entries, new_id().lower())
        orphan = await self._find_orphan(segment)
        if orphan is None:
            await self._manifests.note(segment)
            failpoint("archive.before_object")
        else:
            segment = orphan
        await self._objects.put(segment, data)
        failpoint("archive.after_object")
        speakers = {entry.sender for entry in entries if has_words(entry)}
        await self._manifests.note_trails(speakers, segment.chat, segment.first)
        failpoint("archive.before_commit")
        await self._manifests.commit(segment, replaced, top)
        failpoint("archive.after_commit")
        metrics.SEGMENTS.labels(what).inc()
        metrics.SEGMENT_BYTES.inc(segment.stored_bytes)

    async def _find_orphan(self, segment: Segment) -> Segment | None:
        """Return an object that somebody died over, and that is what we are going to write."""
        for noted, is_dead in await self._manifests.list_notes(segment.chat):
            if not is_dead and dataclasses.replace(segment, tag=noted.tag) == noted:
                log.info("archive.adopted", key=noted.key)
                return noted
        return None

    async def _discard_notes(self, chat: ChatId) -> None:
        """Remove what was replaced, and what somebody died over."""
        for noted, is_dead in await self._manifests.list_notes(chat):
            if is_dead or await self._manifests.declare_dead(noted):
                failpoint("archive.before_discard")
                await self._objects.remove(noted)
                await self._manifests.drop_note(noted)
