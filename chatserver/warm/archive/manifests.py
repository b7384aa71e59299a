"""Archive manifests: the segments of each chat, in table `directory`.

| record  | `PK`        | `SK`                          | attributes                               |
|---------|-------------|-------------------------------|------------------------------------------|
| top     | `a#<chat>`  | `a#<chat>`                    | `last last_ts`: of the newest segment    |
| segment | `a#<chat>`  | `s#<last, 20 digits>#<chat>`  | `first last first_ts last_ts raw_bytes   |
|         |             |                               | stored_bytes sha256 tag`                 |
| orphan  | `a#<chat>`  | `x#<first>#<last>#<tag>`      | as segment; `dead` (optional)            |
| late    | `a#late`    | `a#late#<chat>`               | `at`: time of the chat's last change     |
| trail   | `u#<user>`  | `archived#<chat>#<seq>`       | none: the segment that begins at this    |
|         |             |                               | seq has messages from the user           |

An *orphan* records an S3 object that is not a segment: it has not been committed yet, or it has
been replaced. A *late* record marks a chat whose archived entries have changed. Partition
`a#<chat>` also has the restored ranges (`chatserver.warm.archive.restored_ranges`).

The orphan is written before the S3 object. One transaction then commits the segment: it deletes the
orphan, puts the segment, updates the top, and adds an orphan marked `dead` for the replaced object.
Therefore, every object in the bucket has a record, even after a crash. Cleanup deletes only the
objects of dead orphans. A dead orphan cannot be committed, so cleanup never deletes an object that
another process is about to commit. A `tag`, the suffix of an object's key, is never reused.

Invariant: a chat's segments cover ``1..top`` without overlap or gap, because each new segment must
begin just after the top or replace an unchanged segment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from chatserver.domain.archive_segments import (
    NOTHING_ARCHIVED,
    TRAIL_PREFIX,
    ArchiveSegment,
    ArchiveTop,
    Restored,
)
from chatserver.domain.ids import ChatId, Seq, Ts
from chatserver.errors import Conflict, CorruptData
from chatserver.warm.archive import restored_ranges
from chatserver.warm.archive.restored_ranges import PendingChats
from chatserver.warm.chats.chat_scan import IS_CHAT, get_scanned_chat
from chatserver.warm.chats.directory_items import chat_key, row_key, user_key
from chatserver.warm.dynamo.batched_reads import BatchedReads
from chatserver.warm.dynamo.batches import WRITES_MAX, put_items
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.codecs import Codec
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.item_attributes import get_number
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField
from chatserver.warm.schema.tables import SegmentField as Field

_LATE: Final = "a#late"
_SEGMENT_PREFIX: Final = "s#"
_ORPHAN_PREFIX: Final = "x#"
_PAGE: Final = 16  # maximum segments per Query; a history page rarely needs more than two


_ATTRIBUTES: Final[dict[str, Any]] = {
    "first": Field.FIRST,
    "last": Field.LAST,
    "first_ts": Field.FIRST_TS,
    "last_ts": Field.LAST_TS,
    "raw_bytes": Field.RAW_BYTES,
    "stored_bytes": Field.STORED_BYTES,
    "sha256": Field.SHA256,
    "tag": Field.TAG,
}
SEGMENT: Final = Codec(ArchiveSegment, "a#{chat}", "s#{last:020d}#{chat}", **_ATTRIBUTES)
ORPHAN: Final = Codec(ArchiveSegment, "a#{chat}", "x#{first:020d}#{last:020d}#{tag}", **_ATTRIBUTES)


def _partition(chat: str) -> str:
    return f"a#{chat}"


class Manifests:
    """Repository of archive manifests."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client
        self._table = Table(client, DIRECTORY)
        self._reads = BatchedReads(client, self._table.name)
        self.late = PendingChats(self._table, _LATE)

    # Reads. All are strongly consistent.

    async def has_top(self, chat: str) -> bool:
        """Return whether any entry of a chat is archived. Concurrent callers share a call."""
        return bool(await self._reads.get([row_key(_partition(chat), _partition(chat))]))

    async def get_top(self, chat: str) -> ArchiveTop:
        """Return a chat's last archived seq and ts, and its restored ranges. Cost: one Query."""
        between = (_partition(chat), restored_ranges.RANGES_END)
        span = Span(DIRECTORY, _partition(chat), between=between)
        top: Item | None = None
        ranges: list[Restored] = []
        async for rows in self._table.iter_query(span):
            for row in rows:
                if restored_ranges.is_range(row):
                    ranges.append(restored_ranges.RANGE.decode(row))
                else:
                    top = row
        if top is None:
            return NOTHING_ARCHIVED
        return ArchiveTop(
            Seq(get_number(top, Field.LAST)), Ts(get_number(top, Field.LAST_TS)), tuple(ranges)
        )

    async def list_from(self, chat: str, seq: int, limit: int) -> list[ArchiveSegment]:
        """Return at most `limit` segments that end at `seq` or later, ordered by last seq.

        The segments are not validated and may overlap.
        """
        between = (f"{_SEGMENT_PREFIX}{seq:020d}", "s$")  # '$' sorts right after '#'
        span = Span(DIRECTORY, _partition(chat), between=between)
        return list(map(SEGMENT.decode, await self._table.query(span, limit=limit)))

    async def list_covering(self, chat: str, first: int, last: int) -> list[ArchiveSegment]:
        """Return the segments that overlap the seqs ``[first, last]``, in order of seq."""
        covering: list[ArchiveSegment] = []
        start = max(1, first)
        while start <= last:
            segments = await self.list_from(chat, start, _PAGE)
            covering += [segment for segment in segments if segment.first <= last]
            if len(segments) < _PAGE or segments[-1].first > last:
                return covering
            start = segments[-1].last + 1
        return covering

    async def find_at(self, chat: str, ts: int) -> ArchiveSegment | None:
        """Return the segment whose time range contains `ts`. Reads all of the chat's segments."""
        async for rows in self._iter_at(chat, ts, ts):
            if rows:
                return SEGMENT.decode(rows[0])
        return None

    async def list_at(self, chat: str, from_ts: int, to_ts: int) -> list[ArchiveSegment]:
        """Return the segments that overlap ``[from_ts, to_ts]``. Reads all the chat's segments."""
        pages = self._iter_at(chat, from_ts, to_ts)
        return [SEGMENT.decode(row) async for rows in pages for row in rows]

    def _iter_at(self, chat: str, from_ts: int, to_ts: int) -> AsyncIterator[list[Item]]:
        span = Span(DIRECTORY, _partition(chat), prefix=_SEGMENT_PREFIX)
        overlaps = (Attr(Field.FIRST_TS) <= to_ts) & (Attr(Field.LAST_TS) >= from_ts)
        return self._table.iter_query(span, where=overlaps)

    async def list_orphans(self, chat: str) -> list[tuple[ArchiveSegment, bool]]:
        """Return `(orphan, is_dead)` for each orphan of a chat; `is_dead`: it may be deleted."""
        span = Span(DIRECTORY, _partition(chat), prefix=_ORPHAN_PREFIX)
        return [
            (ORPHAN.decode(row), Field.IS_DEAD in row)
            async for rows in self._table.iter_query(span)
            for row in rows
        ]

    # Writes.

    async def add_orphan(self, segment: ArchiveSegment) -> None:
        """Record a segment's object as an orphan. Call this before writing the object.

        A retry does not revive an orphan that has been marked as dead meanwhile.
        """
        is_new = Attr(DirectoryField.PK).is_absent
        await try_write(self._table.put(ORPHAN.encode(segment), if_=is_new))

    async def commit(
        self, segment: ArchiveSegment, replaced: ArchiveSegment | None, top: ArchiveTop
    ) -> None:
        """Commit a segment whose object is recorded as an orphan; replace `replaced`, if given.

        Pass `top` and `replaced` as last read.

        Guarantees:
            Atomic and idempotent. The object of `replaced` becomes a dead orphan.

        Raises:
            Conflict: the chat's archive was changed concurrently.
            CorruptData: the segment does not begin just after `top`, or does not cover `replaced`.
            Unavailable: the segment may or may not be committed.
        """
        begins = top.seq + 1 if replaced is None else replaced.first
        if segment.first != begins or segment.last < (replaced.last if replaced else begins):
            raise CorruptData(
                f"{segment.key}: does not continue the archive, which ends at {top.seq}"
            )
        is_alive = Attr(DirectoryField.PK).exists & Attr(Field.IS_DEAD).is_absent
        actions = [
            self._table.delete_action(_orphan_key(segment), if_=is_alive),
            *self._put_segment(segment, replaced),
        ]
        if segment.last > top.seq:
            actions.append(self._move_top(segment, top))
        try:
            await self._client.transact(actions)
        except ConditionFailed as exc:
            # An earlier attempt may have committed the segment without receiving the response.
            if segment not in await self.list_covering(segment.chat, segment.first, segment.first):
                raise Conflict(f"archive of {segment.chat}: changed concurrently") from exc

    def _put_segment(
        self, segment: ArchiveSegment, replaced: ArchiveSegment | None
    ) -> list[Action]:
        item = SEGMENT.encode(segment)
        if replaced is None:
            return [self._table.put_action(item, if_=Attr(DirectoryField.PK).is_absent)]
        is_as_read = Attr(Field.TAG) == replaced.tag
        dead = self._table.put_action(ORPHAN.encode(replaced), {Field.IS_DEAD: True})
        if replaced.last == segment.last:
            return [dead, self._table.put_action(item, if_=is_as_read)]
        old = SEGMENT.key(chat=segment.chat, last=replaced.last)
        delete = self._table.delete_action(old, if_=is_as_read)
        return [dead, delete, self._table.put_action(item)]

    def _move_top(self, segment: ArchiveSegment, top: ArchiveTop) -> Action:
        key = _partition(segment.chat), _partition(segment.chat)
        is_unchanged = Attr(Field.LAST).matches(None if top == NOTHING_ARCHIVED else top.seq)
        last = {Field.LAST: segment.last, Field.LAST_TS: segment.last_ts}
        return self._table.put_action(key, last, if_=is_unchanged)

    async def mark_dead(self, segment: ArchiveSegment) -> bool:
        """Allow the deletion of an orphan's object; return False if it was committed or deleted.

        If a response is lost, `add_orphan` is sent again. Meanwhile, another process may have
        committed the segment, so its object is recorded as an orphan although it is needed. Such a
        record is deleted.
        """
        key, exists = _orphan_key(segment), Attr(DirectoryField.PK).exists
        update = self._table.update_action(key, {Field.IS_DEAD: True}, if_=exists)
        if await try_write(self._client.transact([update, self._check_uncommitted(segment)])):
            return True
        if segment in await self.list_covering(segment.chat, segment.first, segment.first):
            is_alive = Attr(Field.IS_DEAD).is_absent
            await try_write(self._table.delete(key, if_=is_alive))
        return False

    def _check_uncommitted(self, segment: ArchiveSegment) -> Action:
        key, tag = SEGMENT.key(chat=segment.chat, last=segment.last), Attr(Field.TAG)
        return self._table.check_action(key, if_=tag.is_absent | (tag != segment.tag))

    async def add_dead_orphan(self, segment: ArchiveSegment) -> None:
        """Record an object as an orphan that may be deleted, unless its segment is committed.

        A dead orphan cannot be committed any more. Call this after a conflict: the record of
        `add_orphan` may have been deleted while the object was written.
        """
        dead = self._table.put_action(ORPHAN.encode(segment), {Field.IS_DEAD: True})
        await try_write(self._client.transact([dead, self._check_uncommitted(segment)]))

    async def delete_orphan(self, segment: ArchiveSegment) -> None:
        """Delete an orphan whose object has been deleted. Idempotent."""
        await self._table.delete(_orphan_key(segment))

    async def record_late(self, chat: str, at_ms: int) -> None:
        """Record that archived entries of a chat will change. Call this before the change."""
        await self._table.put(*self.late.build_record(chat, at_ms))

    # Trails: which segments have messages from a user.

    async def record_trails(self, users: Iterable[str], chat: str, seq: int) -> None:
        """Record that the segment that begins at `seq` has messages from these users."""
        sort = f"{TRAIL_PREFIX}{chat}#{seq:020d}"
        rows = [row_key(user_key(user), sort) for user in sorted(set(users))]
        for start in range(0, len(rows), WRITES_MAX):
            await put_items(self._client, self._table.name, rows[start : start + WRITES_MAX])

    # Chats due for archiving.

    async def list_due_chats(
        self, part: int, parts: int, before_ts: int, start: Item | None
    ) -> tuple[list[ChatId], Item | None]:
        """Return `(chats, start)`: chats that may have unarchived messages before `before_ts`.

        Scans one page of part `part` of `parts`: about 8,000 items for 128 read units. The returned
        `start` is for the next page; None at the end.
        """
        is_due = Attr(DirectoryField.DUE_TS).is_absent | (Attr(DirectoryField.DUE_TS) < before_ts)
        scan = self._table.build_scan(
            part, parts, where=IS_CHAT & is_due, only=(DirectoryField.PK,), start=start
        )
        response = await self._client.call("scan", scan)
        return list(map(get_scanned_chat, response["Items"])), response.get("LastEvaluatedKey")

    async def record_due(self, chat: str, ts: int) -> None:
        """Record when the chat is due: `list_due_chats` lists it if `before_ts` is after `ts`."""
        key, exists = (chat_key(chat), chat_key(chat)), Attr(DirectoryField.PK).exists
        await try_write(self._table.update(key, {DirectoryField.DUE_TS: ts}, if_=exists))


def _orphan_key(segment: ArchiveSegment) -> Key:
    return ORPHAN.key(chat=segment.chat, first=segment.first, last=segment.last, tag=segment.tag)
