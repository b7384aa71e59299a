"""Message query filter: selects the messages that the reader may see, in their current state.

The filter removes messages that are unreadable, deleted or expired, or that the reader has deleted
for themselves. It applies changes that have not been stored yet.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import attrs

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership_periods import Periods, Reader
from chatserver.domain.messages import ChatHead
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.protocol.frames import INT_MAX, Message
from chatserver.protocol.message_change_effects import is_message
from chatserver.service.history.cold_log import ColdLog
from chatserver.service.history.reader_views import ReaderViews, View
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.warm.chats.memberships import Memberships
from chatserver.warm.messages.message_indexes import MessageIndexes

_MessageKey = tuple[str, int]  # key of a message: chat and ts


@attrs.frozen(eq=False, repr=False, kw_only=True)
class QuerySources:
    """The tiers that queries read, and the readers' access to chats."""

    messages: MessageIndexes
    memberships: Memberships
    log: ChatLog
    older: WarmAndColdLog
    cold: ColdLog
    views: ReaderViews
    clock: Clock


class ArchivedEntry(NamedTuple):
    """An archived entry's seq and ts, and its message if the reader may see it."""

    seq: int
    ts: int
    message: Message | None


class QueryFilter:
    """Implements `ReaderView` for one query. It caches the reader's access to each chat."""

    def __init__(
        self, sources: QuerySources, reader: UserId | None, member: UserId | None = None
    ) -> None:
        """With `member`, only messages from that user's membership periods are visible."""
        self.sources = sources
        self._reader = reader
        self._member = member
        self._now_s = sources.clock.time()
        self._checked: set[str] = set()
        self._unstored: set[str] = set()  # chats with changes that the warm tier may not have
        self.spans: dict[str, Reader] = {}  # readable seqs of each readable chat
        self.heads: dict[str, ChatHead] = {}  # newest and stored seqs of each readable chat

    async def select_chats(self, chats: Collection[str]) -> Collection[str]:
        """Return the chats among `chats` that the reader may read."""
        new = set(chats) - self._checked
        if new:
            self._checked |= new
            self.spans |= await self._find_spans(new - self.spans.keys())
            readable = [ChatId(chat) for chat in new if chat in self.spans]
            heads = await asyncio.gather(*(self.sources.log.get_head(chat) for chat in readable))
            for chat, head in zip(readable, heads, strict=True):
                self.heads[chat] = head
                if head.stored < head.seq:
                    self._unstored.add(chat)
        return [chat for chat in chats if chat in self.spans]

    async def _find_spans(self, chats: Collection[str]) -> dict[str, Reader]:
        spans: Mapping[str, tuple[int, Periods]]
        find = self.sources.memberships.find_spans
        if self._member is not None:
            spans = await find(self._member, chats, as_member=True) if chats else {}
        elif self._reader is None:
            spans = dict.fromkeys(chats, (1, ()))
        else:
            spans = await find(self._reader, chats) if chats else {}
        return {
            chat: Reader(Seq(first), Seq(INT_MAX), periods=periods)
            for chat, (first, periods) in spans.items()
        }

    def get_first_seq(self, chat: ChatId) -> int:
        """Return the first seq that the reader may read in a chat from `select_chats`."""
        oldest = self.spans[chat].find_period_after(0)
        return 1 if oldest is None else oldest.first

    async def filter_messages(self, messages: Sequence[Message]) -> list[Message | None]:
        """Return the messages as the reader sees them now; None for messages that are not visible.

        Every change acked before `select_chats` is included. If a chat has entries that have not
        been stored yet, the overlay is read, and then its messages are read again from the warm
        tier.
        """
        readable_messages = [message for message in messages if self._is_for_reader(message)]
        seqs: dict[ChatId, list[int]] = {}
        for message in readable_messages:
            seqs.setdefault(ChatId(message.chat), []).append(message.seq)
        views = await self._open_views(seqs)
        late = [(m.chat, m.ts) for m in readable_messages if m.chat in self._unstored]
        reread = await self.sources.messages.get_many(late) if late else {}
        by_key: dict[_MessageKey, Message] = {}
        for message in readable_messages:
            key = (message.chat, message.ts)
            newest = reread.get(key) if message.chat in self._unstored else message
            if newest is not None:
                current = self._render(newest, views[message.chat])
                if current is not None:
                    by_key[key] = current
        return [by_key.get((message.chat, message.ts)) for message in messages]

    async def render_committed(
        self, chat: ChatId, entries: Sequence[Message]
    ) -> list[Message | None]:
        """Return entries from the hot log as the reader sees them; None for invisible entries."""
        view = (await self._open_views({chat: [entry.seq for entry in entries]}))[chat]
        return [self._render(entry, view) for entry in entries]

    async def render_archived(self, chat: ChatId, first: int, last: int) -> list[ArchivedEntry]:
        """Return the archived entries in ``[first, last]`` (seqs) as the reader sees them now.

        Every change acked before the call is included.

        Raises:
            Unavailable: the entries cannot be read now.
        """
        view = (await self._open_views({chat: list(range(first, last + 1))}))[chat]
        entries = await self.sources.cold.read(chat, first, last)
        return [ArchivedEntry(entry.seq, entry.ts, self._render(entry, view)) for entry in entries]

    def _render(self, entry: Message, view: View) -> Message | None:
        if not self._is_for_reader(entry):
            return None
        current = view.render_message(entry, self._now_s)
        return None if current.deleted else current

    def _is_for_reader(self, message: Message) -> bool:
        span = self.spans[message.chat]
        return is_message(message) and span.is_readable(message.seq)

    async def _open_views(self, seqs: Mapping[ChatId, Sequence[int]]) -> dict[str, View]:
        views = self.sources.views
        opened = await asyncio.gather(*(views.open_shared(chat, seqs[chat]) for chat in seqs))
        hidden: Mapping[ChatId, frozenset[int]] = {}
        if self._reader is not None:
            hidden = await views.list_hidden(self._reader, list(seqs))
        return {
            chat: dataclasses.replace(view, hidden=hidden.get(chat, frozenset()))
            for chat, view in zip(seqs, opened, strict=True)
        }
