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

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

from chatserver.config import Warm
from chatserver.domain.archive_segments import (
    NOTHING_ARCHIVED,
    TRAIL_PREFIX,
    ArchiveTop,
    Restored,
    Segment,
)
from chatserver.domain.ids import ChatId, Seq, Ts
from chatserver.errors import Conflict, CorruptData
from chatserver.warm.archive import restored_ranges
from chatserver.warm.chats.directory_items import chat_key, row_key, user_key
from chatserver.warm.dynamo.batched_reads import BatchedReads
from chatserver.warm.dynamo.batches import WRITES_MAX, put_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import get_number
from chatserver.warm.dynamo.items import iter_pages, write_conditionally
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField
from chatserver.warm.schema.tables import SegmentField as Field

_LATE: Final = "a#late"
_SEGMENT_PREFIX: Final = "s#"
_ORPHAN_PREFIX: Final = "x#"
_PAGE: Final = 16  # maximum segments per Query; a history page rarely needs more than two


@dataclasses.dataclass(frozen=True, slots=True)
class LateChat:
    """A chat whose archived entries have changed, most recently at `at_ms`."""

    chat: ChatId
    at_ms: int


def _partition(chat: str) -> str:
    return f"a#{chat}"


def segment_sort(chat: str, last: int) -> str:
    return f"{_SEGMENT_PREFIX}{last:020d}#{chat}"


def orphan_sort(segment: Segment) -> str:
    return f"{_ORPHAN_PREFIX}{segment.first:020d}#{segment.last:020d}#{segment.tag}"


class Manifests:
    """Repository of archive manifests."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)
        self._reads = BatchedReads(client, self._table)

    # Reads. All are strongly consistent.

    async def has_top(self, chat: str) -> bool:
        """Return whether any entry of a chat is archived. Concurrent callers share a call."""
        return bool(await self._reads.get([row_key(_partition(chat), _partition(chat))]))

    async def get_top(self, chat: str) -> ArchiveTop:
        """Return a chat's last archived seq and ts, and its restored ranges. Cost: one Query."""
        between = (_partition(chat), restored_ranges.RANGES_END)
        request = Span(DIRECTORY, _partition(chat), between=between).query(self._settings)
        top: Item | None = None
        ranges: list[Restored] = []
        async for rows in iter_pages(self._client, "query", {**request, "ConsistentRead": True}):
            for row in rows:
                if restored_ranges.is_range(row):
                    ranges.append(restored_ranges.decode_range(row))
                else:
                    top = row
        if top is None:
            return NOTHING_ARCHIVED
        return ArchiveTop(
            Seq(get_number(top, Field.LAST)), Ts(get_number(top, Field.LAST_TS)), tuple(ranges)
        )

    async def list_from(self, chat: str, seq: int, limit: int) -> list[Segment]:
        """Return at most `limit` segments that end at `seq` or later, ordered by last seq.

        The segments are not validated and may overlap.
        """
        between = (f"{_SEGMENT_PREFIX}{seq:020d}", "s$")  # '$' sorts right after '#'
        request = Span(DIRECTORY, _partition(chat), between=between).query(self._settings)
        page = {"ConsistentRead": True, "Limit": limit}
        return [
            decode_segment(row)
            for row in (await self._client.call("query", {**request, **page}))["Items"]
        ]

    async def list_covering(self, chat: str, first: int, last: int) -> list[Segment]:
        """Return the segments that overlap the seqs ``[first, last]``, in order of seq."""
        covering: list[Segment] = []
        start = max(1, first)
        while start <= last:
            segments = await self.list_from(chat, start, _PAGE)
            covering += [segment for segment in segments if segment.first <= last]
            if len(segments) < _PAGE or segments[-1].first > last:
                return covering
            start = segments[-1].last + 1
        return covering

    async def find_at(self, chat: str, ts: int) -> Segment | None:
        """Return the segment whose time range contains `ts`. Reads all of the chat's segments."""
        async for rows in self._iter_at(chat, ts, ts):
            if rows:
                return decode_segment(rows[0])
        return None

    async def list_at(self, chat: str, from_ts: int, to_ts: int) -> list[Segment]:
        """Return the segments that overlap ``[from_ts, to_ts]``. Reads all the chat's segments."""
        pages = self._iter_at(chat, from_ts, to_ts)
        return [decode_segment(row) async for rows in pages for row in rows]

    def _iter_at(self, chat: str, from_ts: int, to_ts: int) -> AsyncIterator[list[Item]]:
        span = Span(DIRECTORY, _partition(chat), prefix=_SEGMENT_PREFIX)
        request: dict[str, Any] = {**span.query(self._settings), "ConsistentRead": True}
        request["FilterExpression"] = "#first <= :to AND #last >= :from"
        names = {"#first": Field.FIRST_TS, "#last": Field.LAST_TS}
        request["ExpressionAttributeNames"] |= names
        ends = {":from": {"N": str(from_ts)}, ":to": {"N": str(to_ts)}}
        request["ExpressionAttributeValues"] |= ends
        return iter_pages(self._client, "query", request)

    async def list_orphans(self, chat: str) -> list[tuple[Segment, bool]]:
        """Return `(orphan, is_dead)` for each orphan of a chat; `is_dead`: it may be deleted."""
        span = Span(DIRECTORY, _partition(chat), prefix=_ORPHAN_PREFIX)
        request = {**span.query(self._settings), "ConsistentRead": True}
        return [
            (decode_segment(row), Field.IS_DEAD in row)
            async for rows in iter_pages(self._client, "query", request)
            for row in rows
        ]

    # Writes.

    async def add_orphan(self, segment: Segment) -> None:
        """Record a segment's object as an orphan. Call this before writing the object."""
        row = row_key(_partition(segment.chat), orphan_sort(segment)) | encode_segment(segment)
        await self._client.call("put_item", {"TableName": self._table, "Item": row})

    async def commit(self, segment: Segment, replaced: Segment | None, top: ArchiveTop) -> None:
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
        actions = [self._delete_orphan(segment), *self._put_segment(segment, replaced)]
        if segment.last > top.seq:
            actions.append(self._move_top(segment, top))
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed as exc:
            # An earlier attempt may have committed the segment without receiving the response.
            if segment not in await self.list_covering(segment.chat, segment.first, segment.first):
                raise Conflict(f"archive of {segment.chat}: changed concurrently") from exc

    def _delete_orphan(self, segment: Segment) -> dict[str, Any]:
        return {
            "Delete": {
                "TableName": self._table,
                "Key": row_key(_partition(segment.chat), orphan_sort(segment)),
                "ConditionExpression": "attribute_exists(#pk) AND attribute_not_exists(#dead)",
                "ExpressionAttributeNames": {"#pk": DirectoryField.PK, "#dead": Field.IS_DEAD},
            }
        }

    def _put_segment(self, segment: Segment, replaced: Segment | None) -> list[dict[str, Any]]:
        sort = segment_sort(segment.chat, segment.last)
        item = row_key(_partition(segment.chat), sort) | encode_segment(segment)
        put: dict[str, Any] = {"TableName": self._table, "Item": item}
        if replaced is None:
            put["ConditionExpression"] = "attribute_not_exists(#pk)"
            put["ExpressionAttributeNames"] = {"#pk": DirectoryField.PK}
            return [{"Put": put}]
        is_as_read: dict[str, Any] = {
            "ConditionExpression": "#tag = :tag",
            "ExpressionAttributeNames": {"#tag": Field.TAG},
            "ExpressionAttributeValues": {":tag": {"S": replaced.tag}},
        }
        orphan = row_key(_partition(segment.chat), orphan_sort(replaced)) | encode_segment(replaced)
        actions = [
            {"Put": {"TableName": self._table, "Item": orphan | {Field.IS_DEAD: {"BOOL": True}}}}
        ]
        if replaced.last == segment.last:
            return [*actions, {"Put": put | is_as_read}]
        old = row_key(_partition(segment.chat), segment_sort(segment.chat, replaced.last))
        delete = {"TableName": self._table, "Key": old, **is_as_read}
        return [*actions, {"Delete": delete}, {"Put": put}]

    def _move_top(self, segment: Segment, top: ArchiveTop) -> dict[str, Any]:
        item = row_key(_partition(segment.chat), _partition(segment.chat))
        item[Field.LAST] = {"N": str(segment.last)}
        item[Field.LAST_TS] = {"N": str(segment.last_ts)}
        put: dict[str, Any] = {"TableName": self._table, "Item": item}
        if top == NOTHING_ARCHIVED:
            put["ConditionExpression"] = "attribute_not_exists(#pk)"
            put["ExpressionAttributeNames"] = {"#pk": DirectoryField.PK}
        else:
            put["ConditionExpression"] = "#last = :last"
            put["ExpressionAttributeNames"] = {"#last": Field.LAST}
            put["ExpressionAttributeValues"] = {":last": {"N": str(top.seq)}}
        return {"Put": put}

    async def mark_dead(self, segment: Segment) -> bool:
        """Allow the deletion of an orphan's object; return False if it was committed or deleted."""
        request = {
            "TableName": self._table,
            "Key": row_key(_partition(segment.chat), orphan_sort(segment)),
            "UpdateExpression": "SET #dead = :yes",
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": DirectoryField.PK, "#dead": Field.IS_DEAD},
            "ExpressionAttributeValues": {":yes": {"BOOL": True}},
        }
        return await write_conditionally(self._client, "update_item", request)

    async def delete_orphan(self, segment: Segment) -> None:
        """Delete an orphan whose object has been deleted. Idempotent."""
        key = row_key(_partition(segment.chat), orphan_sort(segment))
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    # Late records: chats whose archived entries have changed.

    async def record_late(self, chat: str, at_ms: int) -> None:
        """Record that archived entries of a chat will change. Call this before the change."""
        item = row_key(_LATE, f"{_LATE}#{chat}") | {Field.AT: {"N": str(at_ms)}}
        await self._client.call("put_item", {"TableName": self._table, "Item": item})

    async def list_late(self) -> list[LateChat]:
        """Return the chats whose archived entries have changed."""
        request = {**Span(DIRECTORY, _LATE).query(self._settings), "ConsistentRead": True}
        return [
            LateChat(
                ChatId(row[DirectoryField.SK]["S"].removeprefix(f"{_LATE}#")),
                get_number(row, Field.AT),
            )
            async for rows in iter_pages(self._client, "query", request)
            for row in rows
        ]

    async def delete_late(self, late: LateChat) -> None:
        """Remove a chat from `list_late`, unless its entries have changed since `late` was read."""
        request = {
            "TableName": self._table,
            "Key": row_key(_LATE, f"{_LATE}#{late.chat}"),
            "ConditionExpression": "#at = :at",
            "ExpressionAttributeNames": {"#at": Field.AT},
            "ExpressionAttributeValues": {":at": {"N": str(late.at_ms)}},
        }
        with contextlib.suppress(ConditionFailed):
            await self._client.call("delete_item", request)

    # Trails: which segments have messages from a user.

    async def record_trails(self, users: Iterable[str], chat: str, seq: int) -> None:
        """Record that the segment that begins at `seq` has messages from these users."""
        sort = f"{TRAIL_PREFIX}{chat}#{seq:020d}"
        rows = [row_key(user_key(user), sort) for user in sorted(set(users))]
        for start in range(0, len(rows), WRITES_MAX):
            await put_items(self._client, self._table, rows[start : start + WRITES_MAX])

    # Chats due for archiving.

    async def list_due_chats(
        self, part: int, parts: int, before_ts: int, start: Item | None
    ) -> tuple[list[ChatId], Item | None]:
        """Return `(chats, start)`: chats that may have unarchived messages before `before_ts`.

        Scans one page of part `part` of `parts`: about 8,000 items for 128 read units. The returned
        `start` is for the next page; None at the end.
        """
        request: dict[str, Any] = {
            "TableName": self._table,
            "Segment": part,
            "TotalSegments": parts,
            "ProjectionExpression": "#pk",
            "FilterExpression": (
                "begins_with(#pk, :chat) AND attribute_exists(#version) "
                "AND (attribute_not_exists(#due) OR #due < :ts)"
            ),
            "ExpressionAttributeNames": {
                "#pk": DirectoryField.PK,
                "#version": DirectoryField.VERSION,
                "#due": DirectoryField.DUE_TS,
            },
            "ExpressionAttributeValues": {
                ":ts": {"N": str(before_ts)},
                ":chat": {"S": chat_key("")},
            },
        }
        if start is not None:
            request["ExclusiveStartKey"] = start
        response = await self._client.call("scan", request)
        prefix = chat_key("")
        chats = [
            ChatId(row[DirectoryField.PK]["S"].removeprefix(prefix)) for row in response["Items"]
        ]
        return chats, response.get("LastEvaluatedKey")

    async def record_due(self, chat: str, ts: int) -> None:
        """Record when the chat is due: `list_due_chats` lists it if `before_ts` is after `ts`."""
        request = {
            "TableName": self._table,
            "Key": row_key(chat_key(chat), chat_key(chat)),
            "UpdateExpression": "SET #due = :ts",
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {
                "#pk": DirectoryField.PK,
                "#due": DirectoryField.DUE_TS,
            },
            "ExpressionAttributeValues": {":ts": {"N": str(ts)}},
        }
        with contextlib.suppress(ConditionFailed):
            await self._client.call("update_item", request)


def encode_segment(segment: Segment) -> Item:
    numbers: Sequence[tuple[str, int]] = (
        (Field.FIRST, segment.first),
        (Field.LAST, segment.last),
        (Field.FIRST_TS, segment.first_ts),
        (Field.LAST_TS, segment.last_ts),
        (Field.RAW_BYTES, segment.raw_bytes),
        (Field.STORED_BYTES, segment.stored_bytes),
    )
    item: Item = {name: {"N": str(value)} for name, value in numbers}
    return item | {Field.SHA256: {"S": segment.sha256}, Field.TAG: {"S": segment.tag}}


def decode_segment(item: Item) -> Segment:
    try:
        return Segment(
            chat=ChatId(item[DirectoryField.PK]["S"].removeprefix("a#")),
            first=Seq(get_number(item, Field.FIRST)),
            last=Seq(get_number(item, Field.LAST)),
            first_ts=Ts(get_number(item, Field.FIRST_TS)),
            last_ts=Ts(get_number(item, Field.LAST_TS)),
            raw_bytes=get_number(item, Field.RAW_BYTES),
            stored_bytes=get_number(item, Field.STORED_BYTES),
            sha256=item[Field.SHA256]["S"],
            tag=item[Field.TAG]["S"],
        )
    except (KeyError, ValueError) as exc:
        key = {name: item.get(name) for name in DIRECTORY.key.names}
        raise CorruptData(
            f"table directory: the item at {key} is not an archive record: {exc!r}"
        ) from exc
