"""DynamoDB and archive lookups for `chatserver trace`. Read-only.

No index contains message ids (mids), because that would cost a write unit per message. A message is
found by reading a chat's items whose ts is near the creation time in the id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from chatserver.cold.segment_objects import SegmentObjects
from chatserver.domain.archive_segments import ArchiveSegment
from chatserver.domain.ids import ChatId, Mid, Seq, Ts, UserId
from chatserver.errors import CorruptData, Unavailable
from chatserver.operations.trace.model import InWarm, LocatedMessage
from chatserver.protocol.frames import Message
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.chats.chat_scan import iter_chats
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.legal_holds import Holds
from chatserver.warm.chats.memberships import Memberships
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.messages import removed_message_markers
from chatserver.warm.messages.chat_partition_reads import ALL_AT_ONCE, ChatPartitionReads
from chatserver.warm.messages.checksums import verify
from chatserver.warm.messages.long_bodies import LongBodies, get_object_key
from chatserver.warm.messages.messages import decode_each, decode_item
from chatserver.warm.schema.tables import MESSAGES
from chatserver.warm.schema.tables import MessageField as Field

# maximum items read per chat, and as many markers: 25,000 read units if each has 1 KB
ROWS_MAX = 100_000
SEGMENTS_MAX = 8  # maximum segments read per chat


class WarmTrace:
    def __init__(
        self, *, client: DynamoClient, bodies: LongBodies, segments: SegmentObjects
    ) -> None:
        self._client = client
        self._bodies = bodies
        self._segments = segments
        self._rows = ChatPartitionReads(client)
        self._manifests = Manifests(client)
        self._memberships = Memberships(client)
        self._directory = Directory(client)
        self._holds = Holds(client)

    async def iter_chats(self) -> AsyncIterator[list[ChatId]]:
        async for page in iter_chats(self._client):
            yield page

    async def list_chats(self, user: UserId, limit: int) -> list[ChatId]:
        chats: list[ChatId] = []
        start: Any = None
        while len(chats) < limit:
            page = await self._directory.list_memberships(user, limit=200, start=start)
            chats += [ChatId(item.chat.chat) for item in page.items]
            if (start := page.next) is None:
                break
        return chats[:limit]

    async def find(self, chat: ChatId, mid: Mid, from_ts: int, to_ts: int) -> LocatedMessage | None:
        """Return the message if its item, or the marker that outlives it, is in ``[from_ts,
        to_ts]``.

        Cost: reads up to `ROWS_MAX` of the chat's items, then up to `ROWS_MAX` of its markers.
        """
        for partition in (chat, removed_message_markers.get_partition(chat)):
            item = await self._find_row(partition, mid, from_ts, to_ts)
            if item is not None:
                is_marker = partition != chat
                sender = item[Field.AUTHOR if is_marker else Field.SENDER]["S"]
                return LocatedMessage(
                    chat=chat,
                    seq=Seq(int(item[Field.SEQ]["N"])),
                    ts=Ts(int(item[Field.TS]["N"])),
                    sender=sender,
                    kind=item[Field.KIND]["S"],
                    source="marker" if is_marker else "warm",
                )
        return None

    async def _find_row(self, partition: str, mid: Mid, from_ts: int, to_ts: int) -> Item | None:
        span = Span(MESSAGES, partition, between=(from_ts, to_ts))
        source, scanned = await self._rows.open(span, where=Attr(Field.MID) == mid), 0
        while scanned < ROWS_MAX:
            rows, count, after = await source.read(ALL_AT_ONCE)
            scanned += count
            if rows:
                return rows[0]
            if after is None:
                return None
        raise Unavailable(
            f"DynamoDB partition {partition}: the message is not among the first {ROWS_MAX} "
            "entries of the searched time range; the rest was not searched"
        )

    async def find_archived(
        self, chat: ChatId, mid: Mid, from_ts: int, to_ts: int
    ) -> LocatedMessage | None:
        """Return the message if a segment that overlaps ``[from_ts, to_ts]`` contains it.

        Raises:
            Unavailable: S3 does not respond, or more than `SEGMENTS_MAX` segments overlap that
            interval.
            CorruptData: an object fails its checksum.
        """
        segments = await self._manifests.list_at(chat, from_ts, to_ts)
        for segment in segments[:SEGMENTS_MAX]:
            for entry in await self._segments.read(segment):
                if entry.mid == mid:
                    position = Seq(entry.seq), Ts(entry.ts)
                    return LocatedMessage(chat, *position, entry.sender, entry.kind, "cold")
        if len(segments) > SEGMENTS_MAX:
            raise Unavailable(
                f"chat {chat}: more than {SEGMENTS_MAX} archive segments could contain the "
                "message; only the first of them were searched"
            )
        return None

    async def find_state(self, chat: ChatId, ts: Ts) -> InWarm | None:
        """Return the state of the item (or of the marker that outlives it) at `ts`, or None."""
        for partition in (chat, removed_message_markers.get_partition(chat)):
            span = Span(MESSAGES, partition, between=(ts, ts))
            rows = await self._rows.list(span, 1)
            if rows:
                return await self._describe(rows[0], is_marker=partition != chat)
        return None

    async def _describe(self, item: Item, *, is_marker: bool) -> InWarm:
        message = removed_message_markers.decode_marker(item) if is_marker else decode_item(item)
        key = None if is_marker else get_object_key(item)
        size = len(message.body.encode())
        if key is not None:
            size = int(item[Field.BODY_BYTES]["N"])
        return InWarm(
            partition=item[Field.CHAT]["S"],
            is_marker=is_marker,
            rev=message.rev or 1,
            is_deleted=message.deleted,
            edited_seq=message.edited_seq or None,
            reactions=len(message.reactions),
            attachments=len(message.attachments),
            expires_at=message.expires_at,
            ttl=_find_number(item, Field.TTL),
            restored_until=_find_number(item, Field.RESTORED),
            body="object" if key else "inline" if size else "none",
            body_bytes=size,
            body_key=key,
            checksum=await self._verify(item, message, key),
        )

    async def _verify(self, item: Item, message: Message, key: str | None) -> str:
        if key is None:
            return verify(item, message)
        try:
            (whole,) = await decode_each([item], self._bodies)
        except Unavailable:
            return "unverified"
        except CorruptData:
            return "wrong"
        return "unverified" if whole is None else verify(item, whole)

    async def find_segment(self, chat: ChatId, seq: Seq) -> tuple[int, ArchiveSegment | None]:
        """Return `(top, segment)`: the last archived seq, and the segment that contains `seq`."""
        top, segments = await asyncio.gather(
            self._manifests.get_top(chat), self._manifests.list_covering(chat, seq, seq)
        )
        return top.seq, segments[0] if segments else None

    async def is_whole(self, segment: ArchiveSegment) -> bool:
        """Return whether a segment's object matches its checksum.

        Raises:
            Unavailable: S3 does not respond.
        """
        try:
            await self._segments.read(segment)
        except CorruptData:
            return False
        return True

    async def find_hold(self, chat: ChatId) -> int | None:
        """Return when the chat's legal hold started (ms), or None."""
        hold = await self._holds.find(chat)
        return None if hold is None else hold.since_ms

    async def list_members(
        self, chat: ChatId, limit: int
    ) -> tuple[int, list[tuple[UserId, int, int, int]]]:
        """Return the member count, and `(user, joined, read, received)` for the first members.

        Raises:
            NotFound: the chat does not exist.
        """
        record, members = await self._memberships.list_first(chat, limit)
        rows = [(UserId(m.user), m.joined, m.read, m.received) for m in members[:limit]]
        return record.count or len(rows), rows


def _find_number(item: Item, name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None
