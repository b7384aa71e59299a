"""Message context: one message by reference, and the messages before and after it.

A reference holds a message's seq or ts, and optionally its `mid`. A ts is converted to a seq first.
The message is then read as a history page, from whichever tier has it. No tier is searched by
`mid`: it is compared with the message found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from chatserver.domain.ids import ChatId, Mid, Seq, Ts, UserId
from chatserver.domain.membership import Reader
from chatserver.domain.messages import LogEntry
from chatserver.errors import BadRequest, NotFound
from chatserver.protocol import codec, frames
from chatserver.service.history.service import Page, Tier

_COLDER: Sequence[Tier] = ("hot", "warm", "cold")


class Pages(Protocol):
    """History pages."""

    async def get_page(self, reader: UserId, frame: frames.History) -> Page: ...


class MemberCheck(Protocol):
    """Read access of members."""

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader: ...


class HotLog(Protocol):
    """The hot part of a chat's history."""

    async def list_after(self, chat: ChatId, after: Seq, limit: int) -> list[LogEntry]: ...


class Places(Protocol):
    """Warm-tier messages by chat and ts."""

    async def get_many(
        self, places: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], frames.Message]: ...


class Archived(Protocol):
    """Archived messages."""

    async def find_at(self, chat: str, ts: int) -> frames.Message | None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """A client's reference to a message: at least one of seq and ts."""

    chat: ChatId
    seq: Seq | None = None
    ts: Ts | None = None
    mid: Mid | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ContextPage:
    """Messages as JSON, in ascending seq, contiguous. `tier` is the coldest tier that was read."""

    messages: list[bytes]
    tier: Tier
    has_older: bool
    has_newer: bool


class MessageContext:
    """Message context use cases."""

    def __init__(
        self,
        pages: Pages,
        members: MemberCheck,
        log: HotLog,
        places: Places,
        archived: Archived,
    ) -> None:
        self._pages = pages
        self._members = members
        self._log = log
        self._places = places
        self._archived = archived

    async def get_message(self, reader: UserId, reference: Reference) -> bytes:
        """Return a message as history shows it; a deleted message is returned as a tombstone.

        Guarantees:
            As `History.get_page`, for this one message.
            Cost: a page of one. With a ts alone: one GetItem more, or up to 20 Redis calls if the
            message is not stored yet, or an archive read.

        Raises:
            BadRequest: the reference has neither seq nor ts.
            NotFound: no such chat, not a member, no such message, or the reader may not see it.
        """
        seq = await self._find_seq(reader, reference)
        page = await self._read(reader, reference, limit=1, after=seq - 1)
        self._check(page.messages[:1], seq, reference)
        return page.messages[0]

    async def get_around(self, reader: UserId, reference: Reference, limit: int) -> ContextPage:
        """Return a message, up to ``limit // 2`` before it, and enough after it to reach `limit`.

        Guarantees and raises as `get_message`. Returns fewer only at the ends of the chat or at the
        byte limit of a page; see `has_older` and `has_newer`.
        """
        seq = await self._find_seq(reader, reference)
        older = await self._read(reader, reference, limit=limit // 2 + 1, before=seq + 1)
        self._check(older.messages[-1:], seq, reference)
        left = limit - len(older.messages)
        # With none left, one is read anyway: it shows whether there are newer messages.
        newer = await self._read(reader, reference, limit=max(left, 1), after=seq)
        messages = older.messages + newer.messages[:left]
        has_newer = newer.has_more or len(newer.messages) > left
        tier = max(older.tier, newer.tier, key=_COLDER.index)
        return ContextPage(messages, tier, older.has_more, has_newer)

    async def _read(
        self,
        reader: UserId,
        reference: Reference,
        *,
        limit: int,
        before: int | None = None,
        after: int | None = None,
    ) -> Page:
        frame = frames.History(0, reference.chat, before, after, limit)
        return await self._pages.get_page(reader, frame)

    def _check(self, found: Sequence[bytes], seq: int, reference: Reference) -> None:
        """Check that the message found matches the reference."""
        message = codec.decode_message(found[0]) if found else None
        if (
            message is None
            or message.seq != seq
            or reference.ts not in (None, message.ts)
            or reference.mid not in (None, message.mid)
        ):
            raise NotFound("message: the chat has no such message")

    async def _find_seq(self, reader: UserId, reference: Reference) -> Seq:
        if reference.seq is not None:
            return reference.seq
        if reference.ts is None:
            raise BadRequest("seq, ts: give at least one of them")
        chat, ts = reference.chat, reference.ts
        span = await self._members.get_reader(chat, reader)
        # The hot tier first: an entry reaches the tier below before it leaves its own.
        seq = await self._search_unstored(chat, ts, span)
        if seq is None:
            found = await self._places.get_many([(chat, ts)])
            seq = Seq(found[chat, ts].seq) if found else None
        if seq is None and (entry := await self._archived.find_at(chat, ts)) is not None:
            seq = Seq(entry.seq)
        if seq is None:
            raise NotFound("message: the chat has no such message")
        return seq

    async def _search_unstored(self, chat: ChatId, ts: Ts, span: Reader) -> Seq | None:
        """Return the seq at a ts among entries that may not be stored yet; ts rises with seq."""
        low, high = int(span.stored) + 1, int(span.head)
        probe = low  # entries older than the first of them are stored: the usual case
        while low <= high:
            entries = await self._log.list_after(chat, Seq(probe - 1), 1)
            if not entries or entries[0].ts == ts:
                return entries[0].seq if entries else None
            if entries[0].ts > ts:
                high = probe - 1
            else:
                low = entries[0].seq + 1
            probe = (low + high) // 2
        return None
