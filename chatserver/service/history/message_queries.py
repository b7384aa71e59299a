"""Message queries: messages by time, sender, receiver or content type.

::

    page of rows ──► filter by chats the reader may read ──► items ──► current state for the reader
       ▲  index or table     directory: membership periods      overlay: unapplied changes
       └──────────────── until the page is full ◄──────────────  hidden, deleted, expired: left out

Unlike a history page, a query page has gaps: it omits deleted and unreadable messages. The most
recent messages may be missing, because they have not been stored yet. A query for one chat includes
its archive (`chatserver.service.history.chat_query_pages`). A query across chats reads only
warm-tier indexes, and returns the ts before which archived messages may be missing;
`chatserver.service.history.sent_and_received` continues with the archive.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import attrs

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, UserId
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.membership import MemberCheck
from chatserver.protocol.frames import Message
from chatserver.service.history.chat_query_pages import ChatQuery, ChatQueryPage, TimeRange
from chatserver.service.history.cold_log import ColdLog
from chatserver.service.history.message_query_filter import QueryFilter
from chatserver.service.history.reader_views import ReaderViews
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.warm.archive.user_archive_positions import Direction, UserArchivePositions
from chatserver.warm.chats.memberships import Memberships
from chatserver.warm.dynamo.paging import Page, Token, check_limit
from chatserver.warm.messages.chat_files import ChatFiles
from chatserver.warm.messages.message_indexes import MessageIndexes


class UserMessages(NamedTuple):
    """A page of messages from all of a user's chats.

    Messages sent before `archived_before` (a ts) may be missing, because they may be archived. If
    it is None, no message in the time range is missing.
    """

    page: Page[Message]
    archived_before: int | None


@attrs.define(eq=False, repr=False, kw_only=True)
class MessageQueries:
    """Message query use cases. `reader` is None for the host application, which reads all chats.

    `start` is the previous page's `next`, or None for the first page.
    """

    _messages: MessageIndexes
    _files: ChatFiles
    _members: MemberCheck
    _memberships: Memberships
    _log: ChatLog
    _older: WarmAndColdLog
    _cold: ColdLog
    _users: UserArchivePositions
    _views: ReaderViews
    _clock: Clock

    async def list_chat(
        self, reader: UserId | None, chat: ChatId, times: TimeRange, limit: int, start: Token | None
    ) -> Page[Message]:
        """Return messages that were sent to a chat in a time range.

        Guarantees:
            Only messages that the reader may read (guarantee P7) and has not deleted for
                themselves.
            Each message includes every change that was acked before the call.
            A page that is not full is the last one, unless it reached a work limit, or a tier did
                not respond.
            No tier is skipped: if a tier does not respond, the page ends before that tier's
                messages, or the call fails.
            Cost: two Queries and two Redis calls. If the reader may not read the chat from its
                start, also a GetItem and up to 15 small reads. For archived messages, also one
                `ColdLog.read` per 100 to 1,000 entries, for up to `ARCHIVED_ENTRIES_MAX` entries.

        Raises:
            NotFound: the chat does not exist, or the reader is not a member.
            Unavailable: the tier with the next messages does not respond.
        """
        return await self._query_chat(
            query=self._messages.list_chat,
            is_match=_is_any,
            reader=reader,
            chat=chat,
            times=times,
            limit=limit,
            start=start,
        )

    async def list_active(
        self, reader: UserId | None, chat: ChatId, times: TimeRange, limit: int, start: Token | None
    ) -> Page[Message]:
        """Return a chat's messages that are not deleted.

        Same guarantees and errors as `list_chat`. Additional cost: an index Query and a
        BatchGetItem.
        """
        query = self._messages.list_active
        return await self._query_chat(
            query=query,
            is_match=_is_any,
            reader=reader,
            chat=chat,
            times=times,
            limit=limit,
            start=start,
        )

    async def list_files(
        self, reader: UserId | None, chat: ChatId, times: TimeRange, limit: int, start: Token | None
    ) -> Page[Message]:
        """Return a chat's messages that have files.

        Same guarantees, costs and errors as `list_active`. While the file index is incomplete, the
        cost grows with the length of the chat.
        """
        query = self._files.list_with_files
        return await self._query_chat(
            query=query,
            is_match=_has_files,
            reader=reader,
            chat=chat,
            times=times,
            limit=limit,
            start=start,
        )

    async def _query_chat(
        self,
        query: ChatQuery,
        is_match: Callable[[Message], bool],
        reader: UserId | None,
        chat: ChatId,
        times: TimeRange,
        limit: int,
        start: Token | None,
    ) -> Page[Message]:
        check_limit(limit)
        view = await self._open_chat_view(reader, chat)
        oldest = view.spans[chat].find_period_after(0)
        first = 1 if oldest is None else oldest.first
        from_ts = max(times.from_ts, await self._find_first_ts(chat, first))
        if from_ts > times.to_ts:
            return Page([], None)
        page = ChatQueryPage(
            query=query,
            is_match=is_match,
            older=self._older,
            cold=self._cold,
            view=view,
            chat=chat,
            first=first,
            limit=limit,
            newest_first=times.is_newest_first,
        )
        return await page.read(dataclasses.replace(times, from_ts=from_ts), start)

    async def list_sent(
        self, reader: UserId | None, user: UserId, times: TimeRange, limit: int, start: Token | None
    ) -> UserMessages:
        """Return messages that a user sent, in all chats that the reader may read.

        Guarantees:
            Same as `list_chat`, but without archived messages; see `UserMessages.archived_before`.
            Cost: an index Query, a BatchGetItem per 50 chats and per 100 messages, two Redis calls
                per chat on the page, and a GetItem.
        """
        return await self._query_user(
            direction="sent", reader=reader, user=user, times=times, limit=limit, start=start
        )

    async def list_received(
        self, reader: UserId | None, user: UserId, times: TimeRange, limit: int, start: Token | None
    ) -> UserMessages:
        """Return the direct messages that a user received. Same guarantees as `list_sent`."""
        return await self._query_user(
            direction="received", reader=reader, user=user, times=times, limit=limit, start=start
        )

    async def _query_user(
        self,
        direction: Direction,
        reader: UserId | None,
        user: UserId,
        times: TimeRange,
        limit: int,
        start: Token | None,
    ) -> UserMessages:
        is_sent = direction == "sent"
        query = self._messages.list_sent if is_sent else self._messages.list_received
        page = await query(
            user,
            times.from_ts,
            times.to_ts,
            limit=limit,
            start=start,
            newest_first=times.is_newest_first,
            view=self._open_view(reader),
        )
        # Read the newest archived ts after the index, to cover messages archived during that read.
        newest = await self._users.find(direction, user)
        if newest is None or newest < times.from_ts:
            return UserMessages(page, None)
        return UserMessages(page, newest + 1)

    def _open_view(self, reader: UserId | None) -> QueryFilter:
        return QueryFilter(
            reader,
            memberships=self._memberships,
            log=self._log,
            views=self._views,
            messages=self._messages,
            now_s=self._clock.time(),
        )

    async def _open_chat_view(self, reader: UserId | None, chat: ChatId) -> QueryFilter:
        view = self._open_view(reader)
        if reader is None:
            await self._memberships.get_chat(chat)
        else:
            span = await self._members.get_reader(chat, reader)
            view.spans[chat] = await self._members.add_periods(chat, reader, span)
        await view.select_chats([chat])
        return view

    async def _find_first_ts(self, chat: ChatId, first: int) -> int:
        """Return the ts of the first message that the reader may read, or 0 if unknown.

        The query starts there, because earlier messages would be filtered out.
        """
        if first <= 1 or first <= self._older.get_cached_top(chat).seq:
            return 0
        entries = await self._older.list_after(chat, first - 1, 1)
        return entries[0].ts if entries else 0


def _is_any(_message: Message) -> bool:
    return True


def _has_files(message: Message) -> bool:
    return bool(message.attachments)
