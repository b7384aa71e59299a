"""Audit of one chat: compares a range of seqs at a time in Redis, DynamoDB and S3. Read-only.

::

    head ─► archived segments ─► later items in DynamoDB, by time ─► entries that only Redis has
              each range: read ─► inconsistent? ─► wait, read again ─► inconsistent? ─► finding

The head is the chat's newest seq in Redis. Workers may move entries during an audit, from Redis to
DynamoDB to S3. An entry is written to the next tier before it leaves the previous one. The tiers
are read in the same order, so a moving entry is found at least once. An inconsistency is reported
only if all `READS` reads find it.

The chat's list of active days (`chatserver.warm.messages.active_days`) must include the day of each
stored message. The list is read after the messages.

Memory: the entries of one range, which has up to three overlapping segments, or `PAGE` items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs
import msgspec

from chatserver.cold.client import ObjectMissing
from chatserver.cold.segment_objects import SegmentObjects
from chatserver.domain.archive_segments import ArchiveSegment
from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.seq_gap_checks import find_longest_increasing_subsequence
from chatserver.errors import CorruptData
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.operations.audit.consistency_rules import (
    RangeEntries,
    UnreadableSegment,
    Window,
    find_inconsistencies,
)
from chatserver.operations.audit.model import RuleFinding
from chatserver.protocol import codec
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import is_message
from chatserver.warm.archive.archivable_entries import ArchivableEntries, CheckedItem
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.messages.active_days import ANY_DAY, ActiveDays, get_day
from chatserver.warm.messages.seq_search import TS_MAX

PAGE: Final = 500
READS: Final = 3
OnProgress = Callable[[], Awaitable[None]]

_CLUSTER: Final = 3  # A range includes at most this many overlapping segments.


class Tally(msgspec.Struct):
    """Counts and findings of an audit."""

    chats: int = 0
    entries: int = 0
    unverified: int = 0  # number of items without a checksum
    shredded: int = 0  # entries whose encryption key was deleted; their bodies are not compared
    findings: list[RuleFinding] = []
    failed: dict[str, str] = {}  # chat → why its audit failed


class _Cursor(msgspec.Struct):
    """Progress of a chat's audit: the next seq, and the ts of the previous entry."""

    chat: ChatId
    log_first: int  # first seq in the chat's log in Redis
    known: int  # newest seq of the chat when the audit began
    seq: int = 1
    ts: int = -1
    is_beyond: bool = False  # True if `seq` is after the last segment
    # Maps a day (since 1970) to the first and last seq of its messages.
    days: dict[int, tuple[int, int]] = {}

    def add_days(self, entries: RangeEntries) -> None:
        """Add the days of the messages stored in a range."""
        stored = [
            item.message
            for item in entries.items
            if item.message is not None and item.verdict != "wrong"
        ]
        for entry in (*stored, *entries.cold.values()):
            if is_message(entry) and not entry.deleted:
                first, last = self.days.get(get_day(entry.ts), (entry.seq, entry.seq))
                self.days[get_day(entry.ts)] = min(first, entry.seq), max(last, entry.seq)

    def advance_past(self, window: Window) -> None:
        self.seq = max(self.seq, window.last + 1)
        self.ts = max(self.ts, window.to_ts)


@attrs.define(eq=False, repr=False, kw_only=True)
class Auditor:
    """Audits chats. `objects` must read from S3, not from a cache."""

    _log: ChatLog
    _find_backlog: Callable[[ChatId], Backlog]
    _archivable: ArchivableEntries
    _manifests: Manifests
    _days: ActiveDays
    _objects: SegmentObjects
    _confirm_s: float
    _sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def audit(self, chat: ChatId, tally: Tally, on_progress: OnProgress) -> None:
        """Audit a chat from its first entry to its last; update `tally`.

        Guarantees:
            Nothing is written. An entry that moves between tiers does not cause a finding.
            Cost: reads the chat's items and segments once, and inconsistent ranges three times.

        Raises:
            Unavailable: a tier does not respond; the chat was not checked completely.
        """
        tally.chats += 1
        try:
            await self._audit(chat, tally, on_progress)
        except CorruptData as exc:
            tally.findings.append(RuleFinding("manifest_unreadable", chat, 0, 0, exc.message))

    async def _audit(self, chat: ChatId, tally: Tally, on_progress: OnProgress) -> None:
        oldest = await self._log.list_after(chat, Seq(0), 1)
        head = await self._log.get_head(chat)
        cursor = _Cursor(chat, oldest[0].seq if oldest else 1, head.seq)
        is_rechecked = False
        while True:
            if not cursor.is_beyond:
                rows = await self._manifests.list_from(chat, cursor.seq, _CLUSTER)
                if rows:
                    await self._check(cursor, _build_archived_window(rows, cursor), None, tally)
                    await on_progress()
                    continue
                cursor.is_beyond = True
            page = await self._archivable.list_checked(chat, cursor.ts + 1, TS_MAX, PAGE + 1)
            if not is_rechecked and (not page or _first_seq(page) > cursor.seq):
                # The missing entries may have been archived since the segments were listed: list
                # them again.
                cursor.is_beyond, is_rechecked = False, True
                continue
            is_rechecked = False
            if not page:
                break
            window, body = _page_window(page, cursor)
            await self._check(cursor, window, body, tally)
            await on_progress()
        while cursor.seq <= (head.seq if head.is_open else 0):
            last = min(cursor.seq + PAGE - 1, head.seq)
            window = Window(cursor.seq, last, cursor.ts + 1, TS_MAX, is_tail=True)
            await self._check(cursor, window, None, tally)
            await on_progress()
        days = await self._check_days(cursor)
        tally.findings += days  # other chats may have changed `findings` meanwhile

    async def _check_days(self, cursor: _Cursor) -> list[RuleFinding]:
        """Check that the chat's list of active days has the day of each stored message."""
        # Read the list after the items, because a day is recorded before its messages are stored.
        active = (await self._days.find_many([cursor.chat])).get(cursor.chat, ANY_DAY)
        return [
            RuleFinding("day_missing", cursor.chat, first, last, f"day {day} since 1970")
            for day, (first, last) in sorted(cursor.days.items())
            if day not in active
        ]

    async def _check(
        self, cursor: _Cursor, window: Window, items: Sequence[CheckedItem] | None, tally: Tally
    ) -> None:
        """Check a range, up to `READS` times if inconsistent, and move the cursor past it."""
        entries = await self._read_range(cursor, window, items)
        inconsistencies = find_inconsistencies(entries)
        for number in range(1, READS):
            if not inconsistencies:
                break
            await self._sleep(self._confirm_s * number)
            entries = await self._read_range(cursor, window, None)
            rechecked = find_inconsistencies(entries)
            inconsistencies = [
                inconsistency
                for inconsistency in rechecked
                if any(inconsistency.is_like(other) for other in inconsistencies)
            ]
        confirmed = [
            inconsistency
            for inconsistency in inconsistencies
            if inconsistency.kind != "stored_behind" or await self._is_behind(inconsistency)
        ]
        tally.findings += confirmed
        tally.entries += max(0, window.last - window.first + 1)
        lost = {
            item.message.seq for item in entries.items if item.message and item.message.shredded
        }
        lost |= {seq for seq, entry in entries.cold.items() if entry.shredded}
        tally.shredded += len(lost)
        tally.unverified += sum(
            item.verdict == "unverified" and (item.message is None or item.message.seq not in lost)
            for item in entries.items
        )
        cursor.add_days(entries)
        if not window.is_tail:
            cursor.advance_past(window)
            return
        messages = [*entries.hot.values()]
        messages += [item.message for item in [*entries.items, *entries.markers] if item.message]
        cursor.seq = window.last + 1
        cursor.ts = max([cursor.ts, *(entry.ts for entry in messages if entry.seq <= window.last)])

    async def _is_behind(self, finding: RuleFinding) -> bool:
        """Return whether no persist worker will record the finding's entries as stored.

        A worker records the entries that the backlog still has, even if DynamoDB already has them.
        """
        chat = ChatId(finding.chat)
        # Read the backlog first: entries leave it after they are recorded.
        if await self._find_backlog(chat).has_entry(chat, finding.first, finding.last):
            return False
        head = await self._log.get_head(chat)
        return head.is_open and head.stored < finding.last

    async def _read_range(
        self, cursor: _Cursor, window: Window, items: Sequence[CheckedItem] | None
    ) -> RangeEntries:
        """Return the entries of a range from each tier, read in the order hot, warm, cold.

        `items`: the range's DynamoDB items, if they have just been read.
        """
        chat = cursor.chat
        head = await self._log.get_head(chat)
        hot = await self._read_log(cursor, window) if head.is_open else {}
        limit = 2 * PAGE if window.is_tail else None
        if items is None:
            items = await self._archivable.list_checked(chat, window.from_ts, window.to_ts, limit)
        marks = await self._archivable.list_markers(chat, window.from_ts, window.to_ts, limit)
        top = await self._manifests.get_top(chat)
        rows = await self._manifests.list_covering(chat, window.first, window.last)
        cold: dict[int, Message] = {}
        broken: list[UnreadableSegment] = []
        for row in rows:
            try:
                entries = await self._objects.read(row)
            except CorruptData as exc:
                broken.append(UnreadableSegment(row, isinstance(exc.__cause__, ObjectMissing)))
                continue
            for entry in entries:
                if window.first <= entry.seq <= window.last:
                    cold.setdefault(entry.seq, entry)
        return RangeEntries(
            chat=chat,
            window=window,
            stored=head.stored if head.is_open else window.last,
            head=head.seq if head.is_open else 0,
            known=cursor.known,
            top=top.seq,
            hot=hot,
            items=items,
            markers=marks,
            rows=rows,
            cold=cold,
            broken=broken,
        )

    async def _read_log(self, cursor: _Cursor, window: Window) -> dict[int, Message]:
        entries_by_seq: dict[int, Message] = {}
        first = max(window.first, cursor.log_first)
        for start in range(first, window.last + 1, PAGE):
            last = min(start + PAGE - 1, window.last)
            entries = await self._log.list_range(cursor.chat, Seq(start), Seq(last))
            if not entries:
                continue
            overlay = await self._log.list_overlay(cursor.chat, [entry.seq for entry in entries])
            for entry in entries:
                json = overlay.get(entry.seq, b"")
                if json[:1] != b"{":
                    json = codec.join_message(entry.seq, entry.ts, entry.tail)
                try:
                    entries_by_seq[entry.seq] = codec.decode_message(json)
                except msgspec.MsgspecError:
                    continue  # undecodable; reported as a dead letter
        return entries_by_seq


def _build_archived_window(rows: Sequence[ArchiveSegment], cursor: _Cursor) -> Window:
    """Return the range from the cursor to the end of the next segment (and of overlapping ones)."""
    last = rows[0]
    for row in rows[1:]:
        if row.first > last.last:
            break
        last = row
    return Window(cursor.seq, last.last, cursor.ts + 1, max(cursor.ts + 1, last.last_ts))


def _first_seq(page: Sequence[CheckedItem]) -> int:
    return next((item.message.seq for item in page if item.message is not None), 0)


def _page_window(
    page: Sequence[CheckedItem], cursor: _Cursor
) -> tuple[Window, Sequence[CheckedItem]]:
    """Return the range that a page of items covers, and the first `PAGE` items of the page.

    The range ends with the last item that is in seq order. The extra item at the end of `page`
    shows whether the item before it is in order.
    """
    body = page[:PAGE]
    seqs = [0 if item.message is None else item.message.seq for item in page]
    # Ignore items with a seq before the cursor.
    numbers = [number for number, seq in enumerate(seqs) if seq >= cursor.seq]
    rising = [
        numbers[position]
        for position in find_longest_increasing_subsequence([seqs[number] for number in numbers])
    ]
    last = max((seqs[number] for number in rising if number < len(body)), default=cursor.seq - 1)
    if not any(item.message for item in body):
        last = cursor.seq + len(body) - 1
    return Window(cursor.seq, last, cursor.ts + 1, body[-1].ts), body
