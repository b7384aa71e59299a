"""A reader's view of a chat's entries: changes are applied, and unreadable text is removed.

Two kinds of entries lose their body, but keep their seq: messages that the reader has deleted for
themselves, and changes whose target was sent while the reader was not a member (if the chat has
`history: joined`).

The hot log keeps entries as committed, and the warm tier applies changes later, so both may have
outdated versions. The overlay in Redis has each change until the warm tier has applied it. The
overlay is therefore read after the log and before the warm tier, and applied to entries from both.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import attrs
import structlog

from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership_periods import Reader
from chatserver.domain.message_change_types import HiddenSeqs
from chatserver.domain.messages import LogEntry
from chatserver.errors import NotFound, Unavailable
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.membership import MemberCheck
from chatserver.hot.chats.message_changes import HiddenMessages
from chatserver.protocol import codec, expired_messages
from chatserver.protocol.frames import INT_MAX, Message
from chatserver.protocol.message_change_effects import build_tombstone

log = structlog.get_logger()

_CHANGES_WITH_TEXT = frozenset({"edit", "reaction"})


def has_changes(entries: Iterable[LogEntry]) -> bool:
    """Return whether any entry is an edit or a reaction."""
    return any(codec.get_kind(entry.tail) in _CHANGES_WITH_TEXT for entry in entries)


def may_see_changes(span: Reader, target: int) -> bool:
    """Return whether the reader may see the edits and reactions of message `target`."""
    return target >= span.first or span.is_readable(target)


def _get_target(entry: LogEntry) -> int:
    message = codec.decode_message(codec.join_message(entry.seq, entry.ts, entry.tail))
    return message.target or 0


ALL = Reader(Seq(1), Seq(INT_MAX))
NOTHING = Reader(Seq(INT_MAX), Seq(0), periods=())


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """Changes to apply to some entries, and the entries that are hidden from the reader.

    `span` has the seqs that the reader may read. Edits and reactions whose target is outside `span`
    are returned without their text, and `withheld` collects the seqs of these targets.
    """

    overlay: Mapping[int, bytes]
    hidden: frozenset[int]
    span: Reader = ALL
    withheld: set[int] = dataclasses.field(default_factory=set, init=False, compare=False)

    def render_entry(self, entry: LogEntry, now_s: float) -> bytes:
        """Return the log entry's tail (its JSON after `ts`) as the reader sees it."""
        value = self.overlay.get(entry.seq)
        tail = codec.split_message(value)[2] if value and value[:1] == b"{" else entry.tail
        if self.hidden or (self.span.first > 1 and codec.get_kind(tail) in _CHANGES_WITH_TEXT):
            message = codec.decode_message(codec.join_message(entry.seq, entry.ts, tail))
            if self._is_hidden(message):
                return codec.encode_tail(build_tombstone(message, message.rev))
        return expired_messages.apply_expiry_to_tail(entry.seq, entry.ts, tail, now_s)

    def render_message(self, message: Message, now_s: float) -> Message:
        """Return the warm-tier entry as the reader sees it, with changes applied."""
        value = self.overlay.get(message.seq)
        if value is not None:
            is_whole = value[:1] == b"{"
            newer = (
                codec.decode_message(value) if is_whole else build_tombstone(message, int(value))
            )
            # The warm tier was read after the overlay, so it may already include the change.
            message = newer if newer.rev > message.rev else message
        if self._is_hidden(message):
            return build_tombstone(message, message.rev)
        return expired_messages.apply_expiry(message, now_s)

    def _is_hidden(self, message: Message) -> bool:
        target = message.target or 0
        if message.kind in _CHANGES_WITH_TEXT and not may_see_changes(self.span, target):
            self.withheld.add(target)
            return True
        seq = message.target if message.kind == "edit" else message.seq
        return seq in self.hidden


NO_CHANGES = View({}, frozenset())


@attrs.define(eq=False, repr=False)
class ReaderViews:
    """Opens readers' views of chats. Without `members`, read access is not checked."""

    _log: ChatLog
    _hidden: HiddenMessages
    _members: MemberCheck | None = None

    async def open(
        self, reader: UserId, chat: ChatId, seqs: Sequence[int], span: Reader = ALL
    ) -> View:
        """Return a view of the entries at `seqs` for a reader who may read the seqs in `span`.

        Cost: two Redis calls in parallel.
        """
        overlay, hidden = await asyncio.gather(
            self._log.list_overlay(chat, seqs), self._hidden.list_hidden(reader, [chat])
        )
        return View(overlay, hidden.get(chat, frozenset()), span)

    async def find_span(self, reader: UserId, chat: ChatId, entries: Iterable[LogEntry]) -> Reader:
        """Return the seqs that `reader` may read, to check the changes among `entries`.

        Former members cannot read anything. If earlier membership periods cannot be read, they are
        omitted, so that new messages are not delayed.

        Guarantees:
            Cost: one Redis call. If a change targets a message from before the reader joined, also
                the cost of `add_periods`.
        """
        if self._members is None:
            return ALL
        try:
            span = await self._members.get_reader(chat, reader)
        except NotFound:
            return NOTHING
        if any(_get_target(entry) < span.first for entry in entries if has_changes([entry])):
            return await self._try_to_add_periods(chat, reader, span)
        return span

    async def is_readable(self, reader: UserId, chat: ChatId, seq: int) -> bool:
        """Return whether a member may read the entry at `seq`; False if this cannot be checked.

        Raises:
            NotFound: the chat does not exist, or the reader is not a member.
        """
        if self._members is None:
            return False
        span = await self._members.get_reader(chat, reader)
        if seq < span.first:
            span = await self._try_to_add_periods(chat, reader, span)
        return span.is_readable(seq)

    async def _try_to_add_periods(self, chat: ChatId, reader: UserId, span: Reader) -> Reader:
        assert self._members is not None
        try:
            return await self._members.add_periods(chat, reader, span)
        except Unavailable as exc:
            log.warning("history.periods_unavailable", chat=chat, error=exc.message)
            return span

    async def open_shared(self, chat: ChatId, seqs: Sequence[int]) -> View:
        """Return a view for readers who have hidden none of the entries. Cost: one Redis call."""
        return View(await self._log.list_overlay(chat, seqs), frozenset())

    async def list_hidden(
        self, reader: UserId, chats: Sequence[ChatId]
    ) -> dict[ChatId, HiddenSeqs]:
        """Return the seqs of messages that the reader has deleted for themselves, by chat."""
        return await self._hidden.list_hidden(reader, chats)
