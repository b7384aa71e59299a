"""Log of large chats: entries as event bodies, in order of seq, for a gateway's channels.

A channel delivers the entries of one large chat to the sessions on its gateway
(`chatserver.gateway.delivery.large_chat_delivery`).

Expired entries have no text. All acked changes are applied (`reader_views`), so no reader gets
deleted text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.messages import LogEntry
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.protocol import codec
from chatserver.service.history.reader_views import (
    ALL,
    NO_CHANGES,
    NOTHING,
    ReaderViews,
    View,
    has_changes,
)


class ChannelEntry(NamedTuple):
    """An entry of a large chat, as an event body: the part of an event frame after the seq.

    If the entry changes the message at `target`, members who joined after `target` get `withheld`
    (the entry without its text) instead of `body`.
    """

    seq: Seq
    body: bytes
    target: Seq = Seq(0)
    withheld: bytes = b""


class LargeChatLog:
    """Reads the logs of large chats for gateway channels."""

    def __init__(self, log: ChatLog, views: ReaderViews, clock: Clock) -> None:
        self._log = log
        self._views = views
        self._clock = clock

    async def list_live(
        self, chat: ChatId, after: Seq, limit: int
    ) -> tuple[int | None, list[ChannelEntry]]:
        """Return `(large, entries)`, with the entries after seq `after`.

        The entries are rendered for all members. `large` is the chat version that made the chat
        large. If the chat is not large (0) or not loaded (None), there are no entries.
        """
        large, entries = await self._log.list_large(chat, after, limit)
        if not large or not entries:
            return large, []
        view = await self._views.open_shared(chat, [entry.seq for entry in entries])
        full = self._encode(chat, entries, view)
        if not has_changes(entries) or await self._log.is_earlier_history_readable(chat):
            return large, full
        bare = self._encode(chat, entries, dataclasses.replace(view, span=NOTHING))
        return large, [
            viewed if viewed.body == other.body else _make_withheld(viewed, entry, other.body)
            for viewed, entry, other in zip(full, entries, bare, strict=True)
        ]

    async def list_for(
        self, user: UserId, chat: ChatId, after: Seq, limit: int
    ) -> list[ChannelEntry]:
        """Return the entries after `after` as one member sees them."""
        entries = await self._log.list_after(chat, after, limit)
        if not entries:
            return []
        span = await self._views.find_span(user, chat, entries) if has_changes(entries) else ALL
        view = await self._views.open(user, chat, [entry.seq for entry in entries], span)
        return self._encode(chat, entries, view)

    def _encode(
        self, chat: ChatId, entries: Sequence[LogEntry], view: View = NO_CHANGES
    ) -> list[ChannelEntry]:
        now_s = self._clock.time()
        return [
            ChannelEntry(
                entry.seq,
                codec.encode_entry_event_body(
                    chat, entry.seq, entry.ts, view.render_entry(entry, now_s)
                ),
            )
            for entry in entries
        ]


def _make_withheld(view: ChannelEntry, entry: LogEntry, bare: bytes) -> ChannelEntry:
    message = codec.decode_message(codec.join_message(entry.seq, entry.ts, entry.tail))
    return ChannelEntry(view.seq, view.body, Seq(message.target or 0), bare)
