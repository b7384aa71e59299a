"""One message of a chat by what a reference to it says, and what stands around it.

A reference holds a message's seq, or its ts, and perhaps its `mid`. The seq is a place in history,
so a page of history answers, from whatever tier has it; a ts is turned into a seq first. No tier
is searched by `mid`: it is compared with what stands at the place.
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
from chatserver.service.history import Page, Tier

_COLDER: Sequence[Tier] = ("hot", "warm", "cold")


class Pages(Protocol):
    """History."""

    async def get_page(self, reader: UserId, frame: frames.History) -> Page: ...


class MemberCheck(Protocol):
    """Says who may read."""

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader: ...


class HotLog(Protocol):
    """The hot part of a chat."""

    async def list_after(self, chat: ChatId, after: Seq, limit: int) -> list[LogEntry]: ...


class Places(Protocol):
    """The warm tier's messages by place."""

    async def get_many(
        self, places: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], frames.Message]: ...


class Archived(Protocol):
    """Messages that have left the warm tier."""

    async def find_at(self, chat: str, ts: int) -> frames.Message | None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """What a client knows of a message: at least one of seq and ts."""

    chat: ChatId
    seq: Seq | None = None
    ts: Ts | None = None
    mid: Mid | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Surroundings:
    """Messages as JSON, in rising seq, without a hole. `tier` is the coldest that was asked."""

    messages: list[bytes]
    tier: Tier
    has_older: bool
    has_newer: bool


class Around:
    """The use cases."""

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
        """Return a message as history shows it: of a deleted one, its place.

        Guarantees:
            As `History.get_page`, for this one message.
            Cost: a page of one; with a ts alone, one GetItem more, or up to 20 Redis calls if it
            is not stored yet, or what reading the archive costs.

        Raises:
            BadRequest: the reference has neither seq nor ts.
            NotFound: no such chat, not a member, no such message, or it is not the reader's to see.
        """
        seq = await self._find_seq(reader, reference)
        page = await self._read(reader, reference, limit=1, after=seq - 1)
        self._check(page.messages[:1], seq, reference)
        return page.messages[0]

    async def get_around(self, reader: UserId, reference: Reference, limit: int) -> Surroundings:
        """Return a message, up to ``limit // 2`` before it, and as many after as make up `limit`.

        Guarantees and raises as `get_message`. Fewer only where the chat ends, or at the bound of a
        page's bytes; `has_older` and `has_newer` tell.
        """
        seq = await self._find_seq(reader, reference)
        older = await self._read(reader, reference, limit=limit // 2 + 1, before=seq + 1)
        self._check(older.messages[-1:], seq, reference)
        left = limit - len(older.messages)
        # With none left, one is read all the same: it tells whether there is one.
        newer = await self._read(reader, reference, limit=max(left, 1), after=seq)
        messages = older.messages + newer.messages[:left]
        has_newer = newer.has_more or len(newer.messages) > left
        tier = max(older.tier, newer.tier, key=_COLDER.index)
        return Surroundings(messages, tier, older.has_more, has_newer)

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
        """See that what stands at the place is what the reference names."""
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
        # The hot tier first: what leaves a tier meanwhile is in the one below it by then.
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
        """Return the seq at a ts among the entries that may not be stored; ts rises with seq."""
        low, high = int(span.stored) + 1, int(span.head)
        probe = low  # what is older than the first of them is stored: the usual case
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
