"""Device sync: inbox events that a device missed, with the messages they refer to.

Messages are read from the chat logs. If a chat was evicted (`chatserver.hot.chats.eviction`), its
messages are read from the warm tier. `chatserver.domain.cursor_coverage` decides whether Redis
still has all missed events.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence

import attrs

from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import ChatId, Seq, Ts, UserId
from chatserver.domain.inboxes import InboxEntry
from chatserver.domain.messages import LogEntry
from chatserver.domain.page_limits import WIDEST, PageBounds
from chatserver.errors import ChatError
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.service.history.history_pages import WarmHistory
from chatserver.service.history.reader_views import NO_CHANGES, ReaderViews, View, has_changes

OLDER_CHATS_MAX = 16  # maximum chats per page whose messages are read from older tiers


class EventsLost(ChatError):
    """Events that the device missed are no longer available; the device must load a snapshot."""


@dataclasses.dataclass(frozen=True, slots=True)
class Missed:
    """A missed inbox event: its inbox seq, and its body, which follows the seq in the frame."""

    seq: Seq
    body: bytes


@attrs.define(eq=False, repr=False, kw_only=True)
class DeviceSync:
    """Reads the events after a cursor."""

    _inboxes: Inboxes
    _log: ChatLog
    _older: WarmHistory | None = None
    _clock: Clock = attrs.field(factory=SystemClock)
    _views: ReaderViews | None = None
    _pages: PageBounds = WIDEST

    async def list_missed(self, user: UserId, after: Seq, limit: int) -> list[Missed]:
        """Return up to `limit` contiguous events after `after`, within the page limits.

        An empty list means that there are no later events.

        Raises:
            EventsLost: the next event has been trimmed from the inbox, or no tier has its message.
            Unavailable: a required tier does not respond.
        """
        entries = await self._inboxes.list_after(user, after, min(limit, self._pages.items_max))
        if not entries:
            return []
        if entries[0].seq != after + 1:
            raise EventsLost("missed events are no longer in the inbox; load a snapshot")
        chats = list({entry.chat for entry in entries if entry.chat is not None})
        messages, views = await asyncio.gather(
            self._read_messages(user, entries), self._open_views(user, chats)
        )
        views |= await self._limit_views(user, messages, views)
        missed: list[Missed] = []
        size, now_s = 0, self._clock.time()
        for entry in entries:
            if entry.chat is None:
                body = entry.body or b""
            else:
                message = messages.get((entry.chat, entry.cs))
                if message is None:
                    break
                tail = views.get(entry.chat, NO_CHANGES).render_entry(message, now_s)
                body = codec.encode_entry_event_body(entry.chat, message.seq, message.ts, tail)
            size += len(body)
            if missed and size > self._pages.bytes_max:
                return missed
            missed.append(Missed(entry.seq, body))
        if not missed:
            raise EventsLost("a missed message is no longer available; load a snapshot")
        return missed

    async def _open_views(self, user: UserId, chats: Sequence[ChatId]) -> dict[ChatId, View]:
        """Return the user's views of the chats in which the user has hidden messages."""
        if self._views is None:
            return {}
        hidden = await self._views.list_hidden(user, chats)
        return {chat: View({}, seqs) for chat, seqs in hidden.items()}

    async def _limit_views(
        self,
        user: UserId,
        messages: Mapping[tuple[ChatId, Seq], LogEntry],
        views: Mapping[ChatId, View],
    ) -> dict[ChatId, View]:
        """For chats with changes in `messages`, return views limited to what the user may read."""
        if self._views is None:
            return {}
        changes: dict[ChatId, list[LogEntry]] = {}
        for (chat, _), entry in messages.items():
            if has_changes([entry]):
                changes.setdefault(chat, []).append(entry)
        reads = (self._views.find_span(user, chat, entries) for chat, entries in changes.items())
        spans = await asyncio.gather(*reads)
        return {
            chat: dataclasses.replace(views.get(chat, NO_CHANGES), span=span)
            for chat, span in zip(changes, spans, strict=True)
        }

    async def _read_messages(
        self, user: UserId, entries: Sequence[InboxEntry]
    ) -> dict[tuple[ChatId, Seq], LogEntry]:
        seqs_by_chat: dict[ChatId, list[Seq]] = {}
        for entry in entries:
            if entry.chat is not None:
                seqs_by_chat.setdefault(entry.chat, []).append(entry.cs)
        # An inbox refers to nearly all entries of its chats, so reading one range of seqs
        # per chat wastes little.
        ranges = [(chat, min(seqs), max(seqs)) for chat, seqs in seqs_by_chat.items()]
        pages = await asyncio.gather(*(self._log.list_range(*seq_range) for seq_range in ranges))
        messages = {
            (chat, message.seq): message
            for (chat, _, _), page in zip(ranges, pages, strict=True)
            for message in page
        }
        # A log loses its oldest entries first. Only a log restored from an older state may have
        # other gaps; a page ends before such a gap.
        missing = [seq_range for seq_range in ranges if seq_range[:2] not in messages]
        if missing and self._older is not None:
            await self._add_older(user, missing[:OLDER_CHATS_MAX], messages, self._older)
        return messages

    async def _add_older(
        self,
        user: UserId,
        ranges: Sequence[tuple[ChatId, Seq, Seq]],
        messages: dict[tuple[ChatId, Seq], LogEntry],
        older: WarmHistory,
    ) -> None:
        """Add the messages in `ranges` from older tiers; the chats' logs start at later seqs."""

        async def read(chat: ChatId, first: int, last: int) -> None:
            limit, view = min(last - first + 1, frames.PAGE_MAX), NO_CHANGES
            if self._views is not None:
                view = await self._views.open(user, chat, range(first, first + limit))
            for message in (await older.read_run(chat, None, first - 1, limit, None)).messages:
                current = view.render_message(message, self._clock.time())
                entry = LogEntry(Seq(current.seq), Ts(current.ts), codec.encode_tail(current))
                messages.setdefault((chat, entry.seq), entry)

        await asyncio.gather(*(read(*seq_range) for seq_range in ranges))
