"""Message trace: find a message by its id (mid), then read its state from each tier. Read-only.

::

    backlog of every partition ─► logs of active chats in Redis ─► items and segments of all chats

A mid contains its creation time. The first two searches start at that time, and the second covers
only chats that have been active since. The message's ts is usually slightly later, so the third
searches only a few minutes. If the chat or one of its members is given, the trace searches only
that chat or the member's chats, but from the creation time up to the present.

A tier that does not respond is listed in `problems`, and the others are still read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, TypeVar

import attrs
import msgspec

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Mid, UserId, parse_mid
from chatserver.domain.quantities import format_count
from chatserver.errors import ChatError, NotFound
from chatserver.operations.trace.hot import HotTrace
from chatserver.operations.trace.model import (
    InCold,
    LocatedMessage,
    Recipient,
    Trace,
    WaitingMessage,
)
from chatserver.operations.trace.warm import WarmTrace
from chatserver.telemetry.trace_ids import get_trace_ids

T = TypeVar("T")

# A message's ts may be this much before the time in its id (clock skew).
EARLIER_S: Final = 60
# A message's ts may be this much after the time in its id (clock skew, or a slow commit).
LATER_S: Final = 300
CHATS_AT_ONCE: Final = 16


@attrs.define(eq=False, repr=False, kw_only=True)
class MessageTrace:
    """Traces one message. `hot` is None if Redis does not respond.

    Bounds: searches at most `chats_max` chats and reads at most `members_max` members.
    """

    _hot: HotTrace | None
    _older: WarmTrace
    _clock: Clock
    _chats_max: int
    _members_max: int
    _searched: int = attrs.field(default=0, init=False)
    _waiting: WaitingMessage | None = attrs.field(default=None, init=False)
    problems: list[str] = attrs.field(factory=list, init=False)

    async def trace(self, text: str, chat: ChatId | None, user: UserId | None) -> Trace:
        """Return the trace of a message. `chat`, or a member `user`, narrows the search.

        Raises:
            BadRequest: `text` is not a message id.
            NotFound: no tier that responded has the message; the error lists what was searched.
        """
        mid, made_ms = parse_mid(text)
        match = await self._find(mid, made_ms, chat, user)
        if match is None:
            raise NotFound(f"{mid}: {self._describe_search(chat)}")
        trace_id = f"{get_trace_ids(mid).trace:032x}"
        trace = Trace(mid, made_ms, trace_id, match, waiting=self._waiting)
        await asyncio.gather(
            self._load_hot(trace),
            self._load_warm(trace),
            self._load_archive(trace),
            self._load_members(trace),
        )
        trace.problems = self.problems
        return trace

    async def _record_errors(self, call: Awaitable[T]) -> T | None:
        """Return the result of `call`; if it fails, add the error to `problems` and return None."""
        try:
            return await call
        except ChatError as exc:
            if exc.message not in self.problems:
                self.problems.append(exc.message)
            return None

    def _describe_search(self, chat: ChatId | None) -> str:
        scope = f"chat {chat}" if chat else format_count(self._searched, "chat")
        text = f"no such message in the backlog or in {scope}"
        if self._searched >= self._chats_max:
            text += " (the maximum of --chats-max); set --chat or --user"
        return text

    async def _find(
        self, mid: Mid, made_ms: int, chat: ChatId | None, user: UserId | None
    ) -> LocatedMessage | None:
        from_ms = max(0, made_ms - EARLIER_S * 1000)
        if self._hot is not None:
            waiting = await self._record_errors(self._hot.find_waiting(mid, from_ms))
            if waiting is not None:
                match, self._waiting = waiting
                return match
        to_ms = made_ms + LATER_S * 1000
        if chat is not None or user is not None:
            to_ms = max(to_ms, int(self._clock.time() * 1000) + LATER_S * 1000)
        search = _Search(mid, from_ms * 1000, to_ms * 1000)
        if chat is not None:
            self._searched += 1
            return await self._find_in(search, chat)
        if user is not None:
            chats = await self._record_errors(self._older.list_chats(user, self._chats_max))
            return await self._find_in_any(search, chats or [])
        if self._hot is not None:
            active = self._hot.list_active(from_ms // 1000, self._chats_max)
            for hit in await self._record_errors(active) or []:
                entry = await self._record_errors(self._hot.find_in_log(hit, mid, search.from_ts))
                if entry is not None:
                    return entry
        return await self._find_in_all(search)

    async def _find_in_all(self, search: _Search) -> LocatedMessage | None:
        try:
            async for chats in self._older.iter_chats():
                match = await self._find_in_any(search, chats)
                if match is not None or self._searched >= self._chats_max:
                    return match
        except ChatError as exc:
            self.problems.append(exc.message)
        return None

    async def _find_in_any(self, search: _Search, chats: Sequence[ChatId]) -> LocatedMessage | None:
        chats = chats[: self._chats_max - self._searched]
        for start in range(0, len(chats), CHATS_AT_ONCE):
            batch = chats[start : start + CHATS_AT_ONCE]
            self._searched += len(batch)
            for match in await asyncio.gather(*(self._find_in(search, chat) for chat in batch)):
                if match is not None:
                    return match
        return None

    async def _find_in(self, search: _Search, chat: ChatId) -> LocatedMessage | None:
        mid, from_ts, to_ts = search
        if self._hot is not None and to_ts > self._clock.time() * 1e6:
            match = await self._record_errors(self._hot.find_in_log(chat, mid, from_ts))
            if match is not None:
                return match
        match = await self._record_errors(self._older.find(chat, mid, from_ts, to_ts))
        if match is not None:
            return match
        return await self._record_errors(self._older.find_archived(chat, mid, from_ts, to_ts))

    async def _load_hot(self, trace: Trace) -> None:
        if self._hot is not None:
            state = self._hot.get_state(trace.found.chat, trace.found.seq)
            trace.hot = await self._record_errors(state)

    async def _load_warm(self, trace: Trace) -> None:
        trace.warm, trace.held_since_ms = await asyncio.gather(
            self._record_errors(self._older.find_state(trace.found.chat, trace.found.ts)),
            self._record_errors(self._older.find_hold(trace.found.chat)),
        )

    async def _load_archive(self, trace: Trace) -> None:
        found_segment = await self._record_errors(
            self._older.find_segment(trace.found.chat, trace.found.seq)
        )
        if found_segment is None:
            return
        trace.archived_upto, segment = found_segment
        if segment is None:
            return
        is_whole = await self._record_errors(self._older.is_whole(segment))
        trace.cold = InCold(
            key=segment.key,
            first=segment.first,
            last=segment.last,
            stored_bytes=segment.stored_bytes,
            sha256=segment.sha256,
            checksum="unread" if is_whole is None else "right" if is_whole else "wrong",
        )

    async def _load_members(self, trace: Trace) -> None:
        """Set the members and their delivery states, from Redis and DynamoDB."""
        match, limit = trace.found, self._members_max
        stored = await self._record_errors(self._older.list_members(match.chat, limit))
        if stored is not None:
            trace.members, rows = stored
            trace.recipients = [
                Recipient(
                    user=user,
                    joined=joined,
                    is_sender=user == match.sender,
                    inbox=None,
                    has_received=received >= match.seq,
                    has_read=read >= match.seq,
                    gateways=None,
                )
                for user, joined, read, received in rows
            ]
        if self._hot is None:
            return
        members = [(recipient.user, recipient.joined) for recipient in trace.recipients]
        if stored is None:
            hot_members = await self._record_errors(self._hot.list_members(match.chat, limit))
            trace.members, users = hot_members or (None, {})
            members = list(users.items())
        now = await self._record_errors(
            self._hot.list_recipients(match.chat, match.seq, match.sender, members)
        )
        if now is None:
            return
        recipients = {recipient.user: recipient for recipient in trace.recipients}
        trace.recipients = [_merge(member, recipients.get(member.user)) for member in now]


class _Search(NamedTuple):
    """A message id to search for, and the interval (µs) that contains the message's ts."""

    mid: Mid
    from_ts: int
    to_ts: int


def _merge(now: Recipient, stored: Recipient | None) -> Recipient:
    """Merge a member's delivery state in Redis with the state stored in DynamoDB."""
    if stored is None:
        return now
    return msgspec.structs.replace(
        now,
        has_received=now.has_received or stored.has_received,
        has_read=now.has_read or stored.has_read,
    )
