"""Message context: one message by reference, and the messages before and after it.

A reference has the message's seq or ts, and optionally its `mid`, which must then match. A ts is
first converted to a seq. The message is then read as a history page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import attrs

from chatserver.domain.ids import ChatId, Mid, Seq, Ts, UserId
from chatserver.domain.membership_periods import Reader
from chatserver.errors import BadRequest, NotFound
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.membership import MemberCheck
from chatserver.protocol import codec, frames
from chatserver.service.history.cold_log import ColdLog
from chatserver.service.history.history_pages import HistoryPages, Tier, TierPage
from chatserver.warm.messages.message_indexes import MessageIndexes

_NO_MESSAGE = "message: the chat has no such message"
_COLDEST_LAST: Sequence[Tier] = ("hot", "warm", "cold")


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """A client's reference to a message: seq or ts, and optionally `mid`."""

    chat: ChatId
    seq: Seq | None = None
    ts: Ts | None = None
    mid: Mid | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ContextPage:
    """Contiguous messages as JSON, in order of seq. `tier` is the coldest tier that was read."""

    messages: list[bytes]
    tier: Tier
    has_older: bool
    has_newer: bool


@attrs.define(eq=False, repr=False, kw_only=True)
class MessageContext:
    """Message context use cases."""

    _history: HistoryPages
    _members: MemberCheck
    _log: ChatLog
    _messages: MessageIndexes
    _cold: ColdLog

    async def get_message(self, reader: UserId, reference: Reference) -> bytes:
        """Return a message as history shows it; a deleted message is a tombstone.

        Guarantees:
            Same as `HistoryPages.get_page`.
            Cost: a history page with one message. With only a ts, also a search: up to 20 Redis
                calls if the message has not been stored yet; otherwise a GetItem, and an archive
                read if the message is archived.

        Raises:
            BadRequest: the reference has neither seq nor ts.
            NotFound: the chat or message does not exist, or the reader may not read it.
        """
        seq = await self._find_seq(reader, reference)
        page = await self._read(reader, reference, limit=1, after=seq - 1)
        self._check(page.messages[:1], seq, reference)
        return page.messages[0]

    async def get_context(self, reader: UserId, reference: Reference, limit: int) -> ContextPage:
        """Return a message and its neighbors, at most `limit` messages in total.

        Up to ``limit // 2`` messages precede the message. There are fewer than `limit` messages
        only at an end of the chat or at a page's byte limit; see `has_older` and `has_newer`.
        Same guarantees and errors as `get_message`.
        """
        seq = await self._find_seq(reader, reference)
        older = await self._read(reader, reference, limit=limit // 2 + 1, before=seq + 1)
        self._check(older.messages[-1:], seq, reference)
        remaining = limit - len(older.messages)
        # Even if the limit has been reached, one message is read to check for newer messages.
        newer = await self._read(reader, reference, limit=max(remaining, 1), after=seq)
        messages = older.messages + newer.messages[:remaining]
        has_newer = newer.has_more or len(newer.messages) > remaining
        tier = max(older.tier, newer.tier, key=_COLDEST_LAST.index)
        return ContextPage(messages, tier, older.has_more, has_newer)

    async def _read(
        self,
        reader: UserId,
        reference: Reference,
        *,
        limit: int,
        before: int | None = None,
        after: int | None = None,
    ) -> TierPage:
        frame = frames.History(0, reference.chat, before, after, limit)
        return await self._history.get_page(reader, frame)

    def _check(self, hidden: Sequence[bytes], seq: int, reference: Reference) -> None:
        message = codec.decode_message(hidden[0]) if hidden else None
        if (
            message is None
            or message.seq != seq
            or reference.ts not in (None, message.ts)
            or reference.mid not in (None, message.mid)
        ):
            raise NotFound(_NO_MESSAGE)

    async def _find_seq(self, reader: UserId, reference: Reference) -> Seq:
        if reference.seq is not None:
            return reference.seq
        if reference.ts is None:
            raise BadRequest("seq, ts: at least one of them is required")
        chat, ts = reference.chat, reference.ts
        span = await self._members.get_reader(chat, reader)
        # Search the hot tier first: an entry reaches the next tier before it leaves the hot tier.
        seq = await self._search_unstored(chat, ts, span)
        if seq is None:
            messages = await self._messages.get_many([(chat, ts)])
            seq = Seq(messages[chat, ts].seq) if messages else None
        if seq is None and (entry := await self._cold.find_at(chat, ts)) is not None:
            seq = Seq(entry.seq)
        if seq is None:
            raise NotFound(_NO_MESSAGE)
        return seq

    async def _search_unstored(self, chat: ChatId, ts: Ts, span: Reader) -> Seq | None:
        """Binary-search the entries that may not be stored yet; return the seq for `ts`, if any."""
        low, high = int(span.stored) + 1, int(span.head)
        probe = low  # seq to read next; usually, `ts` precedes all unstored entries
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
