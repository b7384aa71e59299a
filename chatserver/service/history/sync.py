"""Device sync: missed inbox entries with the messages they refer to.

Messages are usually read from the chat logs. A chat that was idle for long has left the hot tier
(`chatserver.hot.chats.eviction`); its messages are read from the warm tier.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import ChatId, Seq, Ts, UserId
from chatserver.domain.inboxes import InboxEntry
from chatserver.domain.messages import LogEntry
from chatserver.domain.page_limits import WIDEST, PageBounds
from chatserver.errors import ChatError
from chatserver.protocol import codec, frames
from chatserver.service.history.views import NO_CHANGES, View, Views, has_changes

WARM_CHATS_MAX = 16  # chats of one page whose messages are read from the warm tier


class EventsLost(ChatError):
    """The hot tier lacks events that the device missed: it must start from a snapshot."""


class InboxReader(Protocol):
    """Reads inboxes."""

    async def list_after(self, user: UserId, after: Seq, limit: int) -> list[InboxEntry]: ...


class LogReader(Protocol):
    """Reads chat logs."""

    async def list_range(self, chat: ChatId, first: Seq, last: Seq) -> list[LogEntry]: ...


class WarmLog(Protocol):
    """The warm part of a chat's history."""

    async def read_history(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> list[frames.Message]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Missed:
    """An inbox event: its seq and the shared part of its frame."""

    seq: Seq
    body: bytes


class Sync:
    """Reads the events after a cursor."""

    def __init__(
        self,
        inboxes: InboxReader,
        logs: LogReader,
        warm: WarmLog | None = None,
        clock: Clock | None = None,
        views: Views | None = None,
        pages: PageBounds = WIDEST,
    ) -> None:
        self._pages = pages
        self._views = views
        self._inboxes = inboxes
        self._logs = logs
        self._warm = warm
        self._clock = clock or SystemClock()

    async def list_missed(self, user: UserId, after: Seq, limit: int) -> list[Missed]:
        """Return up to `limit` events after `after`, contiguous, within the page limits.

        An empty list means that there are no later events.

        Raises:
            EventsLost: the next event has left the inbox, or no tier has a message of it.
            Unavailable: a required tier does not respond.
        """
        entries = await self._inboxes.list_after(user, after, min(limit, self._pages.items_max))
        if not entries:
            return []
        if entries[0].seq != after + 1:
            raise EventsLost("events have left the inbox")
        chats = list({entry.chat for entry in entries if entry.chat is not None})
        messages, views = await asyncio.gather(
            self._read_messages(user, entries), self._open_views(user, chats)
        )
        views |= await self._withhold(user, messages, views)
        missed: list[Missed] = []
        size, now_s = 0, self._clock.time()
        for entry in entries:
            if entry.chat is None:
                body = entry.body or b""
            else:
                found = messages.get((entry.chat, entry.cs))
                if found is None:
                    break
                tail = views.get(entry.chat, NO_CHANGES).see_entry(found, now_s)
                body = codec.entry_event_body(entry.chat, found.seq, found.ts, tail)
            size += len(body)
            if missed and size > self._pages.bytes_max:
                return missed
            missed.append(Missed(entry.seq, body))
        if not missed:
            raise EventsLost("a message has left the log")
        return missed

    async def _open_views(self, user: UserId, chats: Sequence[ChatId]) -> dict[ChatId, View]:
        """Return the user's views. No overlay: changes follow as entries of their own."""
        if self._views is None:
            return {}
        hidden = await self._views.list_hidden(user, chats)
        return {chat: View({}, seqs) for chat, seqs in hidden.items()}

    async def _withhold(
        self,
        user: UserId,
        messages: Mapping[tuple[ChatId, Seq], LogEntry],
        views: Mapping[ChatId, View],
    ) -> dict[ChatId, View]:
        """Return the views of chats with changes, limited to the user's read access."""
        source = self._views
        if source is None:
            return {}
        changes: dict[ChatId, list[LogEntry]] = {}
        for (chat, _), entry in messages.items():
            if has_changes([entry]):
                changes.setdefault(chat, []).append(entry)
        found = (source.find_span(user, chat, entries) for chat, entries in changes.items())
        spans = await asyncio.gather(*found)
        return {
            chat: dataclasses.replace(views.get(chat, NO_CHANGES), span=span)
            for chat, span in zip(changes, spans, strict=True)
        }

    async def _read_messages(
        self, user: UserId, entries: Sequence[InboxEntry]
    ) -> dict[tuple[ChatId, Seq], LogEntry]:
        wanted: dict[ChatId, list[Seq]] = {}
        for entry in entries:
            if entry.chat is not None:
                wanted.setdefault(entry.chat, []).append(entry.cs)
        # An inbox holds every message of its chats, so the refs of a chat are dense.
        ranges = [(chat, min(seqs), max(seqs)) for chat, seqs in wanted.items()]
        pages = await asyncio.gather(*(self._logs.list_range(*spot) for spot in ranges))
        messages = {
            (chat, found.seq): found
            for (chat, _, _), page in zip(ranges, pages, strict=True)
            for found in page
        }
        # A log loses its oldest entries first. A log of an older state has gaps, which end the
        # page.
        lacking = [
            (chat, first, last) for chat, first, last in ranges if (chat, first) not in messages
        ]
        if lacking and self._warm is not None:
            await self._read_warm(user, lacking[:WARM_CHATS_MAX], messages, self._warm)
        return messages

    async def _read_warm(
        self,
        user: UserId,
        lacking: Sequence[tuple[ChatId, Seq, Seq]],
        messages: dict[tuple[ChatId, Seq], LogEntry],
        warm: WarmLog,
    ) -> None:
        """Add messages of the warm tier for ranges that start below the logs."""

        async def read(chat: ChatId, first: int, last: int) -> None:
            limit, view = min(last - first + 1, frames.PAGE_MAX), NO_CHANGES
            if self._views is not None:
                view = await self._views.open(user, chat, range(first, first + limit))
            for message in await warm.read_history(chat, None, first - 1, limit, None):
                seen = view.see_message(message, self._clock.time())
                entry = LogEntry(Seq(seen.seq), Ts(seen.ts), codec.tail_of(seen))
                messages.setdefault((chat, entry.seq), entry)

        await asyncio.gather(*(read(*spot) for spot in lacking))
