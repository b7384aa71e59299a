"""Restores archived entries to the warm tier for a limited time. The segments stay in place.

::

    range's row ─► page of the archive ─► items, unless newer ─► page unchanged? ─► checkpoint
         │                  ▲                                        │ no               │
         │                  └────────────────────────────────────────┴──────────────────┘ next
         └── from here on the archiver keeps the items of the range; the archive worker removes
             them after `until`

Resumable: items are written only if there is no newer item, and the row stores the progress. From
the row, readers know which part is in the warm tier; they read the rest from the archive.
"""

from __future__ import annotations

import bisect
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Collection
from typing import Final, NamedTuple

import attrs

from chatserver.cold.client import open_s3
from chatserver.cold.long_bodies import BodyFiles
from chatserver.cold.segment_objects import SegmentObjects
from chatserver.config import Settings
from chatserver.domain.archive_segments import ArchiveSegment, Restored
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq, Ts
from chatserver.errors import NotFound
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import is_message
from chatserver.service.history.cold_log import ColdLog
from chatserver.task_groups import map_concurrently
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.archive.restored_ranges import RestoredRanges
from chatserver.warm.chats.directory import Directory
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from chatserver.warm.messages.long_bodies import LongBodies
from chatserver.warm.messages.messages import PersistItem
from chatserver.warm.messages.sharded_chats import ShardedChats

PAGE: Final = 100
ROWS_PAGE: Final = 100
PUTS_IN_FLIGHT_MAX: Final = 16
UNITS_ESTIMATE: Final = 4.0  # estimated write units per entry, for its item and index entries


class Bound(NamedTuple):
    """Start or end of a range: a seq, or a ts if `is_time`."""

    value: int
    is_time: bool


class RestoreEstimate(NamedTuple):
    """Cost of restoring a range; removing its items later costs the same."""

    entries: int
    bytes: int
    write_units: int


class RestoreProgress(NamedTuple):
    """Work completed by `Restorer.restore`."""

    entries: int
    write_units: float


@attrs.define(eq=False, repr=False, kw_only=True)
class Restorer:
    """Restores ranges of archived entries."""

    _manifests: Manifests
    _rows: RestoredRanges
    _cold: ColdLog
    _archivable: ArchivableEntries
    _directory: Directory
    _pace: RateLimiter
    _clock: Clock

    async def find_range(
        self, chat: ChatId, start: Bound | None, end: Bound | None, until: int
    ) -> Restored:
        """Return the archived range between two inclusive bounds.

        Nothing is restored yet. `restore` will keep the items until `until`, in Unix seconds.

        Raises:
            NotFound: the range is empty.
            Unavailable: S3 or DynamoDB does not respond.
        """
        top = await self._manifests.get_top(chat)
        first, last = 1, int(top.seq)
        if start is not None:
            first = await self._find_at_or_after(chat, start) if start.is_time else start.value
        if end is not None and end.is_time:
            # `end` is inclusive: the range ends before the first entry with a later ts.
            last = await self._find_at_or_after(chat, Bound(end.value + 1, is_time=True)) - 1
        elif end is not None:
            last = end.value
        first, last = max(1, first), min(last, int(top.seq))
        if first > last:
            raise NotFound(
                f"chat {chat}: this range is not archived (the archive ends at {top.seq})"
            )
        ends = [(await self._cold.read(chat, seq, seq))[0] for seq in (first, last)]
        first_ts, last_ts = (Ts(entry.ts) for entry in ends)
        return Restored(Seq(first), Seq(last), first_ts, last_ts, until, done=first - 1)

    async def _find_at_or_after(self, chat: ChatId, bound: Bound) -> int:
        """Return the first archived seq at or after a ts, or the last archived seq plus 1."""
        after = 0
        async for row in self._iter_rows(chat, 1):
            if row.last_ts >= bound.value:
                entries = await self._cold.read(chat, row.first, row.last)
                return row.first + bisect.bisect_left([entry.ts for entry in entries], bound.value)
            after = row.last
        return after + 1

    async def _iter_rows(self, chat: ChatId, first: int) -> AsyncIterator[ArchiveSegment]:
        while rows := await self._manifests.list_from(chat, first, ROWS_PAGE):
            for row in rows:
                yield row
            first = rows[-1].last + 1

    async def estimate(self, chat: ChatId, restored: Restored) -> RestoreEstimate:
        """Estimate the cost of restoring the entries of a range that are not restored yet."""
        size, units = 0.0, 0.0
        chat_kind = await self._find_kind(chat)
        indexes = 3 if chat_kind == "direct" else 2
        async for row in self._iter_rows(chat, restored.done + 1):
            if row.first > restored.last:
                break
            count = min(row.last, restored.last) - max(row.first, restored.done + 1) + 1
            mean = row.raw_bytes / row.count
            size += mean * count
            units += count * (math.ceil(mean / 1024) + indexes)
        return RestoreEstimate(restored.last - restored.done, round(size), round(units))

    async def begin(self, chat: ChatId, requested: Restored) -> Restored:
        """Create the range's row, or extend the existing one; return the resulting range.

        Raises:
            Conflict: the range is being removed.
        """
        return await self._rows.begin(chat, requested, int(self._clock.time() * 1000))

    async def restore(
        self, chat: ChatId, restored: Restored, on_progress: Callable[[RestoreProgress], None]
    ) -> RestoreProgress:
        """Restore the entries of a range after `restored.done`; call `on_progress` after each page.

        Guarantees:
            Idempotent and resumable at any point. Newer items are never overwritten.

        Raises:
            Conflict: the range was removed during the call.
            Unavailable: a store does not respond; run it again.
        """
        users = await self._find_pair(chat)
        progress = RestoreProgress(0, 0.0)
        for first in range(restored.done + 1, restored.last + 1, PAGE):
            last = min(first + PAGE - 1, restored.last)
            units = await self._restore_page(chat, first, last, restored.until, users)
            failpoint("restore.before_record")
            await self._rows.record_done(chat, restored, last)
            failpoint("restore.after_record")
            progress = RestoreProgress(
                progress.entries + last - first + 1, progress.write_units + units
            )
            on_progress(progress)
        return progress

    async def _restore_page(
        self, chat: ChatId, first: int, last: int, until: int, users: Collection[str]
    ) -> float:
        async def put(entry: Message) -> float:
            await self._pace.acquire(UNITS_ESTIMATE)
            item = PersistItem(entry, _find_receiver(entry, users))
            units = await self._archivable.restore(item, until)
            self._pace.adjust(units - UNITS_ESTIMATE)
            return units

        units = 0.0
        while True:
            rows = await self._manifests.list_covering(chat, first, last)
            entries = await self._cold.read(chat, first, last)
            # Leave out expiring entries: they are archived as tombstones, and the warm tier still
            # has their item, or the marker that replaced it.
            back = [entry for entry in entries if entry.expires_at is None]
            units += sum(
                await map_concurrently(put, back, in_flight_max=PUTS_IN_FLIGHT_MAX, name="restore")
            )
            if rows == await self._manifests.list_covering(chat, first, last):
                return units
            # Since the read, a change has been merged into a segment, and its item has been
            # removed. Read the page again.

    async def _find_kind(self, chat: ChatId) -> str:
        try:
            return (await self._directory.get_chat(chat)).kind
        except NotFound:
            return "group"

    async def _find_pair(self, chat: ChatId) -> Collection[str]:
        try:
            chat_record, members = await self._directory.get_chat_with_members(chat)
        except NotFound:
            return ()
        return [member.user for member in members] if chat_record.kind == "direct" else ()


def _find_receiver(entry: Message, users: Collection[str]) -> str | None:
    """Return the receiver of a direct message; None for other entries."""
    if not is_message(entry) or entry.sender not in users:
        return None
    return next((user for user in users if user != entry.sender), None)


@contextlib.asynccontextmanager
async def open_restorer(
    settings: Settings, clock: Clock, write_units_per_s: int | None
) -> AsyncIterator[Restorer]:
    """Connect to DynamoDB and S3, and build a restorer."""
    async with open_dynamodb(settings.warm) as dynamodb, open_s3(settings.cold) as store:
        client = dynamodb.for_feature("archive")
        manifests = Manifests(client)
        shards = ShardedChats(client, clock)
        bodies = LongBodies(client, settings.warm, BodyFiles(store, client.cipher), clock, shards)
        archivable = ArchivableEntries(client, clock, shards, bodies)
        objects = SegmentObjects(store, settings.archive, client.cipher)
        yield Restorer(
            manifests=manifests,
            rows=RestoredRanges(client),
            cold=ColdLog(manifests=manifests, segments=objects, items=archivable, clock=clock),
            archivable=archivable,
            directory=Directory(client),
            pace=RateLimiter(write_units_per_s, clock),
            clock=clock,
        )
